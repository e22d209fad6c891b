"""Functions on ragged tensors that move rows: joining, gathering, repeating, masking, selecting."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.ragged.ragged_conversion import (
    convert_to_tensor_or_ragged_tensor,
    match_row_splits_dtypes,
)
from headrace._src.ops.ragged.ragged_factories import map_flat_values
from headrace._src.ops.ragged.ragged_gather import known_axis, parts_of, ragged_gather
from headrace._src.ops.ragged.ragged_rows import after, assert_splits_match
from headrace._src.ops.ragged.ragged_splits import check_axis
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["ragged_boolean_mask", "ragged_stack", "stack_dynamic_partitions"]


def _rows(values: Any, splits: Any) -> RaggedTensor:
    return RaggedTensor.from_row_splits(values, splits, validate=False)


def _count(value: Any, kind: Any) -> Tensor:
    """Return the size of the first dimension."""
    if isinstance(value, RaggedTensor):
        return value.nrows(kind)
    return b.shape(value, out_type=kind)[0]


# -- Joining ---------------------------------------------------------------------------------------


def ragged_concat(values: Any, axis: Any, name: str | None = None) -> Any:
    """tf.concat."""
    given = list(values) if isinstance(values, list | tuple) else [values]
    with name_scope(None if name == "concat" else name, "RaggedConcat", parts_of(*given)):
        return _joined(given, axis, stacked=False)


@composed
@export("ragged.stack")
def ragged_stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Stack tensors or ragged tensors of one rank along a new axis; they may have different
    lengths.
    """
    given = list(values) if isinstance(values, list | tuple) else [values]
    with name_scope(None if name == "stack" else name, "RaggedConcat", parts_of(*given)):
        return _joined(given, axis, stacked=True)


def _joined(values: list[Any], axis: Any, stacked: bool) -> Any:
    """Concatenate or stack values along an axis, once all are converted and compared."""
    if not values:
        raise ValueError("rt_inputs may not be empty.")
    if not isinstance(axis, int):
        raise TypeError(f"axis must be an int; got {type(axis).__name__}")
    kinds = [v.dtype for v in values if hasattr(v, "dtype")]
    hint = dtypes.as_dtype(kinds[0]).base_dtype if kinds else None
    found = [convert_to_tensor_or_ragged_tensor(v, preferred_dtype=hint) for v in values]
    match_row_splits_dtypes(*found)
    if len(found) == 1:
        return ragged_expand_dims(found[0], axis) if stacked else found[0]
    rank = next((v.shape.ndims for v in found if v.shape.ndims is not None), None)
    if rank is not None:
        for value in found:
            value.shape.assert_has_rank(rank)
    axis = check_axis(axis, None if rank is None else rank + stacked)
    if not any(isinstance(v, RaggedTensor) for v in found):
        return b.stack(found, axis) if stacked else b.concat(found, axis)
    kind = next(v for v in found if isinstance(v, RaggedTensor)).row_splits.dtype.base_dtype
    depth = max(v.ragged_rank for v in found if isinstance(v, RaggedTensor))
    if axis:
        for value in found[1:]:
            found[0].shape[:1].assert_is_compatible_with(value.shape[:1])
    return _join([_with_depth(v, depth, kind) for v in found], axis, stacked, kind)


def _with_depth(value: Any, depth: int, kind: Any) -> Any:
    """Return a value with `depth` ragged dimensions."""
    if depth == 0:
        return value
    if not isinstance(value, RaggedTensor):
        return RaggedTensor.from_tensor(value, ragged_rank=depth, row_splits_dtype=kind)
    return value.with_values(_with_depth(value.values, depth - 1, kind))


def _join(values: list[Any], axis: int, stacked: bool, kind: Any) -> Any:
    if not isinstance(values[0], RaggedTensor):
        return b.stack(values, axis) if stacked else b.concat(values, axis)
    if axis == 0:
        joined = _end_to_end(values)
        if not stacked:
            return joined
        counts = b.stack([v.nrows(kind) for v in values])
        return _rows(joined, b.concat([b.zeros([1], kind), b.cumsum(counts)], axis=0))
    if axis == 1:
        return _interleaved(values, stacked, kind)
    checks = assert_splits_match([(v.row_splits,) for v in values])
    inner = _join([v.values for v in values], axis - 1, stacked, kind)
    return values[0].with_values(after(checks, inner))


def _end_to_end(values: list[Any]) -> Any:
    """Return all rows of ragged tensors, one after the other."""
    if not isinstance(values[0], RaggedTensor):
        return b.concat(values, axis=0)
    joined = _end_to_end([v.values for v in values])
    splits = [values[0].row_splits]
    offset = values[0].row_splits[-1]
    for value in values[1:]:
        splits.append(value.row_splits[1:] + offset)
        offset = offset + value.row_splits[-1]
    return _rows(joined, b.concat(splits, axis=0))


def _interleaved(values: list[RaggedTensor], stacked: bool, kind: Any) -> RaggedTensor:
    """Return the first row of each value, then the second of each, and so on; joined to one row or
    as the elements of one.
    """
    count = values[0].nrows(kind)
    message = "Input tensors must have the same number of rows"
    checks = [b.assert_equal(v.nrows(kind), count, message=message) for v in values[1:]]
    order = b.reshape(b.transpose(b.reshape(b.range(count * len(values)), [len(values), -1])), [-1])
    rows: Any = ragged_gather(_end_to_end(list(values)), after(checks, order))
    if stacked:
        return _rows(rows, b.range(count + 1) * len(values))
    return _rows(rows.values, b.gather(rows.row_splits, b.range(count + 1) * len(values)))


# -- Dimensions ------------------------------------------------------------------------------------


def ragged_expand_dims(
    input: Any, axis: Any = None, name: str | None = None, dim: Any = None
) -> Any:
    """tf.expand_dims."""
    axis = renamed_argument("axis", axis, "dim", dim)
    with name_scope(name, "RaggedExpandDims", parts_of(input)):
        value = convert_to_tensor_or_ragged_tensor(input, name="input")
        rank = value.shape.ndims
        at = check_axis(known_axis(axis), None if rank is None else rank + 1)
        return _expanded(value, at)


def _expanded(value: Any, axis: int) -> Any:
    if not isinstance(value, RaggedTensor):
        return b.expand_dims(value, axis)
    kind = value.row_splits.dtype.base_dtype
    if axis == 0:
        return _rows(value, b.stack([b.constant(0, kind), value.nrows(kind)]))
    if axis == 1:
        return _rows(value, b.range(value.nrows(kind) + 1))
    return value.with_values(_expanded(value.values, axis - 1))


def ragged_squeeze(
    input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None
) -> Any:
    """tf.squeeze."""
    axis = renamed_argument("axis", axis, "squeeze_dims", squeeze_dims)
    if axis is None:
        raise ValueError("Ragged.squeeze must have an axis argument.")
    with name_scope(name, "RaggedSqueeze", parts_of(input)):
        value: Any = convert_to_tensor_or_ragged_tensor(input, name="input")
        given = axis if isinstance(axis, list | tuple) else [axis]
        rank = value.shape.ndims
        for one in sorted({check_axis(int(a), rank) for a in given}, reverse=True):
            value = _squeezed(value, one, one)
        return value


def _squeezed(value: Any, axis: int, number: int) -> Any:
    if not isinstance(value, RaggedTensor):
        return b.squeeze(value, [axis])
    if axis > 1:
        return value.with_values(_squeezed(value.values, axis - 1, number))
    kind = value.row_splits.dtype.base_dtype
    size = value.nrows(kind) if axis == 0 else value.row_lengths()
    message = f"the given axis (axis = {number}) is not squeezable!"
    check = b.Assert(b.reduce_all(b.equal(size, 1)), [message])
    return after([check], value.values)


def ragged_rank(input: Any, name: str | None = None) -> Tensor:
    """tf.rank."""
    with name_scope(name, "RaggedRank", parts_of(input)):
        value = convert_to_tensor_or_ragged_tensor(input)
        return value.ragged_rank + b.rank(value.flat_values)


def ragged_size(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """tf.size."""
    value = convert_to_tensor_or_ragged_tensor(input)
    return b.size(value.flat_values, name=name, out_type=out_type)


def ragged_one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> RaggedTensor:
    """tf.one_hot."""
    value = convert_to_tensor_or_ragged_tensor(indices, name="indices")
    with name_scope(name, "RaggedOneHot", value.components()):
        if axis is not None and axis != -1:
            axis = check_axis(axis, value.shape.ndims)
            if axis < value.ragged_rank:
                raise ValueError("axis may not be less than indices.ragged_rank.")
            axis -= value.ragged_rank - 1
        flat = b.one_hot(value.flat_values, depth, on_value, off_value, axis, dtype)
        return value.with_flat_values(flat)


def ragged_tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """tf.tile."""
    with name_scope(name, "RaggedTile", [*parts_of(input), multiples]):
        value = convert_to_tensor_or_ragged_tensor(input, name="input")
        kind = value.row_splits.dtype.base_dtype
        times = convert_to_tensor(multiples, dtype_hint=kind, name="multiples")
        times.shape.assert_has_rank(1)
        rank = value.shape.ndims
        if rank is not None:
            times.shape.assert_is_compatible_with([rank])
        known = constant_value(times)
        times = b.cast(times, kind)
        return _tiled(value, times, known)


def _tiled(value: Any, times: Tensor, known: np.ndarray | None) -> Any:
    """Repeat the inner dimensions, then the elements of each row, then the rows."""
    inner = None if known is None else known[2:]
    kind = value.row_splits.dtype.base_dtype
    values = value.values
    if inner is None or (inner != 1).any():
        ones = b.ones([1], kind)
        rest = b.concat([ones, times[2:]], axis=0)
        if isinstance(values, RaggedTensor):
            values = _tiled(values, rest, None if inner is None else np.array([1, *inner]))
        else:
            values = b.tile(values, rest)
    splits = value.row_splits
    if known is None or known[1] != 1:
        starts, limits = splits[:-1], splits[1:]
        copies = b.reshape(times[1], [1])
        each = [
            b.reshape(b.tile(b.expand_dims(x, 1), b.concat([[1], copies], axis=0)), [-1])
            for x in (starts, limits)
        ]
        places = b.ragged_range_op(each[0], each[1], 1, kind).rt_dense_values
        values = ragged_gather(values, places)
        splits = splits * times[1]
    result = _rows(values, splits)
    if known is not None and known[0] == 1:
        return result
    numbers = b.tile(b.range(result.nrows(kind)), b.reshape(times[0], [1]))
    return ragged_gather(result, numbers)


# -- Selecting -------------------------------------------------------------------------------------


def ragged_where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """tf.where."""
    if (x is None) != (y is None):
        raise ValueError("x and y must be either both None or both non-None")
    with name_scope(name, "RaggedWhere", parts_of(condition, *([] if x is None else [x, y]))):
        condition = convert_to_tensor_or_ragged_tensor(condition, name="condition")
        if x is None:
            return b.boolean_mask(condition.to_sparse().indices, condition.flat_values)
        x = convert_to_tensor_or_ragged_tensor(x, name="x")
        y = convert_to_tensor_or_ragged_tensor(y, name="y")
        match_row_splits_dtypes(condition, x, y)
        ragged = [isinstance(v, RaggedTensor) for v in (condition, x, y)]
        if all(ragged):
            return map_flat_values(b.where, condition, x, y)
        if ragged[0]:
            raise ValueError("Input shapes do not match.")
        condition.shape.assert_has_rank(1)
        return _rows_where(condition, x, y)


def _rows_where(condition: Tensor, x: Any, y: Any) -> Any:
    """Return rows of x or y."""
    kind = next(v for v in (x, y) if isinstance(v, RaggedTensor)).row_splits.dtype.base_dtype
    sizes = [_count(x, kind), _count(y, kind), b.shape(condition, out_type=kind)[0]]
    message = "Input shapes do not match."
    checks = [b.assert_equal(sizes[i], sizes[2], message=message) for i in range(2)]
    order = b.where(condition, b.range(sizes[0]), sizes[0] + b.range(sizes[1]))
    return ragged_gather(ragged_concat([x, y], 0), after(checks, order))


@composed
@export("ragged.boolean_mask")
def ragged_boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """Return the elements of `data` where `mask` is true; rows keep their remaining elements.

    The mask has the shape of the first dimensions of `data`. With a vector as mask, this selects
    rows.
    """
    with name_scope(name, "RaggedMask", parts_of(data, mask)):
        mask = convert_to_tensor_or_ragged_tensor(mask, dtypes.bool, name="mask")
        data = convert_to_tensor_or_ragged_tensor(data, name="data")
        match_row_splits_dtypes(data, mask)
        rank = mask.shape.ndims
        if rank is None:
            raise ValueError("mask.shape.ndims must be known statically.")
        if rank == 0:
            raise ValueError("mask cannot be scalar.")
        if rank > 1:
            kinds = [v.row_splits.dtype for v in (data, mask) if isinstance(v, RaggedTensor)]
            kind = kinds[0].base_dtype if kinds else dtypes.int64
            mask = mask if isinstance(mask, RaggedTensor) else _with_depth(mask, rank - 1, kind)
            depth = mask.ragged_rank
            data = data if isinstance(data, RaggedTensor) else _with_depth(data, depth, kind)
            if depth > data.ragged_rank:
                raise ValueError("Inputs must have identical ragged splits")
        return _masked(data, mask)


def _masked(data: Any, mask: Any) -> Any:
    if not isinstance(mask, RaggedTensor):
        if not isinstance(data, RaggedTensor):
            return b.boolean_mask(data, mask)
        mask.shape.assert_has_rank(1)
        count = _count(data, dtypes.int64)
        message = "mask and data must have the same number of rows"
        size = b.shape(mask, out_type=dtypes.int64)[0]
        checks = [b.assert_equal(size, count, message=message)]
        rows = b.squeeze(b.where(after(checks, mask)), [1])
        return ragged_gather(data, rows)
    if not isinstance(data, RaggedTensor):
        raise ValueError("Inputs must have identical ragged splits")
    checks = assert_splits_match([(data.row_splits,), (mask.row_splits,)])
    values = after(checks, _masked(data.values, mask.values))
    if isinstance(mask.values, RaggedTensor):
        return data.with_values(values)  # rows are kept, the elements in them are not
    kind = mask.row_splits.dtype.base_dtype
    kept = b.cumsum(b.cast(mask.values, kind))
    ends = b.concat([b.zeros([1], kind), kept], axis=0)
    return _rows(values, b.gather(ends, mask.row_splits))


# -- Partitions ------------------------------------------------------------------------------------


@composed
@export("ragged.stack_dynamic_partitions")
def stack_dynamic_partitions(
    data: Any, partitions: Any, num_partitions: Any, name: str | None = None
) -> RaggedTensor:
    """Return the rows of `data` by partition: row i has those whose partition is i, in order."""
    with name_scope(name, "SegmentStack", parts_of(data, partitions)):
        data = convert_to_tensor_or_ragged_tensor(data, name="data")
        partitions = convert_to_tensor_or_ragged_tensor(partitions, name="partitions")
        count = convert_to_tensor(
            num_partitions, dtype_hint=partitions.dtype.base_dtype, name="num_partitions"
        )
        match_row_splits_dtypes(data, partitions)
        if partitions.shape.ndims is None:
            raise ValueError("partitions must have known rank")
        ragged = [v for v in (data, partitions) if isinstance(v, RaggedTensor)]
        kind = (ragged[0].row_splits if ragged else partitions).dtype.base_dtype
        return _partitioned(data, partitions, count, kind)


def _partitioned(data: Any, partitions: Any, count: Tensor, kind: Any) -> RaggedTensor:
    if isinstance(partitions, RaggedTensor):
        if not isinstance(data, RaggedTensor):
            raise ValueError("partitions.shape must be a prefix of data.shape")
        checks = assert_splits_match([(data.row_splits,), (partitions.row_splits,)])
        return _partitioned(after(checks, data.values), partitions.values, count, kind)
    rank = partitions.shape.ndims
    if rank == 0:
        return _partitioned(_expanded(data, 0), b.stack([partitions]), count, kind)
    if rank > 1:
        if isinstance(data, RaggedTensor):
            raise ValueError("partitions.shape must be a prefix of data.shape")
        outer = b.concat([[-1], b.shape(data)[rank:]], axis=0)
        return _partitioned(b.reshape(data, outer), b.reshape(partitions, [-1]), count, kind)
    order = b.argsort(partitions, stable=True)
    sorted_ids = b.gather(partitions, order)
    message = "partitions must be less than num_partitions"
    limit = b.cast(count, partitions.dtype.base_dtype)
    check = b.assert_less(sorted_ids[-1:], limit, message=message)
    low = b.assert_non_negative(sorted_ids[:1], message="partitions must be non-negative")
    ids = b.cast(b.with_dependencies([check, low], sorted_ids), kind)
    return RaggedTensor.from_value_rowids(
        ragged_gather(data, order), ids, b.cast(count, kind), validate=False
    )


def ragged_dynamic_partition(
    data: Any, partitions: Any, num_partitions: Any, name: str | None = None
) -> list[Any]:
    """tf.dynamic_partition."""
    if not isinstance(num_partitions, int) or num_partitions < 0:
        raise TypeError("num_partitions must be a non-negative integer")
    result = stack_dynamic_partitions(data, partitions, num_partitions, name)
    return [result[i] for i in range(num_partitions)]
