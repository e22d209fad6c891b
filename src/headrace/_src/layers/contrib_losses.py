"""The losses of tf.contrib.losses (and tf.contrib.slim.losses): those of tf.losses with the
predictions first. Weights may leave out the last dimensions.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.layers import losses as kept
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["softmax_cross_entropy"]


def _spread(weights: Any, rank: int | None) -> Tensor:
    """Return weights with dimensions of size 1 appended for the missing ones."""
    weights = convert_to_tensor(weights)
    found = weights.shape.ndims
    if not found or rank is None:
        return weights
    for _ in range(rank - found):
        weights = b.expand_dims(weights, -1)
    return weights


def _rank(values: Any) -> int | None:
    return convert_to_tensor(values).shape.ndims


def _given(labels: Any) -> Any:
    if labels is None:
        raise ValueError("labels must be given.")
    return labels


@export("contrib.losses.absolute_difference", "contrib.slim.losses.absolute_difference")
def absolute_difference(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """Return the mean of |predictions - labels|."""
    weights = _spread(weights, _rank(predictions))
    return kept.absolute_difference(_given(labels), predictions, weights, scope)


@export("contrib.losses.mean_squared_error", "contrib.slim.losses.mean_squared_error")
def mean_squared_error(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """Return the mean of (predictions - labels)²."""
    weights = _spread(weights, _rank(predictions))
    return kept.mean_squared_error(_given(labels), predictions, weights, scope)


@export(
    "contrib.losses.mean_pairwise_squared_error", "contrib.slim.losses.mean_pairwise_squared_error"
)
def mean_pairwise_squared_error(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """Return, for each example, the mean of the squared differences between a pair's difference in
    predictions and in labels: over all pairs, including those of an element with itself, which
    tf.losses excludes.
    """
    with name_scope(scope, "mean_pairwise_squared_error", [predictions, _given(labels)]):
        predictions = b.cast(predictions, float32)
        error = predictions - b.cast(labels, float32)
        weights = b.cast(_spread(weights, error.shape.ndims), float32)
        axes = b.range(1, b.rank(error))
        count = kept.count_present(error, weights, per_batch=True)
        squares = b.reduce_sum(b.square(error), axis=axes, keepdims=True)
        total = b.square(b.reduce_sum(error, axis=axes, keepdims=True))
        losses = 2.0 * (b.div_no_nan(squares, count) - b.div_no_nan(total, b.square(count)))
        loss = b.reduce_sum(losses * weights, name="value")
        kept.add_loss(loss)
        return loss


@export("contrib.losses.log_loss", "contrib.slim.losses.log_loss")
def log_loss(
    predictions: Any,
    labels: Any = None,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
) -> Tensor:
    """Return the cross entropy of probabilities."""
    weights = _spread(weights, _rank(predictions))
    return kept.log_loss(_given(labels), predictions, weights, epsilon, scope)


@export("contrib.losses.cosine_distance", "contrib.slim.losses.cosine_distance")
def cosine_distance(
    predictions: Any,
    labels: Any = None,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    dim: int | None = None,
) -> Tensor:
    """Return one minus the products of unit vectors along `axis` (or `dim`, its old name)."""
    if axis is not None and dim is not None:
        raise ValueError("Cannot specify both 'axis' and 'dim'")
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    weights = _spread(weights, _rank(predictions))
    return kept.cosine_distance(_given(labels), predictions, axis, weights, scope)


@export("contrib.losses.hinge_loss", "contrib.slim.losses.hinge_loss")
def hinge_loss(logits: Any, labels: Any = None, scope: str | None = None) -> Tensor:
    """Return the hinge loss of each element, added to no collection; labels are 0 or 1."""
    with name_scope(scope, "hinge_loss", [logits, _given(labels)]):
        logits = convert_to_tensor(logits)
        signs = 2 * b.cast(labels, logits.dtype) - 1
        return b.relu(1 - signs * logits)


@export("contrib.losses.sigmoid_cross_entropy", "contrib.slim.losses.sigmoid_cross_entropy")
def sigmoid_cross_entropy(
    logits: Any,
    multi_class_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:
    """Return the cross entropy of labels and sigmoid(logits)."""
    weights = _spread(weights, _rank(logits))
    return kept.sigmoid_cross_entropy(multi_class_labels, logits, weights, label_smoothing, scope)


@export("contrib.losses.softmax_cross_entropy", "contrib.slim.losses.softmax_cross_entropy")
def softmax_cross_entropy(
    logits: Any,
    onehot_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:
    """Return the cross entropy of distributions and softmax(logits)."""
    return kept.softmax_cross_entropy(onehot_labels, logits, weights, label_smoothing, scope)


@export(
    "contrib.losses.sparse_softmax_cross_entropy",
    "contrib.slim.losses.sparse_softmax_cross_entropy",
)
def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """Return the cross entropy of classes and softmax(logits)."""
    return kept.sparse_softmax_cross_entropy(labels, logits, weights, scope)


@export("contrib.losses.compute_weighted_loss", "contrib.slim.losses.compute_weighted_loss")
def compute_weighted_loss(losses: Any, weights: Any = 1.0, scope: str | None = None) -> Tensor:
    """Return the weighted mean of the losses whose weights aren't zero."""
    return kept.compute_weighted_loss(losses, _spread(weights, _rank(losses)), scope)
