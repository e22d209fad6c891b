"""Collective ops: reduce, gather and broadcast among processes, or among the devices of one.

Horovod's ops belong to the group of processes that `headrace.horovod.init` has joined, whatever its
size is when they run; they are known to the other processes by their names. TensorFlow's have keys
and a fixed number of members, which are devices of one step in one process.

All of them may block, and occupy no thread meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.collectives import group
from headrace._src.devices.meetings import meet
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define

__all__ = ["AVERAGE", "SUM"]

AVERAGE, SUM = 0, 1  # Horovod's numbers of reductions
_NUMBERS = "{int32|int64|float16|float32|float64}"
_ANY = "{uint8|int8|uint16|int16|int32|int64|float16|float32|float64|bool}"
_MERGES = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}


# -- Horovod's -------------------------------------------------------------------------------------


def _is_average(reduce_op: int) -> bool:
    if reduce_op not in (AVERAGE, SUM):
        raise InvalidArgumentError(
            None, None, f"reduce_op must be {AVERAGE} (average) or {SUM} (sum): {reduce_op}"
        )
    return reduce_op == AVERAGE


def _all_reduce(tensor: Any, *, reduce_op: int, in_place: bool, ctx: Any) -> Any:
    average = _is_average(reduce_op)
    found = group().all_reduce(ctx.name, [np.asarray(tensor)], "Add", average, in_place=in_place)
    if isinstance(found, list):
        return found[0]
    return found.map(lambda values: values[0])


def _all_reduce_gradient(b: Any, op: Any, grad: Any) -> Any:
    return b.horovod_allreduce(grad, reduce_op=op.get_attr("reduce_op"))


@define(
    "HorovodAllreduce",
    "tensor: T -> sum: T",
    f"T: {_NUMBERS}; reduce_op: int = 1; in_place: bool = False",
    infer=infer.same_as(0),
    kernel=_all_reduce,
    gradient=_all_reduce_gradient,
    effect=Effect.BLOCKS,
    shares=True,
)
def horovod_allreduce(tensor, reduce_op=1, in_place=False, name=None):
    """Return the sum, or the average, of a tensor of all ranks.

    in_place: the result may take the tensor's memory. The compiler finds out whether that is so.
    """


def _grouped(tensors: Any, *, reduce_op: int, background: bool, in_place: bool, ctx: Any) -> Any:
    arrays = [np.asarray(t) for t in tensors]
    average = _is_average(reduce_op)
    return group().all_reduce(ctx.name, arrays, "Add", average, background, in_place)


def _grouped_gradient(b: Any, op: Any, *grads: Any) -> Any:
    return b.horovod_grouped_allreduce(list(grads), reduce_op=op.get_attr("reduce_op"))


@define(
    "HorovodGroupedAllreduce",
    "tensors: num_tensors*T -> sum: num_tensors*T",
    f"T: {_NUMBERS}; num_tensors: int >= 1; reduce_op: int = 1; background: bool = False; "
    "in_place: bool = False",
    infer=lambda c, shapes: list(shapes),
    kernel=_grouped,
    gradient=_grouped_gradient,
    effect=Effect.BLOCKS,
    shares=True,
)
def horovod_grouped_allreduce(tensors, reduce_op=1, background=False, in_place=False, name=None):
    """Return the sums, or the averages, of several tensors of all ranks, in one exchange.

    background: another thread exchanges them while the step goes on. The compiler divides the step,
    so that they are ready before the tensors of later exchanges. in_place: see HorovodAllreduce.
    """


def _all_gather(tensor: Any, *, ctx: Any) -> Any:
    return group().all_gather(ctx.name, np.asarray(tensor))


def _all_gather_infer(c: Any, tensor: TensorShape) -> TensorShape:
    if tensor.sizes is None:
        return TensorShape.of(None)
    if not tensor.sizes:
        raise ValueError("an all-gather joins along the first dimension, but got a scalar")
    return TensorShape.of((None, *tensor.sizes[1:]))


def _all_gather_gradient(b: Any, op: Any, grad: Any) -> Any:
    """Sum the gradients of all ranks, and take the rows that came from this one."""
    (tensor,) = op.inputs
    total = b.horovod_allreduce(grad)
    rows = b.reshape(b.shape(tensor)[0], [1])
    counts = b.horovod_allgather(rows)
    before = b.reduce_sum(b.slice(counts, [0], b.reshape(b.horovod_rank(), [1])), [0])
    start = b.concat_v2([b.reshape(before, [1]), b.zeros_like(b.shape(tensor)[1:])], 0)
    return b.slice(total, start, b.shape(tensor))


@define(
    "HorovodAllgather",
    "tensor: T -> output: T",
    f"T: {_ANY}",
    infer=_all_gather_infer,
    kernel=_all_gather,
    gradient=_all_gather_gradient,
    effect=Effect.BLOCKS,
)
def horovod_allgather(tensor, name=None):
    """Return the tensors of all ranks, joined along the first dimension."""


def _broadcast(tensor: Any, *, root_rank: int, ctx: Any) -> Any:
    return group().broadcast(ctx.name, np.asarray(tensor), root_rank)


def _broadcast_gradient(b: Any, op: Any, grad: Any) -> Any:
    """The root's tensor is in all results; those of other ranks are in none."""
    total = b.horovod_allreduce(grad)
    is_root = b.equal(b.horovod_rank(), op.get_attr("root_rank"))
    return total * b.cast(is_root, total.dtype)


@define(
    "HorovodBroadcast",
    "tensor: T -> output: T",
    f"T: {_ANY}; root_rank: int",
    infer=infer.same_as(0),
    kernel=_broadcast,
    gradient=_broadcast_gradient,
    effect=Effect.BLOCKS,
)
def horovod_broadcast(tensor, root_rank, name=None):
    """Return the tensor of the rank `root_rank`."""


@define(
    "HorovodRank",
    "-> rank: int32",
    infer=infer.scalar,
    kernel=lambda: np.int32(group().rank),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
)
def horovod_rank(name=None):
    """Return this process's rank, which may change when ranks join or leave."""


@define(
    "HorovodSize",
    "-> size: int32",
    infer=infer.scalar,
    kernel=lambda: np.int32(group().size),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
)
def horovod_size(name=None):
    """Return the number of ranks, which may change when ranks join or leave."""


# -- TensorFlow's ----------------------------------------------------------------------------------

_KEYS = "group_size: int; group_key: int; instance_key: int"
_HINT = "communication_hint: string = 'auto'"


def _key(ctx: Any) -> str:
    return f"{ctx.attrs['group_key']}/{ctx.attrs['instance_key']}"


def _check_size(group_size: int) -> None:
    if group_size < 1:
        raise InvalidArgumentError(None, None, f"group_size must be at least 1: {group_size}")


def _reduce(
    input: Any, *, group_size: int, merge_op: str, final_op: str, ctx: Any, step: Any
) -> Any:
    _check_size(group_size)
    array = np.asarray(input)

    def combine(parts: list[np.ndarray]) -> np.ndarray:
        total = parts[0]
        if any(part.shape != total.shape for part in parts):
            shapes = [list(part.shape) for part in parts]
            raise InvalidArgumentError(None, None, f"the shapes of a reduction differ: {shapes}")
        for part in parts[1:]:
            total = _MERGES[merge_op](total, part)
        if final_op == "Div":
            whole = total.dtype.kind in "iu"
            total = np.trunc(total / group_size) if whole else total / group_size
        return np.array(total, array.dtype)

    return meet(step, ("reduce", _key(ctx)), ctx.op.device, group_size, array, combine)


@define(
    "CollectiveReduce",
    "input: T -> data: T",
    f"T: {{float32|float16|float64|int32|int64}}; {_KEYS}; merge_op: {{'Min'|'Max'|'Mul'|'Add'}}; "
    f"final_op: {{'Id'|'Div'}}; subdiv_offsets: list(int); wait_for: list(int) = []; {_HINT}",
    infer=infer.same_as(0),
    kernel=_reduce,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def collective_reduce(
    input,
    group_size,
    group_key,
    instance_key,
    merge_op,
    final_op,
    subdiv_offsets,
    wait_for=(),
    communication_hint="auto",
    name=None,
):
    """Combine the tensors of all members of a group."""


def _stated_shape(c: Any, *inputs: Any) -> TensorShape:
    return c.attrs["shape"]


def _gather(input: Any, *, group_size: int, ctx: Any, step: Any) -> Any:
    _check_size(group_size)
    array = np.asarray(input)
    key = "gather", _key(ctx)
    return meet(step, key, ctx.op.device, group_size, array, lambda parts: np.concatenate(parts))


@define(
    "CollectiveGather",
    "input: T -> data: T",
    f"T: {{float32|float16|float64|int32|int64}}; {_KEYS}; shape: shape; {_HINT}",
    infer=_stated_shape,
    kernel=_gather,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def collective_gather(
    input, group_size, group_key, instance_key, shape, communication_hint="auto", name=None
):
    """Join the tensors of all members of a group along the first dimension."""


def _bcast_send(input: Any, *, group_size: int, ctx: Any, step: Any) -> Any:
    _check_size(group_size)
    array = np.asarray(input)
    return meet(step, ("bcast", _key(ctx)), ctx.op.device, group_size, array, _sent)


def _bcast_recv(*, group_size: int, ctx: Any, step: Any) -> Any:
    _check_size(group_size)
    return meet(step, ("bcast", _key(ctx)), ctx.op.device, group_size, None, _sent)


def _sent(parts: list[np.ndarray | None]) -> np.ndarray:
    found = [part for part in parts if part is not None]
    if len(found) != 1:
        raise InvalidArgumentError(None, None, f"{len(found)} members of a broadcast send")
    return np.array(found[0])


_BCAST = f"T: {{float32|float16|float64|int32|int64}}; {_KEYS}; shape: shape; {_HINT}"


@define(
    "CollectiveBcastSend",
    "input: T -> data: T",
    _BCAST,
    infer=_stated_shape,
    kernel=_bcast_send,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def collective_bcast_send(
    input, group_size, group_key, instance_key, shape, communication_hint="auto", name=None
):
    """Give a tensor to all members of a group."""


@define(
    "CollectiveBcastRecv",
    "-> data: T",
    _BCAST,
    infer=_stated_shape,
    kernel=_bcast_recv,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def collective_bcast_recv(
    T, group_size, group_key, instance_key, shape, communication_hint="auto", name=None
):
    """Receive the tensor that a member of the group gives to all."""
