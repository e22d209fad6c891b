"""Metrics of several classes: mean intersection over union, mean of the classes' accuracies."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.layers.metrics.metric_variables import Metric, collect, metric_variable
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.scope import variable_scope

__all__ = ["mean_iou", "mean_per_class_accuracy"]


def _flat(x: Any) -> Tensor:
    x = convert_to_tensor(x)
    return b.reshape(x, [-1]) if x.shape.ndims != 1 else x


@export("metrics.mean_iou")
def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over classes of true positives / (true positives + false positives + false
    negatives); classes that never occurred aren't counted. The second result is the confusion
    matrix.
    """
    with variable_scope(name, "mean_iou", (predictions, labels, weights)):
        predictions, labels = b.cast(predictions, dtypes.int64), b.cast(labels, dtypes.int64)
        predictions.shape.assert_is_compatible_with(labels.shape)
        size = [num_classes, num_classes]
        total = metric_variable(size, dtypes.float64, name="total_confusion_matrix")
        matrix = b.confusion_matrix(
            _flat(labels),
            _flat(predictions),
            num_classes,
            weights=None if weights is None else _flat(weights),
            dtype=dtypes.float64,
        )
        update = b.assign_add(total, matrix)
        return collect(_iou(total), update, metrics_collections, updates_collections)


def _iou(matrix: Any) -> Tensor:
    predicted = b.cast(b.reduce_sum(matrix, 0), dtypes.float32)
    labelled = b.cast(b.reduce_sum(matrix, 1), dtypes.float32)
    both = b.cast(b.diag_part(matrix), dtypes.float32)
    union = predicted + labelled - both
    present = b.reduce_sum(b.cast(b.not_equal(union, 0), dtypes.float32))
    union = b.where(b.greater(union, 0), union, b.ones_like(union))
    total = b.reduce_sum(b.div(both, union))
    return b.where(b.greater(present, 0), b.div(total, present), 0)


@export("metrics.mean_per_class_accuracy")
def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over classes of the fraction of their examples that is predicted right; it's
    0 for classes that never occurred. The second result has the accuracy of each class.
    """
    with variable_scope(name, "mean_accuracy", (predictions, labels, weights)):
        labels = b.cast(labels, dtypes.int64)
        labels, predictions = _flat(labels), _flat(predictions)
        predictions.shape.assert_is_compatible_with(labels.shape)
        total = metric_variable([num_classes], name="total")
        count = metric_variable([num_classes], name="count")
        ones = b.ones([b.size(labels)], dtypes.float32)
        if labels.dtype != predictions.dtype:
            predictions = b.cast(predictions, labels.dtype)
        correct = b.cast(b.equal(predictions, labels), dtypes.float32)
        if weights is not None:
            weights = b.cast(_flat(weights), dtypes.float32)
            correct, ones = correct * weights, ones * weights
        new_total = b.scatter_add(total, labels, correct)
        new_count = b.scatter_add(count, labels, ones)
        value = b.reduce_mean(b.div_no_nan(total, b.maximum(count, 0)), name="mean_accuracy")
        update = b.div_no_nan(new_total, b.maximum(new_count, 0), name="update_op")
        return collect(value, update, metrics_collections, updates_collections)
