"""Slices of ragged tensors: rt[1:], rt[:, :2], rt[0, ..., tf.newaxis].

Keys are consumed from the left. A key for a row selects it; a slice of rows keeps the others; a
slice inside the rows applies to each row. Keys for the flat values are a tensor's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.ragged.ragged_ops import ragged_range_op
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["ragged_getitem"]


@composed
def ragged_getitem(rt: RaggedTensor, key: Any) -> Any:
    """Return parts of a ragged tensor: the method `__getitem__`."""
    with name_scope(None, "RaggedGetItem", rt.components()):
        keys = list(key) if isinstance(key, list | tuple) else [key]
        if keys.count(Ellipsis) > 1 and not any(isinstance(k, Tensor) for k in keys):
            first = keys.index(Ellipsis)
            keys = keys[: first + 1] + [k for k in keys[first + 1 :] if k is not Ellipsis]
        for part in keys:
            _check_key(part)
        return _getitem(rt, keys)


def _check_key(key: Any) -> None:
    parts = [key.start, key.stop, key.step] if isinstance(key, slice) else [key]
    for part in parts:
        if part is None or part is Ellipsis or isinstance(part, int | np.integer):
            continue
        if isinstance(part, Tensor) and part.dtype.base_dtype in (dtypes.int32, dtypes.int64):
            continue
        raise TypeError(
            "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar "
            f"tf.int32/tf.int64 tensors are valid indices, got {part!r}"
        )


def _getitem(rt: Any, keys: list[Any]) -> Any:
    """Apply keys to a ragged tensor or a tensor."""
    if not keys:
        return rt
    if not isinstance(rt, RaggedTensor):
        return b.slice_tensor(rt, keys)
    first, *inner = keys
    if first is Ellipsis:
        return _getitem(rt, _expanded(rt.shape.ndims, inner))
    if first is None:
        found = _getitem(rt, inner)
        if not isinstance(found, RaggedTensor):
            return b.expand_dims(found, 0)
        rows = b.cast(found.nrows(), found.row_splits.dtype.base_dtype)
        return RaggedTensor.from_row_splits(found, b.stack([0, rows]), validate=False)
    if isinstance(first, slice):
        return _inside_rows(_sliced_rows(rt, first), inner)
    start, limit = rt.row_splits[:-1][first], rt.row_splits[1:][first]
    row = _span(rt.values, start, limit)
    return _getitem(row, inner)


def _expanded(rank: int | None, inner: list[Any]) -> list[Any]:
    """Replace an ellipsis by as many full slices as are needed for the keys after it to be those of
    the last of `rank` dimensions.
    """
    if rank is None:
        raise ValueError("Ellipsis not supported for unknown shape RaggedTensors")
    used = len([k for k in inner if k is not None])
    return [slice(None)] * max(rank - used, 0) + inner


def _span(values: Any, start: Any, limit: Any) -> Any:
    if isinstance(values, RaggedTensor):
        return _sliced_rows(values, slice(start, limit))
    return values[start:limit]


def _sliced_rows(rt: RaggedTensor, key: slice) -> RaggedTensor:
    """Return the rows that a slice selects."""
    if key.start is None and key.stop is None and key.step is None:
        return rt
    starts, limits = rt.row_splits[:-1][key], rt.row_splits[1:][key]
    if key.step is None or (isinstance(key.step, int) and key.step == 1):
        # Consecutive rows are consecutive values. Without any row, both ends are 0.
        none = b.zeros([1], rt.row_splits.dtype.base_dtype)
        splits = b.concat([none[b.size(starts) :], starts[:1], limits], axis=0)
        values = _span(rt.values, splits[0], splits[-1])
        return RaggedTensor.from_row_splits(values, splits - splits[0], validate=False)
    return _values_in(rt.values, starts, limits, 1)


def _values_in(values: Any, starts: Tensor, limits: Tensor, step: Any) -> RaggedTensor:
    """Return rows of the values from starts[i] to limits[i]."""
    step = b.cast(convert_to_tensor(step, name="step"), starts.dtype.base_dtype)
    splits, places = ragged_range_op(starts, limits, step, starts.dtype.base_dtype)
    found = b.gather(values, places)
    return RaggedTensor.from_row_splits(found, splits, validate=False)


def _inside_rows(rt: RaggedTensor, keys: list[Any]) -> RaggedTensor:
    """Apply keys to each row."""
    if not keys:
        return rt
    first, *inner = keys
    if first is Ellipsis:
        rank = rt.shape.ndims
        return _inside_rows(rt, _expanded(None if rank is None else rank - 1, inner))
    if first is None:
        # Each row becomes the only element of a new row.
        found = _inside_rows(rt, inner)
        splits = b.range(b.cast(found.nrows(), rt.row_splits.dtype.base_dtype) + 1)
        return RaggedTensor.from_row_splits(found, splits, validate=False)
    if not isinstance(first, slice):
        raise ValueError("Cannot index into an inner ragged dimension.")
    return _with_inner(_sliced_each_row(rt, first), inner)


def _with_inner(rt: RaggedTensor, keys: list[Any]) -> RaggedTensor:
    """Apply keys to the elements of the rows."""
    if not keys:
        return rt
    if isinstance(rt.values, RaggedTensor):
        return rt.with_values(_inside_rows(rt.values, keys))
    return rt.with_values(b.slice_tensor(rt.values, [slice(None), *keys]))


def _sliced_each_row(rt: RaggedTensor, key: slice) -> RaggedTensor:
    """Return the part of each row that a slice selects."""
    if key.start is None and key.stop is None and key.step is None:
        return rt
    starts, limits = rt.row_splits[:-1], rt.row_splits[1:]
    step = 1 if key.step is None else key.step
    if isinstance(step, Tensor):
        raise TypeError("slice step must be an integer for a ragged dimension")
    if step == 0:
        raise ValueError("slice step cannot be zero.")
    low, high = (starts, limits) if step > 0 else (starts - 1, limits - 1)
    lower = _bound(key.start, starts, limits, low, high, low if step > 0 else high)
    upper = _bound(key.stop, starts, limits, low, high, high if step > 0 else low)
    return _values_in(rt.values, lower, upper, step)


def _bound(
    offset: Any, starts: Tensor, limits: Tensor, low: Tensor, high: Tensor, default: Tensor
) -> Tensor:
    """Return where a slice begins or ends in each row: an offset, from the end if negative, kept
    between `low` and `high`.
    """
    if offset is None:
        return default
    kind = starts.dtype.base_dtype
    if isinstance(offset, Tensor):
        moved = b.cast(offset, kind)
        place = b.where(b.fill(b.shape(starts), b.less(moved, 0)), limits + moved, starts + moved)
    else:
        place = (limits if offset < 0 else starts) + b.constant(int(offset), kind)
    return b.minimum(b.maximum(place, low), high)
