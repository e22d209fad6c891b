"""Composed statistics: log-sum-exp, variance, counts of zeros, confusion matrices."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.reduction_ops import all_axes, euclidean_norm, scalar_if_all

__all__ = ["confusion_matrix", "count_nonzero", "reduce_logsumexp", "reduce_variance"]


@composed
@export("reduce_logsumexp", "math.reduce_logsumexp")
def reduce_logsumexp(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return log(sum(exp(x))) over `axis` (all axes if None), without overflow."""
    axis = renamed_argument("axis", axis, "reduction_indices", reduction_indices)
    keepdims = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    input_tensor = convert_to_tensor(input_tensor)
    with name_scope(name, "ReduceLogSumExp", [input_tensor]):
        highest = b.reduce_max(input_tensor, axis=axis, keepdims=True)
        finite = b.where(b.is_finite(highest), highest, b.zeros_like(highest))
        shift = b.stop_gradient(finite)
        total = b.reduce_sum(b.exp(b.subtract(input_tensor, shift)), axis, keepdims=keepdims)
        result = b.log(total)
        if not keepdims:
            shift = b.reshape(shift, b.shape(result))
        return scalar_if_all(axis, keepdims, b.add(result, shift))


@composed
@export("math.reduce_variance")
def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Return the variance over `axis` (all axes if None)."""
    with name_scope(name or "reduce_variance"):
        means = b.reduce_mean(input_tensor, axis=axis, keepdims=True)
        squares = b.square(input_tensor - means)
        return b.reduce_mean(squares, axis=axis, keepdims=keepdims)


@composed
@export("math.reduce_std")
def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Return the standard deviation over `axis` (all axes if None)."""
    with name_scope(name or "reduce_std"):
        return b.sqrt(reduce_variance(input_tensor, axis=axis, keepdims=keepdims))


@composed
@export("math.reduce_euclidean_norm")
def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Return the Euclidean norm over `axis` (all axes if None)."""
    axes = all_axes(input_tensor, axis)
    result = euclidean_norm(input_tensor, axes, keep_dims=bool(keepdims), name=name)
    return scalar_if_all(axis, keepdims, result)


@composed
@export("count_nonzero", "math.count_nonzero")
def count_nonzero(
    input_tensor: Any = None,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = dtypes.int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
    input: Any = None,
) -> Tensor:
    """Return the number of elements over `axis` (all axes if None) that are not zero, False or
    empty.
    """
    keepdims = renamed_argument("keepdims", keepdims, "keep_dims", keep_dims)
    input_tensor = renamed_argument("input", input, "input_tensor", input_tensor)
    axis = renamed_argument("axis", axis, "reduction_indices", reduction_indices)
    with name_scope(name, "count_nonzero", [input_tensor]):
        x = convert_to_tensor(input_tensor, name="input")
        differs = b.not_equal(x, b.zeros([], dtype=x.dtype))
        counts = b.reduce_sum(b.cast(differs, dtypes.int64), axis=axis, keepdims=keepdims)
        return b.cast(counts, dtype=dtype)


def _nonzero_count(x: Tensor, dtype: Any) -> Tensor:
    with name_scope("count_nonzero", "count_nonzero", [x]):
        differs = b.not_equal(x, b.zeros([], dtype=x.dtype))
        return b.reduce_sum(b.cast(differs, dtype), name="nonzero_count")


@composed
@export("math.zero_fraction", "nn.zero_fraction")
def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """Return the fraction of the elements that are zero."""
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        size = b.size(value, out_type=dtypes.int64)
        # Count as TensorFlow does: in 32 bits where they suffice.
        nonzero = b.cond(
            b.less_equal(size, 2**31 - 1),
            lambda: b.cast(_nonzero_count(value, dtypes.int32), dtypes.int64),
            lambda: _nonzero_count(value, dtypes.int64),
        )
        with name_scope("counts_to_fraction"):
            zeros = b.cast(size - nonzero, dtypes.float32)
            fraction = zeros / b.cast(size, dtypes.float32)
        return b.identity(fraction, "fraction")


@composed
def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Drop a last dimension of size 1 from labels or predictions, if it has one dimension too many.

    expected_rank_diff: the expected rank of predictions minus that of labels.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        predictions = convert_to_tensor(predictions)
        labels = convert_to_tensor(labels)
        ranks = predictions.shape.ndims, labels.shape.ndims
        if None not in ranks:
            extra = ranks[0] - ranks[1]
            if extra == expected_rank_diff + 1 and _may_be_one(predictions):
                predictions = b.squeeze(predictions, [-1])
            elif extra == expected_rank_diff - 1 and _may_be_one(labels):
                labels = b.squeeze(labels, [-1])
            return labels, predictions
        extra = b.rank(predictions) - b.rank(labels)
        if ranks[0] is None or (ranks[0] > 0 and _may_be_one(predictions)):
            predictions = _squeezed_if(predictions, b.equal(expected_rank_diff + 1, extra))
        if ranks[1] is None or (ranks[1] > 0 and _may_be_one(labels)):
            labels = _squeezed_if(labels, b.equal(expected_rank_diff - 1, extra))
        return labels, predictions


def _may_be_one(x: Tensor) -> bool:
    return x.shape.sizes is not None and x.shape.sizes[-1] in (None, 1)


def _squeezed_if(x: Tensor, condition: Tensor) -> Tensor:
    shape = b.shape(x)
    return b.reshape(x, shape[: b.rank(x) - b.cast(condition, dtypes.int32)])


@composed
@export("confusion_matrix", "math.confusion_matrix", "contrib.metrics.confusion_matrix")
def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
    weights: Any = None,
) -> Tensor:
    """Return a matrix that counts (or sums weights of) label `row` with prediction `column`.

    labels and predictions: vectors of class indices. num_classes: the size of the matrix, by
    default one more than the largest index.
    """
    with name_scope(name, "confusion_matrix", [predictions, labels, num_classes, weights]):
        labels, predictions = remove_squeezable_dimensions(
            convert_to_tensor(labels, name="labels"),
            convert_to_tensor(predictions, name="predictions"),
        )
        predictions = b.cast(predictions, dtypes.int64)
        labels = b.cast(labels, dtypes.int64)
        labels = _not_negative(labels, "labels")
        predictions = _not_negative(predictions, "predictions")
        if num_classes is None:
            num_classes = b.maximum(b.reduce_max(predictions), b.reduce_max(labels)) + 1
        else:
            limit = b.cast(num_classes, dtypes.int64)
            labels = _below(labels, limit, "labels")
            predictions = _below(predictions, limit, "predictions")
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.shape.assert_is_compatible_with(weights.shape)
            weights = b.cast(weights, dtype)
        shape = b.stack([num_classes, num_classes])
        indices = b.stack([labels, predictions], axis=1)
        values = b.ones_like(predictions, as_dtype(dtype)) if weights is None else weights
        pairs = SparseTensor(indices, values, b.cast(shape, dtypes.int64))
        return b.sparse_add(b.zeros(b.cast(shape, dtypes.int32), as_dtype(dtype)), pairs)


def _not_negative(x: Tensor, what: str) -> Tensor:
    check = b.assert_non_negative(x, message=f"`{what}` contains negative values")
    return b.with_dependencies([check], x)


def _below(x: Tensor, limit: Tensor, what: str) -> Tensor:
    return b.with_dependencies([b.assert_less(x, limit, message=f"`{what}` out of bound")], x)
