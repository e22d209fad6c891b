"""Counting the elements that fall into each bin."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["bincount", "histogram_fixed_width", "histogram_fixed_width_bins"]


# Bincount


def _bincount_infer(c: Any, arr: TensorShape, size: TensorShape, weights: TensorShape) -> Any:
    size.assert_has_rank(0)
    known = c.value(1)
    if known is not None and known < 0:
        raise ValueError(f"size ({known}) must be non-negative")
    return (None if known is None else int(known),)


def _bincount(arr: Any, size: Any, weights: Any) -> Any:
    if np.ndim(size) or size < 0:
        raise ValueError(f"size ({size}) must be a non-negative scalar")
    if weights.size and np.shape(weights) != np.shape(arr):
        raise ValueError(f"weights must be empty or of shape {arr.shape}, not {weights.shape}")
    if arr.size and arr.min() < 0:
        raise ValueError("Input arr must be non-negative!")
    check_room([size], np.int64, "size")
    bins, found, amounts = int(size), np.ravel(arr), np.ravel(weights)
    if found.size and found.max() >= bins:
        inside = found < bins
        found, amounts = found[inside], amounts[inside] if amounts.size else amounts
    if not weights.size:
        return np.bincount(found, minlength=bins).astype(weights.dtype)
    result = np.zeros(bins, weights.dtype)
    np.add.at(result, found, amounts)
    return result


@define(
    "Bincount",
    "arr: int32, size: int32, weights: T -> bins: T",
    "T: {int32|int64|float32|float64}",
    infer=_bincount_infer,
    kernel=_bincount,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([1, 2, 2, 5], 4, []),
        Sample([[1, 2], [2, 0]], 3, r(2, 2)),
        Sample([], 2, []),
    ],
)
def bincount_op(arr, size, weights, name=None):
    """Return how often each of 0 .. size-1 occurs in `arr`, or the sum of its weights."""


@composed
@export("bincount", "math.bincount")
def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = dtypes.int32,
) -> Tensor:
    """Return how often each non-negative integer occurs in `arr`, or the sum of its weights.

    The number of bins is one more than the largest element, within [minlength, maxlength]; the
    counts have the type `dtype`.
    """
    with name_scope(None, "bincount"):
        arr = convert_to_tensor(arr, name="arr", dtype=dtypes.int32)
        nonempty = b.reduce_prod(b.shape(arr)) > 0
        size = b.cast(nonempty, dtypes.int32) * (b.reduce_max(arr) + 1)
        if minlength is not None:
            minlength = convert_to_tensor(minlength, name="minlength", dtype=dtypes.int32)
            size = b.maximum(minlength, size)
        if maxlength is not None:
            maxlength = convert_to_tensor(maxlength, name="maxlength", dtype=dtypes.int32)
            size = b.minimum(maxlength, size)
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            return b.unsorted_segment_sum(weights, arr, size)
        return bincount_op(arr, size, b.constant([], dtype))


# Bins of equal width


def _histogram_infer(c: Any, values: TensorShape, ends: TensorShape, nbins: TensorShape) -> Any:
    ends.assert_is_compatible_with((2,))
    nbins.assert_has_rank(0)
    known = c.value(2)
    if known is not None and known <= 0:
        raise ValueError(f"Requires nbins > 0: {known}")
    return (None if known is None else int(known),)


def _histogram(values: Any, value_range: Any, nbins: Any, *, dtype: DType) -> Any:
    if np.shape(value_range) != (2,):
        raise ValueError(f"value_range must hold two numbers, not {np.shape(value_range)}")
    if np.ndim(nbins) or nbins <= 0:
        raise ValueError(f"nbins should be a positive number, but got '{nbins}'")
    check_room([nbins], np.int64, "nbins")
    low, high = value_range
    if not low < high:
        raise ValueError(
            f"value_range should satisfy value_range[0] < value_range[1], but got '[{low}, {high}]'"
        )
    step = (float(high) - float(low)) / int(nbins)
    above = (np.maximum(np.ravel(values), low) - low).astype(np.float64)
    bins = np.minimum(above / step, int(nbins) - 1).astype(np.int64)
    return np.bincount(bins, minlength=int(nbins)).astype(dtype.numpy)


@define(
    "HistogramFixedWidth",
    "values: T, value_range: T, nbins: int32 -> out: dtype",
    "T: {int32|int64|float32|float64}; dtype: {index} = int32",
    infer=_histogram_infer,
    kernel=_histogram,
    samples=[
        Sample(r(3, 4), [-1, 1], 4),
        Sample([-3, 0, 9], [0, 5], 3, dtype="int64"),
        Sample(r(0), [0, 1], 2),
    ],
)
def histogram_fixed_width_op(values, value_range, nbins, dtype=None, name=None):
    """Return how many values fall into each of `nbins` bins of equal width."""


@composed
@export("histogram_fixed_width")
def histogram_fixed_width(
    values: Any,
    value_range: Any,
    nbins: Any = 100,
    dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Return how many values fall into each of `nbins` bins; the end bins include outliers.

    value_range: the lower end of the first bin and the upper end of the last.
    """
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        return histogram_fixed_width_op(values, value_range, nbins, dtype=dtype, name=scope)


@composed
@export("histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: Any,
    value_range: Any,
    nbins: Any = 100,
    dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Return the bin of each value, among `nbins` of equal width over `value_range`."""
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        shape = b.shape(values)
        values = b.reshape(values, [-1])
        value_range = convert_to_tensor(value_range, name="value_range")
        nbins = convert_to_tensor(nbins, dtype=dtypes.int32, name="nbins")
        count = b.cast(nbins, values.dtype)
        above = values - value_range[0]
        scaled = b.truediv(above, value_range[1] - value_range[0], name="scaled_values")
        indices = b.floor(count * scaled, name="indices")
        indices = b.cast(b.clip_by_value(indices, 0, count - 1), dtype)
        return b.reshape(indices, shape)


# Bins with given boundaries


def _bucketize(x: Any, *, boundaries: tuple[float, ...]) -> Any:
    edges = np.array(boundaries, np.float32)
    if np.any(edges[1:] < edges[:-1]):
        raise ValueError("Expected sorted boundaries")
    return np.searchsorted(edges, x, side="right").astype(np.int32)


@define(
    "Bucketize",
    "input: T -> output: int32",
    "T: {int32|int64|float32|float64}; boundaries: list(float)",
    infer=infer.same_as(0),
    kernel=_bucketize,
    kind=Kind.ELEMENTWISE,
    samples=[
        Sample(r(2, 3), boundaries=[-1.0, 0.0, 1.0]),
        Sample(r(), boundaries=[]),
        Sample([1, 2], boundaries=[1.0, 2.0]),
    ],
)
def bucketize(input, boundaries, name=None):
    """Return the index of the bucket between the boundaries that each element falls into."""
