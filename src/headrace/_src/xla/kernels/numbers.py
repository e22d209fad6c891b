"""Ops on numbers that have no lowering rule: comparisons with tables, segments, sparse matrices,
checks. In: inputs as an op's kernel has them. Out: outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.xla.kernels.faults import check, check_indices

__all__ = ["KERNELS"]


def _assert(condition: Any, data: Sequence[Any]) -> tuple[()]:
    check(~jnp.all(jnp.asarray(condition)))
    return ()


def _check_numerics(x: Any) -> Any:
    x = jnp.asarray(x)
    check(~jnp.all(jnp.isfinite(x)))
    return x


def _bucketize(x: Any, *, boundaries: Sequence[float]) -> Any:
    x = jnp.asarray(x)
    edges = np.asarray(boundaries, np.float32)
    kind = np.float64 if x.dtype in (np.int32, np.int64, np.float64) else np.float32
    return jnp.searchsorted(edges.astype(kind), x.astype(kind), "right").astype(np.int32)


def _in_top_k(predictions: Any, targets: Any, k: Any) -> Any:
    predictions, targets = jnp.asarray(predictions), jnp.asarray(targets)
    classes = predictions.shape[1]
    inside = (targets >= 0) & (targets < classes)
    at = jnp.clip(targets, 0, classes - 1)
    mine = jnp.take_along_axis(predictions, at[:, None], 1, mode="clip")
    larger = (predictions > mine).sum(1)
    finite = jnp.all(jnp.isfinite(predictions), 1)
    return inside & finite & (larger < jnp.asarray(k))


def _segments(how: str) -> Callable[..., Any]:
    def run(data: Any, ids: Any, count: np.ndarray) -> Any:
        data, ids = jnp.asarray(data), jnp.asarray(ids)
        size = int(count)
        check(jnp.any(ids >= size))
        inner = data.shape[ids.ndim :]
        places = jnp.where(ids < 0, size, ids).reshape(-1)
        whole = jnp.full((size, *inner), _first(how, data.dtype), data.dtype)
        at = whole.at[places]
        change = {"max": at.max, "min": at.min, "prod": at.multiply}[how]
        return change(data.reshape(-1, *inner), mode="drop")

    return run


def _first(how: str, dtype: Any) -> Any:
    if how == "prod":
        return 1
    info = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype)
    return info.min if how == "max" else info.max


def _sparse_to_dense(
    indices: Any, shape: np.ndarray, values: Any, default: Any, *, validate_indices: bool
) -> Any:
    sizes = [int(n) for n in shape]
    values = jnp.asarray(values)
    whole = jnp.full(sizes, jnp.asarray(default, values.dtype), values.dtype)
    points = jnp.asarray(indices)
    points = points.reshape(-1, len(sizes)) if points.ndim < 2 else points
    for d, size in enumerate(sizes):
        check_indices(points[:, d], size)
    if validate_indices and len(points) > 1:
        # In order, and no point twice.
        flat = jnp.zeros(len(points), np.int64)
        for d, size in enumerate(sizes):
            flat = flat * size + points[:, d]
        check(jnp.any(flat[1:] <= flat[:-1]))
    return whole.at[tuple(points.T)].set(values, mode="drop")


def _sparse_product(
    indices: Any, values: Any, shape: np.ndarray, b: Any, *, adjoint_a: bool, adjoint_b: bool
) -> Any:
    indices, values, b = jnp.asarray(indices), jnp.asarray(values), jnp.asarray(b)
    b = jnp.conj(b.T) if adjoint_b else b
    values = jnp.conj(values) if adjoint_a else values
    rows, columns = (1, 0) if adjoint_a else (0, 1)
    check_indices(indices[:, rows], int(shape[rows]))
    check_indices(indices[:, columns], int(shape[columns]))
    taken = jnp.take(b, indices[:, columns], axis=0, mode="clip") * values[:, None]
    zeros = jnp.zeros((int(shape[rows]), b.shape[1]), taken.dtype)
    return zeros.at[indices[:, rows]].add(taken, mode="drop").astype(values.dtype)


def _sparse_reorder(indices: Any, values: Any, shape: Any) -> tuple[Any, Any]:
    indices, values = jnp.asarray(indices), jnp.asarray(values)
    _check_points(indices, jnp.asarray(shape))
    order = jnp.lexsort(tuple(indices.T[::-1]))
    return indices[order], values[order]


def _check_points(indices: Any, shape: Any) -> None:
    check(jnp.any((indices < 0) | (indices >= shape)))


def _sparse_reshape(indices: Any, shape: np.ndarray, wanted: np.ndarray) -> tuple[Any, Any]:
    indices = jnp.asarray(indices)
    _check_points(indices, shape)
    total = int(np.prod(shape))
    rest = int(np.prod(wanted[wanted >= 0]))
    sizes = np.where(wanted < 0, total // max(rest, 1), wanted).astype(np.int64)
    flat = jnp.zeros(len(indices), np.int64)
    for d, size in enumerate(shape):
        flat = flat * int(size) + indices[:, d]
    columns = []
    for size in sizes[:0:-1]:
        columns.append(flat % max(int(size), 1))
        flat = flat // max(int(size), 1)
    return jnp.stack([flat, *columns[::-1]], 1), jnp.asarray(sizes)


def _sparse_reduce_sum(
    indices: Any, values: Any, shape: np.ndarray, axes: np.ndarray, *, keep_dims: bool
) -> Any:
    indices, values = jnp.asarray(indices), jnp.asarray(values)
    _check_points(indices, shape)
    whole = jnp.zeros([int(n) for n in shape], values.dtype)
    whole = whole.at[tuple(indices.T)].add(values, mode="drop")
    along = tuple(int(a) for a in axes.reshape(-1))
    return whole.sum(along, dtype=values.dtype, keepdims=keep_dims)


def _segment_gradient(root: bool) -> Callable[..., Any]:
    """The gradient of SparseSegmentMean or, by the root of the count, of SparseSegmentSqrtN."""

    def run(gradient: Any, indices: Any, ids: Any, size: np.ndarray) -> Any:
        gradient, indices, ids = (jnp.asarray(v) for v in (gradient, indices, ids))
        check_indices(indices, int(size))
        check_indices(ids, len(gradient))
        counts = jnp.zeros(len(gradient), gradient.dtype).at[ids].add(1, mode="drop")
        weights = 1 / (jnp.sqrt(counts) if root else counts)
        rows = gradient[jnp.clip(ids, 0, len(gradient) - 1)]
        rows = rows * weights[ids].reshape(-1, *[1] * (rows.ndim - 1))
        zeros = jnp.zeros((int(size), *gradient.shape[1:]), gradient.dtype)
        return zeros.at[indices].add(rows, mode="drop")

    return run


def _shifted(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any) -> Any:
        x, y = jnp.asarray(x), jnp.asarray(y)
        bits = 8 * x.dtype.itemsize
        return function(x, jnp.clip(y, 0, bits - 1))

    return run


def _divided(function: Callable[..., Any]) -> Callable[..., Any]:
    """A division of integers, which must not be by 0."""

    def run(x: Any, y: Any) -> Any:
        x, y = jnp.asarray(x), jnp.asarray(y)
        check(jnp.any(y == 0))
        shape = jnp.broadcast_shapes(x.shape, y.shape)
        return function(
            jnp.broadcast_to(x, shape), jnp.broadcast_to(jnp.where(y == 0, 1, y), shape)
        )

    return run


def _truncated_remainder(x: Any, y: Any) -> Any:
    x, y = jnp.asarray(x), jnp.asarray(y)
    if jnp.issubdtype(y.dtype, jnp.integer):
        check(jnp.any(y == 0))
        y = jnp.where(y == 0, 1, y)
    return jnp.fmod(x, y)


def _unique_rows(x: Any, *, out_idx: Any) -> tuple[Any, Any, Any]:
    """The distinct elements in order of their first places, then zeros; where each element is among
    them; and how many there are.
    """
    x = jnp.asarray(x)
    count = len(x)
    order = jnp.argsort(x, stable=True)
    ordered = x[order]
    begins = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    groups = jnp.cumsum(begins) - 1  # of the ordered elements
    firsts = jnp.full(count, count).at[groups].min(order)  # the first place of each group
    ranks = jnp.argsort(jnp.argsort(firsts, stable=True), stable=True)
    positions = jnp.zeros(count, np.int64).at[order].set(ranks[groups])
    number = groups[-1] + 1
    rows = jnp.zeros_like(x).at[positions].set(x)
    return rows, positions.astype(out_idx.numpy), number.astype(np.int64)


KERNELS: dict[str, Callable[..., Any]] = {
    "Assert": _assert,
    "Bitcast": lambda x, *, type: jax.lax.bitcast_convert_type(jnp.asarray(x), type.numpy),
    "Bucketize": _bucketize,
    "CheckNumerics": _check_numerics,
    "Div": _divided(jax.lax.div),
    "FloorDiv": _divided(jnp.floor_divide),
    "FloorMod": _divided(jnp.remainder),
    "InTopK": lambda predictions, targets, *, k: _in_top_k(predictions, targets, k),
    "InTopKV2": _in_top_k,
    "LeftShift": _shifted(jnp.left_shift),
    "Mod": _truncated_remainder,
    "RightShift": _shifted(jnp.right_shift),
    "SparseReduceSum": _sparse_reduce_sum,
    "SparseReorder": _sparse_reorder,
    "SparseReshape": _sparse_reshape,
    "SparseSegmentMeanGrad": _segment_gradient(False),
    "SparseSegmentSqrtNGrad": _segment_gradient(True),
    "SparseTensorDenseMatMul": _sparse_product,
    "SparseToDense": _sparse_to_dense,
    "TruncateDiv": _divided(jax.lax.div),
    "TruncateMod": _truncated_remainder,
    "UnsortedSegmentMax": _segments("max"),
    "UnsortedSegmentMin": _segments("min"),
    "UnsortedSegmentProd": _segments("prod"),
    "_UniqueRows": _unique_rows,
}
