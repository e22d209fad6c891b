"""tf.losses: the distance of predictions from labels, weighted, reduced to a number, and collected.

Each function adds its loss to a collection (LOSSES by default); get_total_loss is the sum of these
and of the regularization losses.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers.weights import assert_broadcastable, broadcast_weights, may_end_in_one
from headrace._src.ops.base.define import b
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["Reduction", "add_loss", "compute_weighted_loss", "get_losses", "get_total_loss"]


@export("losses.Reduction")
class Reduction:
    """How to reduce the losses of a batch: not at all, or to their weighted sum, unscaled or
    divided by the sum of weights, the number of losses, or the number of those whose weight isn't
    0.
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all reductions."""
        return (
            cls.NONE,
            cls.SUM,
            cls.MEAN,
            cls.SUM_OVER_BATCH_SIZE,
            cls.SUM_OVER_NONZERO_WEIGHTS,
            cls.SUM_BY_NONZERO_WEIGHTS,
        )

    @classmethod
    def validate(cls, key: Any) -> None:
        """Raise ValueError if `key` isn't a reduction."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}.")


_BY_NONZERO = Reduction.SUM_BY_NONZERO_WEIGHTS


# -- The collections -------------------------------------------------------------------------------


@export("losses.add_loss", "contrib.losses.add_loss", "contrib.slim.losses.add_loss")
def add_loss(loss: Any, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Add a loss to a collection, if one is given."""
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)


@export("losses.get_losses", "contrib.losses.get_losses", "contrib.slim.losses.get_losses")
def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Any]:
    """Return the losses of a collection; with `scope`, only those made in it."""
    return get_default_graph().get_collection(loss_collection, scope)


@export(
    "losses.get_regularization_losses",
    "contrib.losses.get_regularization_losses",
    "contrib.slim.losses.get_regularization_losses",
)
def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Return the regularization losses; with `scope`, only those made in it."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@export("losses.get_regularization_loss")
def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Tensor:
    """Return the sum of the regularization losses; 0 if there's none."""
    losses = get_regularization_losses(scope)
    return b.add_n(losses, name=name) if losses else b.constant(0.0)


@export(
    "losses.get_total_loss", "contrib.losses.get_total_loss", "contrib.slim.losses.get_total_loss"
)
def get_total_loss(
    add_regularization_losses: bool = True,
    name: str = "total_loss",
    scope: str | None = None,
) -> Tensor:
    """Return the sum of all collected losses and, by default, regularization losses."""
    losses = get_losses(scope)
    if add_regularization_losses:
        losses = losses + get_regularization_losses(scope)
    return b.add_n(losses, name=name)


# -- Weighing and reducing -------------------------------------------------------------------------


@export("losses.compute_weighted_loss")
def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return losses times weights (which broadcast to them), reduced; add it to a collection."""
    Reduction.validate(reduction)
    with name_scope(scope, "weighted_loss", (losses, weights)):
        check = assert_broadcastable(weights, losses)
        with control_dependencies((check,)):
            losses = convert_to_tensor(losses)
            dtype = losses.dtype
            losses = b.cast(losses, dtypes.float32)
            weights = b.cast(weights, dtypes.float32)
            loss: Any = b.multiply(losses, weights)
            if reduction != Reduction.NONE:
                loss = _reduced(loss, losses, weights, reduction)
            loss = b.cast(loss, dtype)
            add_loss(loss, loss_collection)
            return loss


def _reduced(weighted: Tensor, losses: Tensor, weights: Any, reduction: str) -> Tensor:
    total = b.reduce_sum(weighted)
    if reduction == Reduction.MEAN:
        return _ratio(total, b.reduce_sum(b.ones_like(losses) * weights))
    if reduction == _BY_NONZERO:
        return _ratio(total, count_present(losses, weights))
    if reduction == Reduction.SUM_OVER_BATCH_SIZE:
        with name_scope(None, "num_elements", (weighted,)) as scope:
            count = b.cast(b.size(weighted, name=scope), losses.dtype)
        return _ratio(total, count)
    return total


def _ratio(total: Tensor, count: Tensor) -> Tensor:
    return b.div_no_nan(b.reduce_sum(total), count, name="value")


def count_present(losses: Tensor, weights: Any, per_batch: bool = False) -> Tensor:
    """Return how many losses have a nonzero weight: in total, or for each example."""
    with name_scope(None, "num_present", (losses, weights)) as scope:
        weights = b.cast(weights, dtypes.float32)
        present = b.where(b.equal(weights, 0.0), b.zeros_like(weights), b.ones_like(weights))
        present = broadcast_weights(present, losses)
        if per_batch:
            axes = b.range(1, b.rank(present))
            return b.reduce_sum(present, axis=axes, keepdims=True, name=scope)
        return b.reduce_sum(present, name=scope)


def _pair(labels: Any, predictions: Any, labels_name: str, predictions_name: str) -> Any:
    """Return labels and predictions as float32 tensors of one shape."""
    if labels is None:
        raise ValueError(f"{labels_name} must not be None.")
    if predictions is None:
        raise ValueError(f"{predictions_name} must not be None.")
    predictions = b.cast(predictions, dtypes.float32)
    labels = b.cast(labels, dtypes.float32)
    predictions.shape.assert_is_compatible_with(labels.shape)
    return labels, predictions


# -- Differences -----------------------------------------------------------------------------------


@export("losses.absolute_difference")
def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return |predictions - labels|."""
    with name_scope(scope, "absolute_difference", (predictions, labels, weights)) as scope:
        labels, predictions = _pair(labels, predictions, "labels", "predictions")
        losses = b.abs(b.subtract(predictions, labels))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.mean_squared_error")
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return (predictions - labels)^2."""
    with name_scope(scope, "mean_squared_error", (predictions, labels, weights)) as scope:
        labels, predictions = _pair(labels, predictions, "labels", "predictions")
        losses = b.squared_difference(predictions, labels)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.huber_loss")
def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return half the square of the difference up to `delta`, growing linearly beyond it."""
    with name_scope(scope, "huber_loss", (predictions, labels, weights)) as scope:
        labels, predictions = _pair(labels, predictions, "labels", "predictions")
        error = b.abs(b.subtract(predictions, labels))
        quadratic = b.minimum(error, delta)
        # Not the part beyond delta directly: this form has the right gradient at 0 and at delta.
        linear = b.subtract(error, quadratic)
        half = convert_to_tensor(0.5, quadratic.dtype)
        losses = b.add(
            b.multiply(half, b.multiply(quadratic, quadratic)), b.multiply(delta, linear)
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.log_loss")
def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return the cross entropy of probabilities; `epsilon` avoids the logarithm of 0."""
    with name_scope(scope, "log_loss", (predictions, labels, weights)) as scope:
        labels, predictions = _pair(labels, predictions, "labels", "predictions")
        hit = -b.multiply(labels, b.log(predictions + epsilon))
        losses = hit - b.multiply(1 - labels, b.log(1 - predictions + epsilon))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.hinge_loss")
def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return max(0, 1 - logits * (2 labels - 1)), for labels 0 and 1."""
    with name_scope(scope, "hinge_loss", (logits, labels, weights)) as scope:
        labels, logits = _pair(labels, logits, "labels", "logits")
        ones = b.ones_like(labels)
        signs = b.subtract(2 * labels, ones)
        losses = b.relu(b.subtract(ones, b.multiply(signs, logits)))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.cosine_distance")
def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
    dim: int | None = None,
) -> Tensor:
    """Return 1 - labels . predictions, for unit vectors along `axis`."""
    axis = renamed_argument("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    with name_scope(scope, "cosine_distance_loss", (predictions, labels, weights)) as scope:
        labels, predictions = _pair(labels, predictions, "labels", "predictions")
        products = b.multiply(predictions, labels)
        losses = 1 - b.reduce_sum(products, axis=(axis,), keepdims=True)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.mean_pairwise_squared_error")
def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
) -> Tensor:
    """Return, for each example, the mean over pairs of elements of the squared difference between
    the pair's difference in predictions and in labels.
    """
    with name_scope(scope, "mean_pairwise_squared_error", (predictions, labels, weights)):
        weights = b.cast(weights, dtypes.float32)
        labels, predictions = _pair(labels, predictions, "labels", "predictions")
        with control_dependencies((assert_broadcastable(weights, labels),)):
            error = b.subtract(predictions, labels)
            axes = b.range(1, b.rank(error))
            squares = b.reduce_sum(b.square(error), axis=axes, keepdims=True)
            present = count_present(error, weights, per_batch=True)
            # The sum over pairs follows from the sum of squares and the square of the sum.
            own = 2.0 * b.div_no_nan(squares, b.maximum(present - 1, 0), name="value")
            total = b.square(b.reduce_sum(error, axis=axes, keepdims=True))
            pairs = b.maximum(b.multiply(present, present - 1), 0)
            losses = own - 2.0 * b.div_no_nan(total, pairs, name="value")
            loss = b.reduce_sum(b.multiply(losses, weights))
            any_present = b.reduce_sum(present) > 0
            mean = b.where(any_present, loss, b.zeros_like(loss), name="value")
            add_loss(mean, loss_collection)
            return mean


# -- Cross entropies -------------------------------------------------------------------------------


@export("losses.sigmoid_cross_entropy")
def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return the cross entropy of each label and its logit; smoothing moves labels towards 1/2."""
    values = (logits, multi_class_labels, weights)
    with name_scope(scope, "sigmoid_cross_entropy_loss", values) as scope:
        if multi_class_labels is None or logits is None:
            raise ValueError("multi_class_labels and logits must not be None.")
        logits = convert_to_tensor(logits)
        labels = b.cast(multi_class_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        losses = b.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.softmax_cross_entropy")
def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return the cross entropy of distributions and softmax(logits); smoothing moves labels towards
    the uniform distribution.
    """
    values = (logits, onehot_labels, weights)
    with name_scope(scope, "softmax_cross_entropy_loss", values) as scope:
        if onehot_labels is None or logits is None:
            raise ValueError("onehot_labels and logits must not be None.")
        logits = convert_to_tensor(logits)
        labels = b.cast(onehot_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            classes = b.cast(b.shape(labels)[-1], logits.dtype)
            labels = _smoothed(labels, label_smoothing, classes)
        labels = b.stop_gradient(labels, name="labels_stop_gradient")
        losses = b.softmax_cross_entropy_with_logits_v2(
            labels=labels, logits=logits, name="xentropy"
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def _smoothed(labels: Tensor, smoothing: float, classes: Tensor) -> Tensor:
    uniform = smoothing / classes
    return labels * (1.0 - smoothing) + uniform


@export("losses.sparse_softmax_cross_entropy")
def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """Return the cross entropy of the classes `labels` and softmax(logits)."""
    values = (logits, labels, weights)
    with name_scope(scope, "sparse_softmax_cross_entropy_loss", values) as scope:
        if labels is None or logits is None:
            raise ValueError("labels and logits must not be None.")
        labels, logits, weights = _without_last_one(labels, logits, weights)
        losses = b.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits, name="xentropy"
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def _without_last_one(labels: Any, logits: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return labels and weights without a superfluous last dimension of size 1."""
    labels, logits = b.remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
    weights = convert_to_tensor(weights)
    rank, wanted = weights.shape.ndims, labels.shape.ndims
    if rank is not None and wanted is not None:
        if rank - wanted == 1:
            weights = b.squeeze(weights, [-1])
    elif may_end_in_one(weights.shape):
        extra = b.rank(weights) - b.rank(labels)
        full = weights
        weights = b.cond(b.equal(1, extra), lambda: b.squeeze(full, [-1]), lambda: full)
    return labels, logits, weights


# -- Of examples -----------------------------------------------------------------------------------


@export("nn.compute_average_loss")
def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Tensor:
    """Return the weighted sum of the examples' losses divided by `global_batch_size`, by default
    their number.
    """
    losses = convert_to_tensor(per_example_loss)
    if losses.shape.ndims == 0:
        raise ValueError(
            "Invalid value passed for `per_example_loss`. Expected a tensor with at least rank 1, "
            f"received: {losses}"
        )
    dtype = losses.dtype
    if sample_weight is not None:
        wide = b.cast(losses, dtypes.float32)
        weighed = compute_weighted_loss(
            wide, sample_weight, loss_collection=None, reduction=Reduction.NONE
        )
        losses = b.cast(weighed, dtype)
    size = b.shape(losses)[0] if global_batch_size is None else global_batch_size
    return b.reduce_sum(losses) / b.cast(size, dtype)


@export("nn.scale_regularization_loss")
def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """Return the sum of regularization losses, a tensor or a list, divided by the number of
    replicas, which is one here.
    """
    return b.reduce_sum(convert_to_tensor(regularization_loss))
