"""Partitioning rows by key, and merging them; repeating elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering import generated
from headrace._src.ops.array.filling import zero_array
from headrace._src.ops.array.group_by_key import stable_order
from headrace._src.ops.array.undividing import check_keys, is_plain, merged_positions, width
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["dynamic_partition", "dynamic_stitch", "repeat"]


def _partition_infer(c: Any, data: TensorShape, keys: TensorShape) -> Any:
    count = c.attrs["num_partitions"]
    if data.sizes is None or keys.sizes is None:
        return [None] * count
    rank = len(keys.sizes)
    for m, n in zip(data.sizes, keys.sizes, strict=False):
        if None not in (m, n) and m != n:
            raise ValueError(f"Dimensions must be equal, but are {m} and {n}")
    infer.with_rank_at_least(data, rank)
    return [(None, *data.sizes[rank:])] * count


def _partition_kernel(
    data: np.ndarray, partitions: np.ndarray, *, num_partitions: int
) -> list[np.ndarray]:
    data, partitions = np.asarray(data), np.asarray(partitions)
    rank = partitions.ndim
    if data.shape[:rank] != partitions.shape:
        raise ValueError(
            f"data.shape must start with partitions.shape, got data.shape = "
            f"{list(data.shape)}, partitions.shape = {list(partitions.shape)}"
        )
    rows, keys = data, partitions
    if rank != 1:
        keys = partitions.reshape(-1)
        rows = data.reshape(keys.size, *data.shape[rank:])
    found = _divided(rows, keys, num_partitions)
    if found is not None:
        return found
    check_keys(keys, num_partitions)
    ordered = rows[stable_order(keys)]
    ends = np.cumsum(np.bincount(keys, minlength=num_partitions))
    return np.split(ordered, ends[:-1])


def _divided(rows: np.ndarray, keys: np.ndarray, count: int) -> list[np.ndarray] | None:
    """Divide rows by generated code, in a fifth of the time if they are few; None where there is
    none, and where a key is out of range.
    """
    if not (is_plain(rows) and is_plain(keys) and generated.worthwhile(rows.size)):
        return None
    divide = generated.routine("divide_rows", width(rows.dtype, rows.shape[1:]))
    return None if divide is None else divide(rows, keys, count)


def _partition_gradient(b: OpBuilder, op: Operation, *grads: Any) -> Any:
    data, partitions = op.inputs
    shape = b.shape(partitions)
    places = b.reshape(b.range(b.reduce_prod(shape)), shape)
    where = b.dynamic_partition(places, partitions, op._attrs["num_partitions"])
    return b.reshape(b.dynamic_stitch(where, list(grads)), b.shape(data)), None


@export("dynamic_partition")
@define(
    "DynamicPartition",
    "data: T, partitions: int32 -> outputs: num_partitions*T",
    "num_partitions: int >= 1; T: type",
    infer=_partition_infer,
    kernel=_partition_kernel,
    gradient=_partition_gradient,
    samples=[
        Sample(r(5, 2), [0, 1, 0, 2, 1], num_partitions=3),
        Sample(r(2, 2, 3), [[1, 0], [1, 1]], num_partitions=2),
        Sample(r(3), [0, 0, 0], num_partitions=2),
        Sample(r(0), np.zeros(0), num_partitions=1),
    ],
)
def dynamic_partition(data, partitions, num_partitions, name=None):
    """Split rows by key: output i has those whose key is i, in their order.

    partitions: the key of each row, in [0, num_partitions).
    """


def _stitch_infer(c: Any, indices: list[TensorShape], data: list[TensorShape]) -> Any:
    rest = TensorShape(None)
    for where, rows in zip(indices, data, strict=True):
        if where.sizes is None or rows.sizes is None:
            continue
        rank = len(where.sizes)
        if not rows[:rank].is_compatible_with(where):
            raise ValueError(f"data.shape must start with indices.shape: {rows} and {where}")
        rest = rest.merge_with(rows[rank:])
    count = _divided_rows(c.op._inputs[: len(indices)]) if c.settled else None
    values = [c.value(i) for i in range(len(indices))]
    if all(v is not None for v in values):
        highest = [int(v.max()) for v in values if v is not None and v.size]
        count = max((max(n, 0) + 1 for n in highest), default=0)  # the kernel rejects negative ones
    return TensorShape([count]).concatenate(rest)


def _divided_rows(indices: Sequence[Any]) -> int | None:
    """Return the number of rows that are merged, if a partition has divided the known numbers of
    all of them, as a lookup in shards does; else None.
    """
    (first, *_) = indices
    source = first.producer
    if getattr(source, "definition", None) is None or source.constant is not None:
        return None
    if source.definition.infer is not _partition_infer or set(indices) != set(source.outputs):
        return None
    numbers = constant_value(source.inputs[0])
    if numbers is None or not numbers.size:
        return None
    return max(int(numbers.max()), 0) + 1


def _stitch_kernel(indices: Any, data: Any) -> np.ndarray:
    rest = np.shape(data[0])[np.ndim(indices[0]) :]
    for where, rows in zip(indices, data, strict=True):
        rank = np.ndim(where)
        if np.shape(rows)[:rank] != np.shape(where):
            raise ValueError(
                f"data.shape must start with indices.shape: {list(np.shape(rows))} and "
                f"{list(np.shape(where))}"
            )
        if np.shape(rows)[rank:] != rest:
            raise ValueError(
                f"rows differ in shape: {list(rest)} and {list(np.shape(rows)[rank:])}"
            )
    found = _merged(list(map(np.asarray, indices)), list(map(np.asarray, data)), rest)
    if found is not None:
        return found
    for where in indices:
        if np.size(where) and np.min(where) < 0:
            raise ValueError(f"indices[{np.argmin(where)}] is out of range: {np.min(where)}")
    count = max((int(np.max(where)) + 1 for where in indices if np.size(where)), default=0)
    _check_merged(count, rest, data[0].dtype)
    merged = zero_array((count, *rest), data[0].dtype)
    for where, rows in zip(indices, data, strict=True):
        merged[np.asarray(where).reshape(-1)] = np.reshape(rows, (np.size(where), *rest))
    return merged


def _check_merged(count: int, rest: tuple[int, ...], dtype: np.dtype) -> None:
    check_room((count, *rest), dtype, "the largest of indices")


def _merged(
    indices: list[np.ndarray], data: list[np.ndarray], rest: tuple[int, ...]
) -> np.ndarray | None:
    """Merge rows by generated code; None where there is none, and where an index is negative."""
    if not all(map(is_plain, [*indices, *data])):
        return None
    if not generated.worthwhile(sum(rows.size for rows in data)):
        return None
    dtype = data[0].dtype
    merge = generated.routine("merge_rows", width(dtype, rest))
    if merge is None:
        return None
    return merge(indices, data, rest, lambda count: _check_merged(count, rest, dtype))


def _stitch_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    count = len(op.inputs) // 2
    return (*[None] * count, *[b.gather(dy, where) for where in op.inputs[:count]])


def _stitch_op(op_type: str) -> Any:
    return define(
        op_type,
        "indices: N*int32, data: N*T -> merged: T",
        "N: int >= 1; T: type",
        infer=_stitch_infer,
        kernel=_stitch_kernel,
        gradient=_stitch_gradient,
        simplify=merged_positions,
        samples=[
            Sample([[0, 2], [1, 3]], [r(2), r(2)], N=2),
            Sample([1, [2, 0]], [r(3), r(2, 3)], N=2),
            Sample([[[0, 1], [3, 2]]], [r(2, 2, 1)], N=1),
        ],
    )


@export("dynamic_stitch")
@_stitch_op("DynamicStitch")
def dynamic_stitch(indices, data, name=None):
    """Merge rows by their indices; if several have the same index, the last one wins."""


@_stitch_op("ParallelDynamicStitch")
def parallel_dynamic_stitch(indices, data, name=None):
    """As DynamicStitch, but which of several rows with the same index wins is not guaranteed."""


# -- Repeat ----------------------------------------------------------------------------------------


@composed
@export("repeat")
def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Repeat each slice along `axis` (if None: each element of the flattened input).

    repeats: one number for all, or a vector with one per slice.
    """
    if axis is None:
        input = b.reshape(input, [-1])
        axis = 0
    with name_scope(name, "Repeat", [input, repeats]):
        data = convert_to_tensor(input, name="data")
        repeats = convert_to_tensor(repeats, name="repeats")
        repeats = b.cast_op(repeats, DstT=dtypes.int32)
        repeats.shape.with_rank_at_most(1)
        axis = _known_axis(axis, data.shape.rank)
        shape = b.shape(data)
        if data.shape.rank is None:
            data, shape = _at_least_a_vector(data, shape)
        if repeats.shape.rank == 0:
            tiled = _tile_along(b.expand_dims(data, axis + 1), axis + 1, repeats)
            result = b.reshape(tiled, _flattened(shape, axis))
        else:
            if repeats.shape.rank == 1 and data.shape.rank is not None:
                data.shape[axis].assert_is_compatible_with(repeats.shape[0])
            result = _repeat_each(data, shape, repeats, axis)
        _set_repeated_shape(result, data.shape, axis)
        return result


def _known_axis(axis: int, rank: int | None) -> int:
    if rank is None:
        if axis < 0:
            raise ValueError("axis may only be negative if ndims is statically known.")
        return axis
    if not -rank <= axis < rank:
        raise ValueError(f"axis={axis} out of bounds: expected {-rank}<=axis<{rank}")
    return axis % rank


def _at_least_a_vector(data: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """Turn a scalar into a vector of one, for data of unknown rank."""
    rank = b.rank(data)
    longer = b.concat([[1], shape], 0)
    data = b.reshape(data, longer[b.negative(rank) :])
    return data, b.shape(data)


def _flattened(shape: Tensor, axis: int) -> Tensor:
    """Return the shape with the copies, a dimension of their own after `axis`, merged into it."""
    return b.concat([shape[:axis], [-1], shape[axis + 1 :]], 0)


def _repeat_each(data: Tensor, shape: Tensor, repeats: Tensor, axis: int) -> Tensor:
    """Repeat everything as often as the most repeated slice, then mask the excess."""
    if repeats.shape.rank != axis + 1:
        own = b.shape(repeats)
        missing = b.subtract(axis + 1, b.rank(repeats), name="sub")
        repeats = b.broadcast_to(repeats, b.concat([shape[:missing], own], 0))
        repeats.set_shape([None] * (axis + 1))
    most = b.maximum(0, b.reduce_max(repeats))
    mask = b.sequence_mask(repeats, most)
    tiled = _tile_along(b.expand_dims(data, axis + 1), axis + 1, most)
    masked = b.boolean_mask(tiled, mask)
    return masked if axis == 0 else b.reshape(masked, _flattened(shape, axis))


def _tile_along(data: Tensor, axis: int, times: Tensor) -> Tensor:
    rank = data.shape.rank
    if rank is not None:
        multiples: Any = [1] * rank
        multiples[axis] = times
    else:
        ones = b.ones(b.rank(data), dtypes.int32)
        multiples = b.concat([ones[:axis], [times], ones[axis + 1 :]], 0)
    return b.tile(data, multiples)


def _set_repeated_shape(result: Tensor, shape: TensorShape, axis: int) -> None:
    if shape.sizes is not None:
        result.set_shape((*shape.sizes[:axis], None, *shape.sizes[axis + 1 :]))
