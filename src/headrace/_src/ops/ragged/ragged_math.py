"""Reductions and segments of ragged tensors: each is a segment op on the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.ragged.ragged_conversion import convert_to_tensor_or_ragged_tensor
from headrace._src.ops.ragged.ragged_rows import after, assert_splits_match
from headrace._src.ops.ragged.ragged_splits import check_axis
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["REDUCTIONS", "SEGMENTS", "ragged_reduce_join"]


# -- Segments --------------------------------------------------------------------------------------


def _segment(build: Callable[..., Any], data: Any, ids: Any, count: Any) -> Any:
    """Combine the rows of `data` with the same segment id, element by element.

    Elements at the same place of their rows are combined, so a result's row is as long as the
    longest of its segment.
    """
    if isinstance(ids, RaggedTensor):
        if not isinstance(data, RaggedTensor):
            raise ValueError(
                "segment_ids.shape must be a prefix of data.shape, but segment_ids is ragged and "
                "data is not."
            )
        message = "segment_ids.shape must be a prefix of data.shape"
        checks = assert_splits_match([(data.row_splits,), (ids.row_splits,)], message)
        return _segment(build, after(checks, data.values), ids.values, count)
    if not isinstance(data, RaggedTensor):
        return build(data, ids, count)
    ids.shape.assert_has_rank(1)
    kind = data.row_splits.dtype.base_dtype
    lengths = data.row_lengths()
    longest = b.maximum(b.unsorted_segment_max(lengths, ids, count), 0)
    splits = b.concat([b.zeros([1], kind), b.cumsum(longest)], axis=0)
    starts = b.gather(splits, ids)
    places = b.ragged_range_op(starts, starts + lengths, 1, kind).rt_dense_values
    values = _segment(build, data.values, places, splits[-1])
    return RaggedTensor.from_row_splits(values, splits, validate=False)


def _combining(name: str) -> Callable[..., Any]:
    """The function that combines segments by an op on tensors."""
    builder = f"unsorted_segment_{name}"

    def combine(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Any:
        with name_scope(name, "RaggedSegment"):
            data = convert_to_tensor_or_ragged_tensor(data, name="data")
            ids = convert_to_tensor_or_ragged_tensor(segment_ids, name="segment_ids")
            return _segment(getattr(b, builder), data, ids, num_segments)

    return combine


def _averaging(scope: str, divisor: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """The function that divides the sum of a segment by something of the number of its terms."""

    def combine(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Any:
        with name_scope(name, scope):
            data = convert_to_tensor_or_ragged_tensor(data, name="data")
            total = SEGMENTS["unsorted_segment_sum"](data, segment_ids, num_segments)
            terms = SEGMENTS["unsorted_segment_sum"](_ones(data), segment_ids, num_segments)
            return _quotient(total, _map_flat(divisor, terms))

    return combine


def _ones(rt: Any) -> Any:
    return _map_flat(lambda x: b.ones_like(x), rt)


def _quotient(total: Any, terms: Any) -> Any:
    if isinstance(total, RaggedTensor):
        return total.with_flat_values(total.flat_values / terms.flat_values)
    return total / terms


def _map_flat(function: Callable[..., Any], value: Any) -> Any:
    if isinstance(value, RaggedTensor):
        return value.with_flat_values(function(value.flat_values))
    return function(value)


SEGMENTS: dict[str, Callable[..., Any]] = {
    "unsorted_segment_sum": _combining("sum"),
    "unsorted_segment_prod": _combining("prod"),
    "unsorted_segment_min": _combining("min"),
    "unsorted_segment_max": _combining("max"),
    "unsorted_segment_mean": _averaging("RaggedSegmentMean", lambda n: n),
    "unsorted_segment_sqrt_n": _averaging("RaggedSegmentSqrtN", lambda n: b.sqrt(n)),
}


# -- Reductions ------------------------------------------------------------------------------------


def _reduce(rt: Any, axis: Any, whole: Callable[..., Tensor], build: Callable[..., Any]) -> Any:
    """Reduce a tensor or a ragged tensor over an axis, or a list of axes.

    whole: reduces a tensor over an axis. build: reduces the segments of a tensor.
    """
    if not isinstance(rt, RaggedTensor):
        return whole(rt, axis)
    if axis is None:
        return whole(rt.flat_values, None)
    if isinstance(axis, list | tuple):
        axes = sorted({check_axis(int(a), rt.shape.ndims) for a in axis}, reverse=True)
        for one in axes:  # the inner ones first, so that the others keep their numbers
            rt = _reduce(rt, one, whole, build)
        return rt
    axis = check_axis(int(axis), rt.shape.ndims)
    if axis == 0:
        lengths = rt.row_lengths()
        columns = b.ragged_range_op(
            b.zeros_like(lengths), lengths, 1, rt.row_splits.dtype.base_dtype
        ).rt_dense_values
        return _segment(build, rt.values, columns, b.maximum(b.reduce_max(lengths), 0))
    if axis == 1:
        return _segment(build, rt.values, rt.value_rowids(), rt.nrows())
    return rt.with_values(_reduce(rt.values, axis - 1, whole, build))


def _known_axis(axis: Any) -> Any:
    if isinstance(axis, Tensor):
        value = constant_value(axis)
        if value is None:
            raise ValueError("axis must be known at graph construction time.")
        return value.tolist()
    return axis.tolist() if isinstance(axis, np.ndarray | np.generic) else axis


def _reduction(scope: str, apply: Callable[[RaggedTensor, Any], Any]) -> Callable[..., Any]:
    """The function with the arguments of tf.reduce_sum."""

    def reduce(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Any:
        axis = _known_axis(renamed_argument("axis", axis, "reduction_indices", reduction_indices))
        if renamed_argument("keepdims", keepdims, "keep_dims", keep_dims):
            raise ValueError("keepdims=True is not supported for RaggedTensors.")
        rt = convert_to_tensor_or_ragged_tensor(input_tensor, name="rt_input")
        with name_scope(name, scope, rt.components()):
            return apply(rt, axis)

    return reduce


def _plainly(name: str) -> Callable[[RaggedTensor, Any], Any]:
    """The reduction by an op on tensors and its counterpart for segments."""

    def apply(rt: RaggedTensor, axis: Any) -> Any:
        whole, segments = getattr(b, f"reduce_{name}"), getattr(b, f"unsorted_segment_{name}")
        return _reduce(rt, axis, lambda x, at: whole(x, at), segments)

    return apply


_sum, _prod = _plainly("sum"), _plainly("prod")


def _mean(rt: RaggedTensor, axis: Any) -> Any:
    return _quotient(_sum(rt, axis), _sum(_ones(rt), axis))


def _logical(reduce: Callable[[RaggedTensor, Any], Any]) -> Callable[[RaggedTensor, Any], Any]:
    """The logical reduction that the arithmetic one of zeros and ones is."""

    def apply(rt: RaggedTensor, axis: Any) -> Any:
        bits = _map_flat(lambda x: b.cast(b.cast(x, dtypes.bool), dtypes.int32), rt)
        return _map_flat(lambda x: b.cast(x, dtypes.bool), reduce(bits, axis))

    return apply


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": _reduction("RaggedReduceSum", _sum),
    "reduce_prod": _reduction("RaggedReduceProd", _prod),
    "reduce_min": _reduction("RaggedReduceMin", _plainly("min")),
    "reduce_max": _reduction("RaggedReduceMax", _plainly("max")),
    "reduce_mean": _reduction("RaggedReduceMean", _mean),
    "reduce_any": _reduction("RaggedReduceAny", _logical(_sum)),
    "reduce_all": _reduction("RaggedReduceAll", _logical(_prod)),
}


def ragged_reduce_join(
    inputs: Any,
    axis: Any = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: Any = None,
    keepdims: bool | None = None,
) -> Any:
    """Join the strings of a ragged tensor along an axis, with the arguments of tf.reduce_join."""

    def join(rt: RaggedTensor, axis: Any) -> Any:
        return _reduce(
            rt,
            axis,
            lambda x, at: b.reduce_join(x, at, separator=separator),
            lambda x, ids, count: b.unsorted_segment_join(x, ids, count, separator),
        )

    reduce = _reduction("RaggedReduceJoin", join)
    return reduce(inputs, axis, keepdims, name, reduction_indices, keep_dims)
