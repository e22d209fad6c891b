"""Binary metrics: true and false positives and negatives, precision and recall."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers.metrics.metric_variables import Metric, aligned, collect, metric_variable
from headrace._src.ops.base.define import b
from headrace._src.variables.scope import variable_scope

__all__ = [
    "false_negatives",
    "false_positives",
    "precision",
    "recall",
    "true_negatives",
    "true_positives",
]


def _counted(
    scope: str,
    label: bool,
    prediction: bool,
    labels: Any,
    predictions: Any,
    weights: Any,
    values_in: Any,
    updates_in: Any,
    name: str | None,
) -> Metric:
    """Return the weighted number of examples with a given label and prediction."""
    with variable_scope(name, scope, (predictions, labels, weights)):
        predictions, labels, weights = aligned(
            b.cast(predictions, dtypes.bool), b.cast(labels, dtypes.bool), weights
        )
        met = b.logical_and(b.equal(labels, label), b.equal(predictions, prediction))
        b.assert_type(met, dtypes.bool)
        count = metric_variable([], name="count")
        values = b.cast(met, dtypes.float32)
        if weights is not None:
            check = b.assert_rank_in(weights, (0, b.rank(values)))
            with control_dependencies((check,)):
                values = b.multiply(values, b.cast(weights, dtypes.float32))
        value = b.identity(count)
        update = b.assign_add(count, b.reduce_sum(values))
        return collect(value, update, values_in, updates_in)


@export("metrics.true_positives")
def true_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how many predictions are true and have a true label."""
    collections = metrics_collections, updates_collections
    return _counted("true_positives", True, True, labels, predictions, weights, *collections, name)


@export("metrics.true_negatives")
def true_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how many predictions are false and have a false label."""
    collections = metrics_collections, updates_collections
    return _counted(
        "true_negatives", False, False, labels, predictions, weights, *collections, name
    )


@export("metrics.false_positives")
def false_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how many predictions are true but have a false label."""
    collections = metrics_collections, updates_collections
    return _counted(
        "false_positives", False, True, labels, predictions, weights, *collections, name
    )


@export("metrics.false_negatives")
def false_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return how many predictions are false but have a true label."""
    collections = metrics_collections, updates_collections
    return _counted(
        "false_negatives", True, False, labels, predictions, weights, *collections, name
    )


def _share(hits: Any, misses: Any, name: str) -> Any:
    """Return hits / (hits + misses), and 0 if there's neither."""
    return b.where(b.greater(hits + misses, 0), b.div(hits, hits + misses), 0, name=name)


def _hits_and(
    scope: str,
    misses: Any,
    labels: Any,
    predictions: Any,
    weights: Any,
    values_in: Any,
    updates_in: Any,
    name: str | None,
) -> Metric:
    """Return true positives / (true positives + `misses`)."""
    with variable_scope(name, scope, (predictions, labels, weights)):
        predictions, labels, weights = aligned(
            b.cast(predictions, dtypes.bool), b.cast(labels, dtypes.bool), weights
        )
        hit, hit_update = true_positives(labels, predictions, weights)
        miss, miss_update = misses(labels, predictions, weights)
        value = _share(hit, miss, "value")
        return collect(value, _share(hit_update, miss_update, "update_op"), values_in, updates_in)


@export("metrics.precision")
def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of true predictions whose labels are true."""
    collections = metrics_collections, updates_collections
    return _hits_and("precision", false_positives, labels, predictions, weights, *collections, name)


@export("metrics.recall")
def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of true labels whose predictions are true."""
    collections = metrics_collections, updates_collections
    return _hits_and("recall", false_negatives, labels, predictions, weights, *collections, name)
