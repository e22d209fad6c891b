"""hvd.allreduce, hvd.allgather, hvd.broadcast: graph functions over the collective ops."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.config import settings
from headrace._src.core.export import export, export_value
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.horovod.process import communicator, rank
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.grouping import group
from headrace._src.ops.state import collective_ops
from headrace._src.variables.collections import global_variables

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_all",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "reduction",
]

Average, Sum, Adasum = collective_ops.AVERAGE, collective_ops.SUM, 2
for _name in ("Average", "Sum", "Adasum"):
    export_value(__name__, _name, f"horovod.{_name}")


class _NoneCompressor:
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor, and what decompress needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor."""
        return tensor


class _FP16Compressor:
    """Sends floating-point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor as float16, and its own type."""
        if tensor.dtype.is_floating:
            return b.cast(tensor, dtypes.float16), tensor.dtype
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its own type."""
        return b.cast(tensor, ctx) if ctx.is_floating else tensor


@export("horovod.Compression")
class Compression:
    """How tensors are made smaller before an all-reduce."""

    none = _NoneCompressor
    fp16 = _FP16Compressor


def reduction(average: bool | None, op: int | None) -> int:
    """Return the reduction that the arguments of hvd.allreduce ask for."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        return Sum if average is False else Average
    if op == Adasum:
        raise NotImplementedError("Adasum is not supported: use op=hvd.Average or op=hvd.Sum")
    if op not in (Average, Sum):
        raise ValueError(f"op must be hvd.Average or hvd.Sum, not {op!r}")
    return op


def _normal(name: str) -> str:
    """Return a tensor's name as a part of an operation's."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


@export("horovod.allreduce")
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
) -> Tensor | IndexedSlices:
    """Return the average of a tensor of all ranks, or the sum (op=hvd.Sum, average=False). All
    ranks must have the same shape and type.

    An IndexedSlices is gathered: the result has the slices of all ranks. device_dense,
    device_sparse: where the operations are. compression: hvd.Compression.fp16 halves what is sent.
    """
    kind = reduction(average, op)
    if isinstance(tensor, IndexedSlices):
        with get_default_graph().device(device_sparse or None):
            return _gathered(tensor, kind)
    with get_default_graph().device(device_dense or None):
        tensor = convert_to_tensor(tensor)
        small, context = compression.compress(tensor)
        name = f"HorovodAllreduce_{_normal(small.name)}"
        made = b.horovod_allreduce(small, reduce_op=kind, name=name)
        return compression.decompress(made, context)


def _gathered(slices: IndexedSlices, kind: int) -> IndexedSlices:
    values, indices = allgather(slices.values), allgather(slices.indices)
    if kind == Average:
        values = b.truediv(values, b.cast(b.horovod_size(), values.dtype))
    return IndexedSlices(values, indices, slices.dense_shape)


def allreduce_all(
    tensors: Sequence[Any],
    kind: int,
    compression: Any,
    device_dense: str,
    device_sparse: str,
    scope: str,
) -> list[Any]:
    """Return the reduced forms of several tensors; None stays None. Tensors of one type are reduced
    together, in the order in which they become ready: each exchange has up to as many bytes as
    HOROVOD_FUSION_THRESHOLD says, and begins when its last tensor is ready. By default, that is
    Horovod's default where exchanges overlap with the step, and everything where they do not.
    """
    background = communicator().overlaps
    most = settings().fusion_threshold
    if most is None:
        most = _FUSED if background else sys.maxsize
    made: list[Any] = list(tensors)
    packed: dict[Any, list[tuple[int, Any, Any]]] = {}
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, IndexedSlices):
            made[i] = allreduce(tensor, op=kind, device_sparse=device_sparse)
        elif tensor is not None:
            with get_default_graph().device(device_dense or None):
                small, context = compression.compress(tensor)
            packed.setdefault(small.dtype.base_dtype, []).append((i, small, context))
    for dtype, found in packed.items():
        for number, bucket in enumerate(_buckets(found, most)):
            with get_default_graph().device(device_dense or None):
                name = f"HorovodAllreduce_{_normal(scope)}{dtype.name}"
                reduced = b.horovod_grouped_allreduce(
                    [t for _, t, _ in bucket],
                    kind,
                    background,
                    name=f"{name}_{number}" if number else name,
                )
                for (i, _, context), value in zip(bucket, reduced, strict=True):
                    made[i] = compression.decompress(value, context)
    return made


_FUSED = 64 << 20  # bytes: Horovod's default
_Packed = tuple[int, Tensor, Any]  # the place of a tensor, it, and what decompressing it needs


def _buckets(found: list[_Packed], most: int) -> list[list[_Packed]]:
    """Divide tensors into lists of up to `most` bytes, or of one tensor. tf.gradients adds
    operations from the last layer to the first, so the order of operations is that in which
    gradients become ready; it is the same on all ranks.
    """
    made: list[list[_Packed]] = []
    room = 0
    for each in sorted(found, key=lambda each: each[1].op._id):
        nbytes = each[1].shape.num_elements() or 0
        nbytes *= each[1].dtype.size
        if not made or nbytes > room or not most:
            made.append([])
            room = most
        made[-1].append(each)
        room -= nbytes
    return made


@export("horovod.allgather")
def allgather(tensor: Any, name: str | None = None) -> Tensor:
    """Return the tensors of all ranks, joined along the first dimension, which may differ."""
    tensor = convert_to_tensor(tensor)
    return b.horovod_allgather(tensor, name=name or f"HorovodAllgather_{_normal(tensor.name)}")


@export("horovod.broadcast")
def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Tensor:
    """Return the tensor of the rank `root_rank`, on all ranks."""
    tensor = convert_to_tensor(tensor)
    name = name or f"HorovodBroadcast_{_normal(tensor.name)}"
    return b.horovod_broadcast(tensor, root_rank, name=name)


@export("horovod.broadcast_variables")
def broadcast_variables(variables: Iterable[Any], root_rank: int) -> Operation:
    """Return an operation that gives variables the values that they have at `root_rank`."""
    rank()  # an error before init, as Horovod has it
    return group(*[v.assign(broadcast(v, root_rank)) for v in variables])


@export("horovod.broadcast_global_variables")
def broadcast_global_variables(root_rank: int) -> Operation:
    """Return an operation that gives all global variables the values of `root_rank`."""
    return broadcast_variables(global_variables(), root_rank)
