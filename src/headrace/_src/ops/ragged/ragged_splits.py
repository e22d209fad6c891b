"""Row splits and segment ids: two ways to say which values belong to a row."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "check_axis",
    "count_splits",
    "is_index_type",
    "row_splits_to_segment_ids",
    "segment_ids_to_row_splits",
]


def is_index_type(dtype: Any) -> bool:
    """Return whether row splits may have this type."""
    return as_dtype(dtype).base_dtype in (dtypes.int32, dtypes.int64)


def check_axis(axis: int, rank: int | None) -> int:
    """Return a non-negative axis; ValueError if it is out of bounds."""
    if rank is None:
        if axis < 0:
            raise ValueError("axis may only be negative if ndims is statically known.")
        return axis
    if not -rank <= axis < rank:
        raise ValueError(f"axis={axis} out of bounds: expected {-rank}<=axis<{rank}")
    return axis % rank


def count_splits(ids: Tensor, rows: Tensor | None, dtype: Any) -> Tensor:
    """Return the row splits of sorted row numbers."""
    numbers = b.cast_op(ids, DstT=dtypes.int32)
    count = None if rows is None else b.cast_op(rows, DstT=dtypes.int32)
    return _counted(numbers, count, dtype)


def _counted(numbers: Tensor, count: Tensor | None, dtype: Any) -> Tensor:
    lengths = b.bincount(numbers, minlength=count, maxlength=count, dtype=dtype)
    return b.concat([[0], b.cumsum(lengths)], axis=0)


@composed
@export("ragged.row_splits_to_segment_ids")
def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """Return the row of each value, for row i from splits[i] to splits[i + 1].

    out_type: int32 or int64, by default the type of the splits.
    """
    with name_scope(name, "RaggedSplitsToSegmentIds", [splits]):
        splits = convert_to_tensor(splits, dtype_hint=dtypes.int64, name="splits")
        if not is_index_type(splits.dtype):
            raise ValueError("splits must have dtype int32 or int64")
        splits.shape.assert_has_rank(1)
        lengths = splits[1:] - splits[:-1]
        rows = b.shape(splits, out_type=out_type or splits.dtype.base_dtype)[-1] - 1
        return b.repeat(b.range(rows), repeats=lengths, axis=0)


@composed
@export("ragged.segment_ids_to_row_splits")
def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Tensor:
    """Return the row splits of sorted segment ids.

    num_segments: the number of rows, by default the last id + 1. out_type: int32 or int64, by
    default the type of the tensors given, or int64.
    """
    if out_type is None:
        given = [t for t in (segment_ids, num_segments) if isinstance(t, Tensor)]
        out_type = given[0].dtype.base_dtype if given else dtypes.int64
    with name_scope(name, "SegmentIdsToRaggedSplits", [segment_ids]):
        segment_ids = convert_to_tensor(segment_ids, dtype_hint=dtypes.int32, name="segment_ids")
        segment_ids.shape.assert_has_rank(1)
        if not (is_index_type(segment_ids.dtype) or segment_ids.shape.num_elements() == 0):
            raise ValueError("segment_ids must have dtype int32 or int64")
        numbers = b.cast_op(segment_ids, DstT=dtypes.int32)
        count = None
        if num_segments is not None:
            rows = convert_to_tensor(num_segments, dtype_hint=dtypes.int32, name="num_segments")
            rows.shape.assert_has_rank(0)
            count = b.cast_op(rows, DstT=dtypes.int32)
        return _counted(numbers, count, as_dtype(out_type))
