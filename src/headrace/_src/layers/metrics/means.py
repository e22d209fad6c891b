"""Metrics that are means: of values, of accuracies, of errors."""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers.metrics.metric_variables import Metric, aligned, collect, metric_variable
from headrace._src.layers.weights import broadcast_weights
from headrace._src.ops.base.define import b
from headrace._src.variables.scope import variable_scope

__all__ = ["accuracy", "mean", "mean_squared_error", "mean_tensor"]


@export("metrics.mean")
def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the weighted mean of all values."""
    with variable_scope(name, "mean", (values, weights)):
        values = b.cast(values, float32)
        total, count = metric_variable([], name="total"), metric_variable([], name="count")
        if weights is None:
            number = b.cast(b.size(values), float32)
        else:
            values, _, weights = aligned(values, None, weights)
            weights = broadcast_weights(b.cast(weights, float32), values)
            values = b.multiply(values, weights)
            number = b.reduce_sum(weights)
        return _mean(total, count, values, number, True, metrics_collections, updates_collections)


@export("metrics.mean_tensor")
def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of each element of `values` over batches; their shape must be known."""
    with variable_scope(name, "mean", (values, weights)):
        values = b.cast(values, float32)
        total = metric_variable(values.shape, name="total_tensor")
        count = metric_variable(values.shape, name="count_tensor")
        number = b.ones_like(values)
        if weights is not None:
            values, _, weights = aligned(values, None, weights)
            weights = broadcast_weights(b.cast(weights, float32), values)
            values = b.multiply(values, weights)
            number = b.multiply(number, weights)
        return _mean(total, count, values, number, False, metrics_collections, updates_collections)


def _mean(
    total: Any, count: Any, values: Any, number: Any, summed: bool, values_in: Any, updates_in: Any
) -> Metric:
    """Return the quotient of two variables, to which `values` and their `number` are added."""
    update_total = b.assign_add(total, b.reduce_sum(values) if summed else values)
    with control_dependencies([values]):
        update_count = b.assign_add(count, number)
    value = b.div_no_nan(total, b.maximum(count, 0), name="value")
    update = b.div_no_nan(update_total, b.maximum(update_count, 0), name="update_op")
    return collect(value, update, values_in, updates_in)


@export("metrics.accuracy")
def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how often predictions equal labels."""
    predictions, labels, weights = aligned(predictions, labels, weights)
    if labels.dtype != predictions.dtype:
        predictions = b.cast(predictions, labels.dtype)
    correct = b.cast(b.equal(predictions, labels), float32)
    return mean(correct, weights, metrics_collections, updates_collections, name or "accuracy")


@export("metrics.percentage_below")
def percentage_below(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how often values are below a threshold, as a fraction."""
    below = b.cast(b.less(values, threshold), float32)
    name = name or "percentage_below_threshold"
    return mean(below, weights, metrics_collections, updates_collections, name)


@export("metrics.mean_absolute_error")
def mean_absolute_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of |predictions - labels|."""
    predictions, labels, weights = aligned(predictions, labels, weights)
    errors = b.abs(predictions - labels)
    name = name or "mean_absolute_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export("metrics.mean_squared_error")
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of (predictions - labels)^2."""
    predictions, labels, weights = aligned(predictions, labels, weights)
    errors = b.squared_difference(labels, predictions)
    name = name or "mean_squared_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export("metrics.root_mean_squared_error")
def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the square root of the mean of (predictions - labels)^2."""
    predictions, labels, weights = aligned(predictions, labels, weights)
    name = name or "root_mean_squared_error"
    value, update = mean_squared_error(labels, predictions, weights, name=name)
    value, update = b.sqrt(value), b.sqrt(update)
    return collect(value, update, metrics_collections, updates_collections)


@export("metrics.mean_relative_error")
def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of |labels - predictions| / normalizer, and 0 where that is 0."""
    predictions, labels, weights = aligned(predictions, labels, weights)
    predictions, normalizer = b.remove_squeezable_dimensions(predictions, normalizer)
    predictions.shape.assert_is_compatible_with(normalizer.shape)
    errors = b.where(
        b.equal(normalizer, 0.0),
        b.zeros_like(labels),
        b.div(b.abs(labels - predictions), normalizer),
    )
    name = name or "mean_relative_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export("metrics.mean_cosine_distance")
def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of 1 - labels . predictions, for unit vectors along `dim`."""
    predictions, labels, weights = aligned(predictions, labels, weights)
    products = b.multiply(predictions, labels)
    products = b.reduce_sum(products, axis=[dim], keepdims=True)
    value, update = mean(products, weights, None, None, name or "mean_cosine_distance")
    distance, after = b.subtract(1.0, value), b.subtract(1.0, update)
    return collect(distance, after, metrics_collections, updates_collections)
