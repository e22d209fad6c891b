"""Gathering rows and elements of ragged tensors, or by ragged indices."""

from __future__ import annotations

from typing import Any

from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.ragged.ragged_conversion import (
    convert_to_tensor_or_ragged_tensor,
    match_row_splits_dtypes,
)
from headrace._src.ops.ragged.ragged_rows import after, assert_splits_match
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["known_axis", "parts_of", "ragged_batch_gather", "ragged_gather", "ragged_gather_nd"]


def parts_of(*values: Any) -> list[Any]:
    """Return the tensors of values, for name_scope."""
    return [t for v in values for t in (v.components() if isinstance(v, RaggedTensor) else [v])]


def known_axis(axis: Any) -> int:
    """Return an axis that may be a constant tensor."""
    value = constant_value(axis) if isinstance(axis, Tensor) else axis
    if value is None:
        raise ValueError("axis must be known at graph construction time.")
    return int(value)


def ragged_gather(
    params: Any,
    indices: Any,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int = 0,
) -> Any:
    """tf.gather."""
    if axis is not None and known_axis(axis) != 0:
        raise ValueError("axis != 0 is not supported for ragged gather yet.")
    if batch_dims != 0:
        raise ValueError("batch_dims != 0 is not supported for ragged gather yet.")
    with name_scope(name, "RaggedGather", parts_of(params, indices)):
        params = convert_to_tensor_or_ragged_tensor(params, name="params")
        indices = convert_to_tensor_or_ragged_tensor(indices, name="indices")
        match_row_splits_dtypes(params, indices)
        return _gathered(params, indices)


def _gathered(params: Any, indices: Any) -> Any:
    if isinstance(indices, RaggedTensor):
        return indices.with_values(_gathered(params, indices.values))
    if not isinstance(params, RaggedTensor):
        return b.gather(params, indices)
    rank = indices.shape.ndims
    if rank is None:
        raise ValueError("rank(indices) must be known statically")
    depth = rank + params.ragged_rank - 1
    found = b.ragged_gather_op(params.nested_row_splits, params.flat_values, indices, depth)
    result = found.output_dense_values
    for splits in reversed(found.output_nested_splits):
        result = RaggedTensor.from_row_splits(result, splits, validate=False)
    return result


def ragged_batch_gather(params: Any, indices: Any, name: str | None = None) -> Any:
    """tf.batch_gather."""
    with name_scope(name, "RaggedBatchGather", parts_of(params, indices)):
        params = convert_to_tensor_or_ragged_tensor(params, name="params")
        indices = convert_to_tensor_or_ragged_tensor(indices, name="indices")
        match_row_splits_dtypes(params, indices)
        return _batch_gathered(params, indices)


def _batch_gathered(params: Any, indices: Any) -> Any:
    rank = indices.shape.ndims
    if rank is None:
        raise ValueError("batch_gather does not allow indices with unknown shape.")
    if rank == 0:
        raise ValueError("indices.rank must be at least 1.")
    if rank == 1:
        return _gathered(params, indices)
    if not isinstance(params, RaggedTensor):
        kind = indices.row_splits.dtype.base_dtype
        params = RaggedTensor.from_tensor(params, ragged_rank=1, row_splits_dtype=kind)
    if not isinstance(indices, RaggedTensor):
        kind = params.row_splits.dtype.base_dtype
        shape = [-1] + [1] * (rank - 1)
        numbers = b.cast(indices, kind)
        checks = _in_rows(numbers, b.reshape(params.row_lengths(), shape))
        starts = b.reshape(params.row_starts(), shape)
        return _gathered(params.values, after(checks, numbers + starts))
    if isinstance(indices.values, RaggedTensor):
        if not isinstance(params.values, RaggedTensor):
            raise ValueError("batch shape from indices does not match params shape")
        checks = assert_splits_match([(params.row_splits,), (indices.row_splits,)])
        return indices.with_values(after(checks, _batch_gathered(params.values, indices.values)))
    kind = indices.row_splits.dtype.base_dtype
    rows = indices.value_rowids()
    numbers = b.cast(indices.values, kind)
    checks = _in_rows(numbers, b.gather(params.row_lengths(), rows))
    places = numbers + b.gather(params.row_starts(), rows)
    return indices.with_values(_gathered(params.values, after(checks, places)))


def _in_rows(numbers: Tensor, lengths: Tensor) -> list[Any]:
    """Return the checks that numbers are in [0, length) of their rows."""
    inside = b.reduce_all(b.logical_and(b.greater_equal(numbers, 0), b.less(numbers, lengths)))
    message = ["indices must be in the rows that they belong to", numbers, "lengths", lengths]
    return [b.Assert(inside, message)]


def ragged_gather_nd(
    params: Any, indices: Any, name: str | None = None, batch_dims: int = 0
) -> Any:
    """tf.gather_nd."""
    if batch_dims != 0:
        raise ValueError("batch_dims != 0 is not supported for ragged gather yet.")
    with name_scope(name, "RaggedGatherNd", parts_of(params, indices)):
        params = convert_to_tensor_or_ragged_tensor(params, name="params")
        indices = convert_to_tensor_or_ragged_tensor(indices, name="indices")
        match_row_splits_dtypes(params, indices)
        rank = indices.shape.ndims
        if rank is None:
            raise ValueError("rank(indices) must be known statically")
        if rank == 0:
            raise ValueError("indices.rank must be at least 1.")
        if indices.shape[-1].value is None:
            raise ValueError(
                "The innermost dimension of indices may not be ragged"
                if isinstance(indices, RaggedTensor)
                else "indices.shape[-1] must be statically known."
            )
        return _gathered_nd(params, indices)


def _gathered_nd(params: Any, indices: Any) -> Any:
    if isinstance(indices, RaggedTensor):
        return indices.with_values(_gathered_nd(params, indices.values))
    if not isinstance(params, RaggedTensor):
        return b.gather_nd(params, indices)
    depth = indices.shape[-1].value
    if depth == 0:
        shape = b.concat([b.shape(indices)[:-1], [1]], axis=0)
        return _gathered_nd(b.expand_dims(params, 0), b.zeros(shape, indices.dtype.base_dtype))
    if depth == 1:
        return _gathered(params, b.squeeze(indices, [-1]))
    kind = params.row_splits.dtype.base_dtype
    numbers = b.cast(indices, kind)
    rows, within = numbers[..., 0], numbers[..., 1]
    checks = _in_rows(within, b.gather(params.row_lengths(), rows))
    places = after(checks, b.gather(params.row_starts(), rows) + within)
    rest = b.concat([b.expand_dims(places, -1), numbers[..., 2:]], axis=-1)
    return _gathered_nd(params.values, rest)
