"""Reductions of selected rows by segment.

`output[k]` reduces the rows `data[indices[i]]` for all i whose segment id is k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.math.segment_ops import checked_segments, counts_of, segment_rows

__all__ = ["sparse_segment_mean", "sparse_segment_sqrt_n", "sparse_segment_sum"]

# How the sum of n rows is scaled.
_Scale = Callable[[Any], Any] | None


def _checked_indices(indices: Any, rows: int) -> None:
    if np.ndim(indices) != 1:
        raise ValueError("indices should be a vector.")
    outside = np.flatnonzero((indices < 0) | (indices >= rows))
    if outside.size:
        i = outside[0]
        raise ValueError(f"Bad: indices[{i}] == {indices[i]} out of range [0, {rows})")


def _kernel(scale: _Scale) -> Callable[..., Any]:
    def kernel(data: Any, indices: Any, ids: Any, num_segments: Any = None) -> Any:
        if not np.ndim(data):
            raise ValueError("data must be at least rank 1")
        _checked_indices(indices, len(data))
        count = checked_segments(ids, len(indices))
        if num_segments is not None:
            if np.ndim(num_segments) or num_segments < 0:
                raise ValueError(f"num_segments must be a scalar >= 0, not {num_segments}")
            if count > num_segments:
                raise ValueError("segment ids must be < num_segments")
            count = int(num_segments)
        sums = segment_rows(np.add, data[indices], ids, count, 0)
        if scale is not None:
            sums /= scale(np.maximum(counts_of(ids, count, data.ndim), 1)).astype(data.dtype)
        return sums

    return kernel


def _grad_kernel(scale: Callable[[Any], Any]) -> Callable[..., Any]:
    def kernel(grad: Any, indices: Any, ids: Any, output_dim0: Any) -> Any:
        if np.ndim(output_dim0) or output_dim0 < 0:
            raise ValueError(f"output_dim0 must be a scalar >= 0, not {output_dim0}")
        rows = int(output_dim0)
        _checked_indices(indices, rows)
        if checked_segments(ids, len(indices)) > len(grad):
            raise ValueError(f"Segment id {ids[-1]} out of range [0, {len(grad)}).")
        sizes = scale(np.maximum(counts_of(ids, len(grad), grad.ndim), 1)).astype(grad.dtype)
        return segment_rows(np.add, (grad / sizes)[ids], indices, rows, 0)

    return kernel


def _infer(c: Any, data: TensorShape, indices: TensorShape, ids: TensorShape) -> Any:
    indices.with_rank(1).merge_with(ids.with_rank(1))
    return TensorShape((None,)).concatenate(data.with_rank_at_least(1)[1:])


def _counted_infer(
    c: Any, data: TensorShape, indices: TensorShape, ids: TensorShape, count: TensorShape
) -> Any:
    count.assert_has_rank(0)
    _infer(c, data, indices, ids)
    if data.sizes is None:
        return None
    known = c.value(3)
    if known is not None and known < 0:
        raise ValueError("Cannot specify a negative value for num_segments")
    return (None if known is None else int(known), *data.sizes[1:])


def _gradient(scaled: str | None) -> Callable[..., Any]:
    """Spread dy over the selected rows; `scaled` names the op that does so for scaled sums."""

    def gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
        data, indices, ids = op.inputs[:3]
        rows = b.shape(data)[0]
        if scaled is None:
            spread = b.unsorted_segment_sum(b.gather(dy, ids), indices, rows)
        else:
            spread = getattr(b, scaled)(dy, indices, ids, rows)
        return [spread] + [None] * (len(op.inputs) - 1)

    return gradient


def _grad_gradient(forward: str) -> Callable[..., Any]:
    def gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
        grad, indices, ids, _ = op.inputs
        return getattr(b, forward)(dz, indices, ids, b.shape(grad)[0]), None, None, None

    return gradient


_TWO = "{float32|float64}"


def _plain_op(op_type: str, types: str, scale: _Scale, scaled: str | None) -> Any:
    return define(
        op_type,
        "data: T, indices: Tidx, segment_ids: int32 -> output: T",
        f"T: {types}; Tidx: {{index}} = int32",
        infer=_infer,
        kernel=_kernel(scale),
        gradient=_gradient(scaled),
        samples=[
            Sample(r(4, 2), [3, 0, 0], [0, 0, 2]),
            Sample(r(3), [1, 2], [0, 1]),
            Sample(r(2, 2), [], []),
        ],
    )


def _counted_op(op_type: str, types: str, scale: _Scale, scaled: str | None) -> Any:
    return define(
        op_type,
        "data: T, indices: Tidx, segment_ids: int32, num_segments: Tnumsegments -> output: T",
        f"T: {types}; Tidx: {{index}} = int32; Tnumsegments: {{index}} = int32",
        infer=_counted_infer,
        kernel=_kernel(scale),
        gradient=_gradient(scaled),
        samples=[Sample(r(4, 2), [3, 0, 0], [0, 0, 2], 4), Sample(r(3), [1, 2], [0, 1], 2)],
    )


def _grad_op(op_type: str, scale: Callable[[Any], Any], forward: str) -> Any:
    return define(
        op_type,
        "grad: T, indices: Tidx, segment_ids: int32, output_dim0: int32 -> output: T",
        f"T: {_TWO}; Tidx: {{index}} = int32",
        infer=_counted_infer,
        kernel=_grad_kernel(scale),
        gradient=_grad_gradient(forward),
        samples=[Sample(r(3, 2), [3, 0, 0], [0, 0, 2], 4), Sample(r(2), [1, 2], [0, 1], 3)],
    )


@_plain_op("SparseSegmentSum", "{reals}", None, None)
def sparse_segment_sum_op(data, indices, segment_ids, name=None):
    """Return the sum of each segment's selected rows."""


@_counted_op("SparseSegmentSumWithNumSegments", "{reals}", None, None)
def sparse_segment_sum_with_num_segments(data, indices, segment_ids, num_segments, name=None):
    """Return the sum of each segment's selected rows, for a given number of segments."""


@_plain_op("SparseSegmentMean", _TWO, np.asarray, "sparse_segment_mean_grad")
def sparse_segment_mean_op(data, indices, segment_ids, name=None):
    """Return the mean of each segment's selected rows."""


@_counted_op("SparseSegmentMeanWithNumSegments", _TWO, np.asarray, "sparse_segment_mean_grad")
def sparse_segment_mean_with_num_segments(data, indices, segment_ids, num_segments, name=None):
    """Return the mean of each segment's selected rows, for a given number of segments."""


@_plain_op("SparseSegmentSqrtN", _TWO, np.sqrt, "sparse_segment_sqrt_n_grad")
def sparse_segment_sqrt_n_op(data, indices, segment_ids, name=None):
    """Return the sum of each segment's selected rows divided by the square root of their number."""


@_counted_op("SparseSegmentSqrtNWithNumSegments", _TWO, np.sqrt, "sparse_segment_sqrt_n_grad")
def sparse_segment_sqrt_n_with_num_segments(data, indices, segment_ids, num_segments, name=None):
    """Return the scaled sum of each segment's selected rows, for a given number of segments."""


@_grad_op("SparseSegmentMeanGrad", np.asarray, "sparse_segment_mean_with_num_segments")
def sparse_segment_mean_grad(grad, indices, segment_ids, output_dim0, name=None):
    """Return the gradient of sparse_segment_mean for its data, which has `output_dim0` rows."""


@_grad_op("SparseSegmentSqrtNGrad", np.sqrt, "sparse_segment_sqrt_n_with_num_segments")
def sparse_segment_sqrt_n_grad(grad, indices, segment_ids, output_dim0, name=None):
    """Return the gradient of sparse_segment_sqrt_n for its data, which has `output_dim0` rows."""


def _either(
    plain: Any, counted: Any, data: Any, indices: Any, ids: Any, name: Any, count: Any
) -> Tensor:
    if count is None:
        return plain(data, indices, ids, name=name)
    return counted(data, indices, ids, count, name=name)


@composed
@export("sparse_segment_sum", "sparse.segment_sum")
def sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> Tensor:
    """Return the sum of each segment's selected rows.

    indices: the selected rows of `data`. segment_ids: their segments, sorted. num_segments: the
    number of segments, by default one more than the last id.
    """
    ops = sparse_segment_sum_op, sparse_segment_sum_with_num_segments
    return _either(*ops, data, indices, segment_ids, name, num_segments)


@composed
@export("sparse_segment_mean", "sparse.segment_mean")
def sparse_segment_mean(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> Tensor:
    """Return the mean of each segment's selected rows; the arguments are sparse_segment_sum's."""
    ops = sparse_segment_mean_op, sparse_segment_mean_with_num_segments
    return _either(*ops, data, indices, segment_ids, name, num_segments)


@composed
@export("sparse_segment_sqrt_n", "sparse.segment_sqrt_n")
def sparse_segment_sqrt_n(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> Tensor:
    """Return the sum of each segment's selected rows divided by the square root of their number."""
    ops = sparse_segment_sqrt_n_op, sparse_segment_sqrt_n_with_num_segments
    return _either(*ops, data, indices, segment_ids, name, num_segments)
