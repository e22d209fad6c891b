"""Distinct values, in order of first appearance: unique, and the difference of two lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, RowPart, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.array.group_by_key import stable_order
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.math.sum_precision import widened

__all__ = ["distinct", "setdiff1d", "unique", "unique_with_counts"]


def distinct(x: np.ndarray, axis: int | None, dtype: Any) -> tuple[np.ndarray, ...]:
    """Return the distinct rows along an axis, the index of each row among them, and
    their counts.
    """
    keys = widened(x) if x.dtype.kind != "O" else x
    if keys.dtype.hasobject and np.ndim(keys) > 1:
        # NumPy compares rows of numbers, so replace strings by numbers first.
        keys = np.unique(keys.ravel(), return_inverse=True)[1].reshape(keys.shape)
    if np.ndim(keys) == 1 and keys.dtype.kind in "iu" and keys.size:
        low, high = int(keys.min()), int(keys.max())
        if high - low < 4 * keys.size:
            first, inverse, counts = _distinct_in_range(keys, low, high)
            return _in_order(x, 0, first, inverse, counts, dtype)
    _, first, inverse, counts = np.unique(
        keys, True, True, True, axis=None if np.ndim(keys) == 1 else axis, equal_nan=False
    )
    return _in_order(x, axis or 0, first, inverse, counts, dtype)


def _distinct_in_range(keys: np.ndarray, low: int, high: int) -> tuple[np.ndarray, ...]:
    """As NumPy's unique, for integers of a small range: a table instead of a sort."""
    slots = (keys - keys.dtype.type(low)).astype(np.intp)
    first = np.full(high - low + 1, -1)
    first[slots[::-1]] = np.arange(len(keys) - 1, -1, -1)  # the first one is written last
    used = np.flatnonzero(first >= 0)
    number = np.empty_like(first)
    number[used] = np.arange(len(used))
    return first[used], number[slots], np.bincount(slots)[used]


def _in_order(
    x: np.ndarray,
    axis: int,
    first: np.ndarray,
    inverse: np.ndarray,
    counts: np.ndarray,
    dtype: Any,
) -> tuple[np.ndarray, ...]:
    """Sort the results by first appearance."""
    order = stable_order(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    values = x.take(first[order], axis)
    return (
        values,
        rank[inverse.reshape(-1)].astype(dtype.numpy),
        counts[order].astype(dtype.numpy),
    )


def _of_vector(x: np.ndarray, out_idx: Any) -> tuple[np.ndarray, ...]:
    if np.ndim(x) != 1:
        raise ValueError("unique expects a 1D vector.")
    return distinct(x, None, out_idx)


def _along_axis(x: np.ndarray, axis: np.ndarray, out_idx: Any) -> tuple[np.ndarray, ...]:
    if np.ndim(axis) != 1:
        raise ValueError("axis expects a 1D vector.")
    axes = np.asarray(axis).tolist()
    if len(axes) > 1:
        raise ValueError(f"axis does not support input tensors larger than 1 element: {axes}")
    if not axes:
        return _of_vector(x, out_idx)
    rank = np.ndim(x)
    if not -rank <= axes[0] < rank:
        raise ValueError(f"axis has to be between {-rank} and {rank - 1}, not {axes[0]}")
    return distinct(x, axes[0] % rank, out_idx)


def _vector_infer(c: Any, x: TensorShape) -> Any:
    if len(c.op._outputs) == 2:
        x.with_rank(1)
    return [(None,), x, (None,)][: len(c.op._outputs)]


def _axis_infer(c: Any, x: TensorShape, axis: TensorShape) -> Any:
    axes = c.value(1)
    values: Any = None
    size = None
    if x.sizes is not None and axes is not None and axes.size <= 1:
        at = int(axes.ravel()[0]) % max(len(x.sizes), 1) if axes.size else 0
        if at < len(x.sizes):
            size = x.sizes[at]
            values = (*x.sizes[:at], None, *x.sizes[at + 1 :])
    return [values, (size,), (None,)][: len(c.op._outputs)]


def _list_diff_infer(c: Any, x: TensorShape, y: TensorShape) -> Any:
    x.with_rank(1)
    y.with_rank(1)
    return [(None,), (None,)]


_VECTORS = [Sample([3, 1, 3, 2, 1], T=t) for t in ("int32", "float64", "bfloat16")] + [
    Sample(r(6), T="string"),
    Sample(r(0), T="int64"),
]
_ROWS = [
    Sample([[1, 2], [3, 4], [1, 2]], [0], T="int32"),
    Sample([[1, 1, 2], [3, 3, 2]], [-1], T="float32"),
    Sample([3, 1, 3], np.zeros(0), T="int64"),
    Sample(r(3, 1), [0], T="string"),
]


@export("unique")
@define(
    "Unique",
    "x: T -> y: T, idx: out_idx",
    "T: type; out_idx: {index} = int32",
    infer=_vector_infer,
    kernel=lambda x, *, out_idx: _of_vector(x, out_idx)[:2],
    gradient=NOT_DIFFERENTIABLE,
    samples=_VECTORS,
    rows=RowPart.FINDS,
)
def unique(x, out_idx=dtypes.int32, name=None):
    """Return the distinct elements of a vector, and the index of each element among them."""


@define(
    "UniqueV2",
    "x: T, axis: Taxis -> y: T, idx: out_idx",
    "T: type; Taxis: {index} = int64; out_idx: {index} = int32",
    infer=_axis_infer,
    kernel=lambda x, axis, *, out_idx: _along_axis(x, axis, out_idx)[:2],
    gradient=NOT_DIFFERENTIABLE,
    samples=_ROWS,
)
def unique_v2(x, axis, out_idx=None, name=None):
    """Return the distinct slices along an axis, and the index of each slice among them."""


@export("unique_with_counts")
@define(
    "UniqueWithCounts",
    "x: T -> y: T, idx: out_idx, count: out_idx",
    "T: type; out_idx: {index} = int32",
    infer=_vector_infer,
    kernel=lambda x, *, out_idx: _of_vector(x, out_idx),
    gradient=NOT_DIFFERENTIABLE,
    samples=_VECTORS,
)
def unique_with_counts(x, out_idx=dtypes.int32, name=None):
    """As `unique`, with the number of times that each distinct element occurs."""


@define(
    "UniqueWithCountsV2",
    "x: T, axis: Taxis -> y: T, idx: out_idx, count: out_idx",
    "T: type; Taxis: {index} = int64; out_idx: {index} = int32",
    infer=_axis_infer,
    kernel=lambda x, axis, *, out_idx: _along_axis(x, axis, out_idx),
    gradient=NOT_DIFFERENTIABLE,
    samples=_ROWS,
)
def unique_with_counts_v2(x, axis, out_idx=None, name=None):
    """As UniqueV2, with the number of times that each distinct slice occurs."""


def _difference_kernel(x: np.ndarray, y: np.ndarray, *, out_idx: Any) -> tuple[np.ndarray, ...]:
    if np.ndim(x) != 1 or np.ndim(y) != 1:
        raise ValueError(f"x and y should be vectors, not of shapes {np.shape(x)}, {np.shape(y)}")
    if x.dtype.hasobject:
        known = set(y.tolist())
        absent = np.fromiter((v not in known for v in x.tolist()), bool, len(x))
    else:
        absent = ~np.isin(widened(x), widened(y))
    (places,) = np.nonzero(absent)
    return x[places], places.astype(out_idx.numpy)


@define(
    "ListDiff",
    "x: T, y: T -> out: T, idx: out_idx",
    "T: type; out_idx: {index} = int32",
    infer=_list_diff_infer,
    kernel=_difference_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([1, 2, 3, 4, 5, 2], [1, 3, 5], T="int32"),
        Sample(r(5), r(2), T="string"),
        Sample([0.5, 1.5], np.zeros(0), T="float16"),
    ],
)
def list_diff(x, y, out_idx=None, name=None):
    """Return the elements of `x` that aren't in `y`, and their indices."""


@composed
@export("setdiff1d")
def setdiff1d(
    x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the elements of `x`, including repetitions, that aren't in `y`, and their indices."""
    return list_diff(x, y, out_idx=index_dtype, name=name)
