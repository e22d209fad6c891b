"""The metrics of tf.contrib.metrics (and tf.contrib.slim.metrics): those of tf.metrics with the
predictions first, called streaming_*, and some that tf.metrics doesn't have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export, export_value
from headrace._src.graph.operation import Tensor
from headrace._src.layers.metrics import classes, confusions, curves, means, rankings
from headrace._src.layers.metrics.metric_variables import Metric, aligned, collect, metric_variable
from headrace._src.layers.weights import broadcast_weights
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.variables.scope import variable_scope

__all__ = ["aggregate_metric_map", "streaming_covariance", "streaming_pearson_correlation"]


def _publish(name: str, metric: Callable[..., Metric]) -> Callable[..., Metric]:
    export_value(__name__, name, f"contrib.metrics.{name}", f"contrib.slim.metrics.{name}")
    return metric


def _swapped(name: str, metric: Callable[..., Metric]) -> Callable[..., Metric]:
    """Return a metric under another name, which takes the predictions before the labels."""

    @functools.wraps(metric)
    def streaming(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Metric:
        return metric(labels, predictions, *args, **kwargs)

    described: Any = streaming
    labels, predictions, *rest = inspect.signature(metric).parameters.values()
    described.__signature__ = inspect.Signature([predictions, labels, *rest])
    described.__name__ = described.__qualname__ = name
    return _publish(name, streaming)


streaming_mean = _publish("streaming_mean", means.mean)
streaming_mean_tensor = _publish("streaming_mean_tensor", means.mean_tensor)
streaming_percentage_less = _publish("streaming_percentage_less", means.percentage_below)
streaming_accuracy = _swapped("streaming_accuracy", means.accuracy)
streaming_auc = _swapped("streaming_auc", curves.auc)
streaming_false_negatives = _swapped("streaming_false_negatives", confusions.false_negatives)
streaming_false_negatives_at_thresholds = _swapped(
    "streaming_false_negatives_at_thresholds", curves.false_negatives_at_thresholds
)
streaming_false_positives = _swapped("streaming_false_positives", confusions.false_positives)
streaming_false_positives_at_thresholds = _swapped(
    "streaming_false_positives_at_thresholds", curves.false_positives_at_thresholds
)
streaming_mean_absolute_error = _swapped("streaming_mean_absolute_error", means.mean_absolute_error)
streaming_mean_cosine_distance = _swapped(
    "streaming_mean_cosine_distance", means.mean_cosine_distance
)
streaming_mean_iou = _swapped("streaming_mean_iou", classes.mean_iou)
streaming_mean_relative_error = _swapped("streaming_mean_relative_error", means.mean_relative_error)
streaming_mean_squared_error = _swapped("streaming_mean_squared_error", means.mean_squared_error)
streaming_precision = _swapped("streaming_precision", confusions.precision)
streaming_precision_at_thresholds = _swapped(
    "streaming_precision_at_thresholds", curves.precision_at_thresholds
)
streaming_recall = _swapped("streaming_recall", confusions.recall)
streaming_recall_at_thresholds = _swapped(
    "streaming_recall_at_thresholds", curves.recall_at_thresholds
)
streaming_root_mean_squared_error = _swapped(
    "streaming_root_mean_squared_error", means.root_mean_squared_error
)
streaming_sensitivity_at_specificity = _swapped(
    "streaming_sensitivity_at_specificity", curves.sensitivity_at_specificity
)
streaming_sparse_average_precision_at_k = _swapped(
    "streaming_sparse_average_precision_at_k", rankings.average_precision_at_k
)
streaming_specificity_at_sensitivity = _swapped(
    "streaming_specificity_at_sensitivity", curves.specificity_at_sensitivity
)
streaming_true_negatives = _swapped("streaming_true_negatives", confusions.true_negatives)
streaming_true_negatives_at_thresholds = _swapped(
    "streaming_true_negatives_at_thresholds", curves.true_negatives_at_thresholds
)
streaming_true_positives = _swapped("streaming_true_positives", confusions.true_positives)
streaming_true_positives_at_thresholds = _swapped(
    "streaming_true_positives_at_thresholds", curves.true_positives_at_thresholds
)


# -- Of rankings -----------------------------------------------------------------------------------


@export("contrib.metrics.streaming_sparse_precision_at_k",
        "contrib.slim.metrics.streaming_sparse_precision_at_k")  # fmt: skip
def streaming_sparse_precision_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how many of the k largest predictions are labels."""
    collections = metrics_collections, updates_collections
    return rankings.precision_at_k(labels, predictions, k, class_id, weights, *collections, name)


@export("contrib.metrics.streaming_sparse_recall_at_k",
        "contrib.slim.metrics.streaming_sparse_recall_at_k")  # fmt: skip
def streaming_sparse_recall_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how many of the labels are among the k largest predictions."""
    collections = metrics_collections, updates_collections
    return rankings.recall_at_k(labels, predictions, k, class_id, weights, *collections, name)


@export("contrib.metrics.streaming_recall_at_k", "contrib.slim.metrics.streaming_recall_at_k")
def streaming_recall_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how often the label, one per example, is among the k largest predictions."""
    hits = b.cast(b.in_top_k(predictions, labels, k), float32)
    name = name or f"recall_at_{k}"
    return means.mean(hits, weights, metrics_collections, updates_collections, name)


# -- Of pairs --------------------------------------------------------------------------------------


@export("contrib.metrics.streaming_covariance", "contrib.slim.metrics.streaming_covariance")
def streaming_covariance(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the unbiased covariance of predictions and labels; weights count as repetitions.

    Batches are merged by their means and co-moments (Bennett et al., 2009), which keeps precision
    when the means are large.
    """
    with variable_scope(name, "covariance", (predictions, labels, weights)):
        predictions, labels, weights = aligned(predictions, labels, weights)
        predictions.shape.assert_is_compatible_with(labels.shape)
        count, mean_prediction, mean_label, comoment = (
            metric_variable([], name=variable)
            for variable in ("count", "mean_prediction", "mean_label", "comoment")
        )
        x, y = b.cast(predictions, float32), b.cast(labels, float32)
        if weights is None:
            w, number = None, b.cast(b.size(y), float32)
        else:
            w = broadcast_weights(b.cast(weights, float32), y)
            number = b.reduce_sum(w)

        def total(values: Any) -> Any:
            return b.reduce_sum(values if w is None else values * w)

        new_count = b.assign_add(count, number)
        old_count = new_count - number
        batch_x, batch_y = (b.div_no_nan(total(v), number) for v in (x, y))
        share = b.div_no_nan(number, new_count)
        move_x, move_y = (batch_x - mean_prediction) * share, (batch_y - mean_label) * share
        old_x = b.assign_add(mean_prediction, move_x) - move_x
        old_y = b.assign_add(mean_label, move_y) - move_y
        between = (old_x - batch_x) * (old_y - batch_y) * (old_count * share)
        update = b.assign_add(comoment, total((x - batch_x) * (y - batch_y)) + between)
        value = _unbiased(comoment, count, "covariance")
        update = _unbiased(update, new_count, "update_op")
        return collect(value, update, metrics_collections, updates_collections)


def _unbiased(comoment: Any, count: Any, name: str) -> Any:
    rest = count - 1
    return b.where(b.less_equal(count, 1.0), float("nan"), b.truediv(comoment, rest), name=name)


@export("contrib.metrics.streaming_pearson_correlation",
        "contrib.slim.metrics.streaming_pearson_correlation")  # fmt: skip
def streaming_pearson_correlation(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return Pearson's correlation of predictions and labels."""
    with variable_scope(name, "pearson_r", (predictions, labels, weights)):
        predictions, labels, weights = aligned(predictions, labels, weights)
        covariance = streaming_covariance(predictions, labels, weights, name="covariance")
        variance_x = streaming_covariance(
            predictions, predictions, weights, name="variance_predictions"
        )
        variance_y = streaming_covariance(labels, labels, weights, name="variance_labels")
        value, update = (
            b.truediv(c, b.multiply(b.sqrt(x), b.sqrt(y)), name=made)
            for c, x, y, made in zip(
                covariance, variance_x, variance_y, ("pearson_r", "update_op"), strict=True
            )
        )
        return collect(value, update, metrics_collections, updates_collections)


# -- Of one batch, and of several metrics ----------------------------------------------------------


@export("contrib.metrics.accuracy", "contrib.slim.metrics.accuracy")
def batch_accuracy(
    predictions: Any, labels: Any, weights: Any = None, name: str | None = None
) -> Tensor:
    """Return how often predictions equal labels in this batch; both must have the same non-floating
    dtype.
    """
    for what, given in (("Labels", labels), ("Predictions", predictions)):
        if not (given.dtype.is_integer or given.dtype.name in ("bool", "string")):
            raise ValueError(
                f"{what} should have bool, string, or integer dtype, not {given.dtype}"
            )
    if labels.dtype != predictions.dtype:
        raise ValueError(
            f"Dtypes of predictions and labels should match. Given: predictions "
            f"({predictions.dtype}) and labels ({labels.dtype})"
        )
    with name_scope(name, "accuracy", (predictions, labels, weights)):
        correct = b.cast(b.equal(predictions, labels), float32)
        if weights is None:
            return b.reduce_mean(correct)
        weights = b.cast(weights, float32)
        # A weight without the last dimensions applies to all elements along them.
        return b.truediv(
            b.reduce_sum(correct * weights), b.reduce_sum(weights * b.ones_like(correct))
        )


@export("contrib.metrics.aggregate_metrics", "contrib.slim.metrics.aggregate_metrics")
def aggregate_metrics(*value_update_tuples: Metric) -> tuple[list[Any], list[Any]]:
    """Return the values, and the updates, of several metrics."""
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


@export("contrib.metrics.aggregate_metric_map", "contrib.slim.metrics.aggregate_metric_map")
def aggregate_metric_map(
    names_to_tuples: Mapping[str, Metric],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values, and the updates, of metrics by name."""
    return (
        {name: value for name, (value, _) in names_to_tuples.items()},
        {name: update for name, (_, update) in names_to_tuples.items()},
    )
