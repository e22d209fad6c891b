"""Reductions of a tensor's rows by segment: `output[k]` reduces the rows whose segment id is k.

Sorted segments start anywhere and may leave gaps; unsorted ones have a given count, and rows with
negative ids are dropped. All kernels group the rows of each segment and reduce them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Precision, RowPart, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import row_anchors
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.array.group_by_key import add_rows, reduce_rows
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.sum_precision import lowest, widened

__all__ = ["checked_segments", "segment_rows", "unsorted_segment_mean", "unsorted_segment_sqrt_n"]


# Kernels


def segment_rows(reduce: Any, rows: Any, ids: Any, count: int, default: Any) -> Any:
    """Reduce the rows of each id in [0, count) by a ufunc; `default` for ids without rows."""
    check_room((count, *rows.shape[1:]), rows.dtype, "the number of segments")
    result = np.full((count, *rows.shape[1:]), default, rows.dtype)
    if not (ids.size and result.size):
        return result
    if reduce is np.add:
        add_rows(result, ids, widened(rows))
    else:
        reduce_rows(reduce, widened(rows), ids, result)
    return result


def checked_segments(ids: Any, rows: int) -> int:
    """Check that there is one sorted segment id per row, and return the number of segments."""
    if np.ndim(ids) != 1:
        raise ValueError("segment_ids should be a vector.")
    if len(ids) != rows:
        raise ValueError("segment_ids should be the same size as dimension 0 of input.")
    if not len(ids):
        return 0
    if np.any(ids[1:] < ids[:-1]):
        raise ValueError("segment ids are not increasing")
    if ids[0] < 0:
        raise ValueError(
            f"Segment id {ids[0]} out of range [0, {ids[-1] + 1}), possibly because 'segment_ids' "
            "input is not sorted."
        )
    return int(ids[-1]) + 1


def counts_of(ids: Any, count: int, rank: int) -> Any:
    """Return how many rows each segment has, shaped to divide rows of that rank."""
    return np.bincount(ids, minlength=count).reshape(count, *[1] * (rank - 1))


def _sorted_kernel(reduce: Any, default: Any) -> Callable[..., Any]:
    def kernel(data: Any, ids: Any) -> Any:
        _require_rows(data)
        return segment_rows(reduce, data, ids, checked_segments(ids, len(data)), default)

    return kernel


def _require_rows(data: Any) -> None:
    if not np.ndim(data):
        raise ValueError("data must be at least rank 1")


def _segment_mean(data: Any, ids: Any) -> Any:
    _require_rows(data)
    count = checked_segments(ids, len(data))
    wide = data.astype(np.int64) if data.dtype.kind in "iu" else widened(data)
    sums = segment_rows(np.add, wide, ids, count, 0)
    sizes = np.maximum(counts_of(ids, count, np.ndim(data)), 1)
    if data.dtype.kind in "iu":
        return (np.sign(sums) * (np.abs(sums) // sizes)).astype(data.dtype)
    return (sums / sizes.astype(wide.dtype)).astype(data.dtype)


def _unsorted_kernel(reduce: Any, default: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    def kernel(data: Any, ids: Any, num_segments: Any) -> Any:
        count = _checked_count(num_segments)
        if data.shape[: np.ndim(ids)] != np.shape(ids):
            raise ValueError(
                f"data.shape = {list(data.shape)} does not start with segment_ids.shape = "
                f"{list(np.shape(ids))}"
            )
        rows, ids = data.reshape(ids.size, *data.shape[np.ndim(ids) :]), np.ravel(ids)
        if ids.size and ids.max() >= count:
            where = int(np.argmax(ids >= count))
            raise ValueError(f"segment_ids[{where}] = {ids[where]} is out of range [0, {count})")
        if ids.size and ids.min() < 0:
            inside = np.flatnonzero(ids >= 0)
            rows, ids = rows[inside], ids[inside]
        return segment_rows(reduce, rows, ids, count, default(data.dtype))

    return kernel


def _checked_count(num_segments: Any) -> int:
    if np.ndim(num_segments):
        raise ValueError(f"num_segments should be a scalar, not shape {np.shape(num_segments)}")
    if num_segments < 0:
        raise ValueError(f"Input num_segments == {num_segments} must not be negative.")
    return int(num_segments)


def _highest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else -lowest(dtype)


# Shapes


def _sorted_infer(c: Any, data: TensorShape, ids: TensorShape) -> Any:
    ids.assert_has_rank(1)
    sizes = data.with_rank_at_least(1).sizes
    if sizes is None:
        return None
    known = c.value(1) if c.settled else None
    count = None if known is None else int(known[-1]) + 1 if known.size else 0
    return (count if count is None or count >= 0 else None, *sizes[1:])


def _unsorted_infer(c: Any, data: TensorShape, ids: TensorShape, count: TensorShape) -> Any:
    count.assert_has_rank(0)
    if data.sizes is None or ids.sizes is None:
        return None
    rank = len(ids.sizes)
    prefix = data.with_rank_at_least(rank)[:rank]
    prefix.assert_is_compatible_with(ids)
    known = c.value(2)
    if known is not None and known < 0:
        raise ValueError(
            f"Dimension size, given by scalar input 2, must be non-negative but is {known}"
        )
    return (None if known is None else int(known), *data.sizes[rank:])


# Gradients


def _sum_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    return b.gather(dy, op.inputs[1]), None


def _mean_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    data, ids = op.inputs
    shape = b.concat([b.shape(ids), b.fill(b.expand_dims(b.rank(data) - 1, 0), 1)], 0)
    counts = b.segment_sum(b.fill(shape, b.constant(1, dy.dtype.base_dtype)), ids)
    return b.gather(b.div_no_nan(dy, counts), ids), None


def _extreme_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """Send dy to the elements that are the extreme of their segment, in equal shares."""
    data, ids = op.inputs
    chosen = b.equal(data, b.gather(op.outputs[0], ids))
    counts = b.segment_sum(b.cast(chosen, dy.dtype.base_dtype), ids)
    share = b.gather(b.div_no_nan(dy, counts), ids)
    return b.where(chosen, share, b.zeros_like(share)), None


def _others_product(b: OpBuilder, data: Tensor, product: Any, total: Any, spread: Any) -> Tensor:
    """Return, for each element, the product of the others in its segment, even if some are 0."""
    zero = b.equal(data, b.zeros_like(data))
    whole = b.where(zero, b.ones_like(data), data)
    rest = b.realdiv(spread(product(whole)), whole)
    ones = b.cast(zero, "int32")
    other_zeros = b.greater(b.subtract(spread(total(ones)), ones), 0)
    return b.where(other_zeros, b.zeros_like(rest), rest)


def _prod_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    data, ids = op.inputs
    rest = _others_product(
        b,
        data,
        lambda x: b.segment_prod(x, ids),
        lambda x: b.segment_sum(x, ids),
        lambda x: b.gather(x, ids),
    )
    return b.multiply(b.gather(dy, ids), b.conj(rest)), None


def _spread(b: OpBuilder, rows: Tensor, ids: Tensor) -> Tensor:
    """Return the row of each element's segment; zeros for elements that belong to none."""
    inside = b.greater_equal(ids, b.zeros_like(ids))
    found = b.gather(rows, b.maximum(ids, b.zeros_like(ids)))
    extra = b.fill(b.expand_dims(b.rank(found) - b.rank(ids), 0), 1)
    inside = b.reshape(inside, b.concat([b.shape(inside), extra], 0))
    inside = b.logical_and(inside, b.ones_like(found, dtype="bool"))
    return b.where(inside, found, b.zeros_like(found))


def _rank_nodes(op: Any) -> int:
    """TensorFlow expands one dimension at a time, until the ids have the rank of the data."""
    ranks = [t.shape.ndims for t in op.inputs[:2]]
    return 0 if None in ranks else 2 * (ranks[0] - ranks[1])


@counted(lambda op, dy: 12 + _rank_nodes(op))
def _unsorted_sum_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    return _spread(b, dy, op.inputs[1]), None, None


@counted(lambda op, dy: 23 + _rank_nodes(op))
def _unsorted_extreme_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    data, ids, count = op.inputs
    same = b.equal(data, _spread(b, op.outputs[0], ids))
    counts = b.unsorted_segment_sum(b.cast(same, dy.dtype.base_dtype), ids, count)
    share = _spread(b, b.div_no_nan(dy, counts), ids)
    return b.where(same, share, b.zeros_like(share)), None, None


@counted(lambda op, dy: 32 + _rank_nodes(op))
def _unsorted_prod_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    data, ids, count = op.inputs
    rest = _others_product(
        b,
        data,
        lambda x: b.unsorted_segment_prod(x, ids, count),
        lambda x: b.unsorted_segment_sum(x, ids, count),
        lambda x: _spread(b, x, ids),
    )
    return b.multiply(_spread(b, dy, ids), b.conj(rest)), None, None


# Ops


def _sorted_op(
    op_type: str,
    types: str,
    kernel: Callable[..., Any],
    gradient: Any,
    precision: Precision | None = None,
) -> Any:
    return define(
        op_type,
        "data: T, segment_ids: Tindices -> output: T",
        f"T: {types}; Tindices: {{index}}",
        infer=_sorted_infer,
        kernel=kernel,
        gradient=gradient,
        samples=[
            Sample(r(4, 2), [0, 0, 1, 1]),
            Sample(r(3), [1, 1, 3]),
            Sample(r(2, 2, 2), [0, 0]),
            Sample(r(0, 2), []),
        ],
        precision=precision,
    )


@export("segment_sum", "math.segment_sum")
@_sorted_op(
    "SegmentSum", "{numbers}", _sorted_kernel(np.add, 0), _sum_gradient, precision=Precision.WIDE
)
def segment_sum(data, segment_ids, name=None):
    """Return the sum of each segment's rows.

    segment_ids: the segment of each row of data, sorted.
    """


@export("segment_mean", "math.segment_mean")
@_sorted_op("SegmentMean", "{numbers}", _segment_mean, _mean_gradient)
def segment_mean(data, segment_ids, name=None):
    """Return the mean of each segment's rows.

    segment_ids: the segment of each row of data, sorted.
    """


@export("segment_max", "math.segment_max")
@_sorted_op("SegmentMax", "{reals}", _sorted_kernel(np.maximum, 0), _extreme_gradient)
def segment_max(data, segment_ids, name=None):
    """Return the largest elements of each segment's rows; 0 for a segment without any.

    segment_ids: the segment of each row of data, sorted.
    """


@export("segment_min", "math.segment_min")
@_sorted_op("SegmentMin", "{reals}", _sorted_kernel(np.minimum, 0), _extreme_gradient)
def segment_min(data, segment_ids, name=None):
    """Return the smallest elements of each segment's rows; 0 for a segment without any.

    segment_ids: the segment of each row of data, sorted.
    """


@export("segment_prod", "math.segment_prod")
@_sorted_op("SegmentProd", "{numbers}", _sorted_kernel(np.multiply, 1), _prod_gradient)
def segment_prod(data, segment_ids, name=None):
    """Return the product of each segment's rows; 1 for a segment without any.

    segment_ids: the segment of each row of data, sorted.
    """


_FULL = [Sample(r(4, 2), [1, 0, 1, 0], 2), Sample(r(3), [1, -1, 0], 2)]
_WITH_GAPS = [
    Sample(r(4, 2), [2, 0, 2, 0], 3),
    Sample(r(2, 2, 2), [[0, 1], [1, 1]], 2),
    Sample(r(2, 0), [0, 1], 2),
]
# The extreme of an empty segment is so low or high that finite differences lose all precision.
_EXTREMES = _FULL + typed(_WITH_GAPS, "float32", "int32")


def _unsorted_op(
    op_type: str,
    types: str,
    kernel: Callable[..., Any],
    gradient: Any,
    samples: list[Sample],
    lower: Anchor | None = None,
    precision: Precision | None = None,
    rows: RowPart | None = None,
) -> Any:
    return define(
        op_type,
        "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T",
        f"T: {types}; Tindices: {{index}}; Tnumsegments: {{index}} = int32",
        infer=_unsorted_infer,
        kernel=kernel,
        gradient=gradient,
        samples=samples,
        lower=lower,
        precision=precision,
        rows=rows,
    )


def _constant(value: int) -> Callable[[np.dtype], int]:
    return lambda dtype: value


@export("unsorted_segment_sum", "math.unsorted_segment_sum")
@_unsorted_op(
    "UnsortedSegmentSum",
    "{numbers}",
    _unsorted_kernel(np.add, _constant(0)),
    _unsorted_sum_gradient,
    _FULL + _WITH_GAPS,
    lower=Anchor("segment_sum", row_anchors.segment_sum),
    precision=Precision.WIDE,
    rows=RowPart.SUMS,
)
def unsorted_segment_sum(data, segment_ids, num_segments, name=None):
    """Return the sum of each segment's rows.

    segment_ids: the segment of each row of data, in any order; negative ids are dropped.
    num_segments: the number of results.
    """


@export("unsorted_segment_max", "math.unsorted_segment_max")
@_unsorted_op(
    "UnsortedSegmentMax",
    "{reals}",
    _unsorted_kernel(np.maximum, lowest),
    _unsorted_extreme_gradient,
    _EXTREMES,
)
def unsorted_segment_max(data, segment_ids, num_segments, name=None):
    """Return the largest elements of each segment's rows; the lowest number if there are none.

    segment_ids: the segment of each row of data, in any order; negative ids are dropped.
    num_segments: the number of results.
    """


@export("unsorted_segment_min", "math.unsorted_segment_min")
@_unsorted_op(
    "UnsortedSegmentMin",
    "{reals}",
    _unsorted_kernel(np.minimum, _highest),
    _unsorted_extreme_gradient,
    _EXTREMES,
)
def unsorted_segment_min(data, segment_ids, num_segments, name=None):
    """Return the smallest elements of each segment's rows; the highest number if there are none.

    segment_ids: the segment of each row of data, in any order; negative ids are dropped.
    num_segments: the number of results.
    """


@export("unsorted_segment_prod", "math.unsorted_segment_prod")
@_unsorted_op(
    "UnsortedSegmentProd",
    "{numbers}",
    _unsorted_kernel(np.multiply, _constant(1)),
    _unsorted_prod_gradient,
    _FULL + _WITH_GAPS,
)
def unsorted_segment_prod(data, segment_ids, num_segments, name=None):
    """Return the product of each segment's rows.

    segment_ids: the segment of each row of data, in any order; negative ids are dropped.
    num_segments: the number of results.
    """


# Public functions


def _segment_sizes(data: Tensor, ids: Tensor, num_segments: Any) -> Tensor:
    """Return how many elements each segment has, at least 1, shaped to divide its rows."""
    if data.shape.ndims is None or ids.shape.ndims is None:
        raise ValueError("the ranks of data and segment_ids must be known statically")
    ones = b.ones(b.shape(ids), dtype=data.dtype.base_dtype)
    sizes = unsorted_segment_sum(ones, ids, num_segments)
    inner = [1] * (data.shape.ndims - ids.shape.ndims)
    return b.maximum(b.reshape(sizes, [num_segments, *inner]), 1)


@composed
@dispatched
@export("unsorted_segment_mean", "math.unsorted_segment_mean")
def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the mean of each segment's rows; 0 for a segment without any.

    segment_ids: the segment of each row of data, in any order; negative ids are dropped.
    num_segments: the number of results.
    """
    with name_scope(name, "UnsortedSegmentMean", [data, segment_ids]):
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        sizes = _segment_sizes(data, ids, num_segments)
        return unsorted_segment_sum(data, ids, num_segments) / sizes


@composed
@dispatched
@export("unsorted_segment_sqrt_n", "math.unsorted_segment_sqrt_n")
def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the sum of each segment's rows divided by the square root of their number.

    segment_ids: the segment of each row of data, in any order; negative ids are dropped.
    num_segments: the number of results.
    """
    with name_scope(name, "UnsortedSegmentSqrtN", [data, segment_ids]):
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        sizes = _segment_sizes(data, ids, num_segments)
        return unsorted_segment_sum(data, ids, num_segments) / b.sqrt(sizes)
