"""Binary metrics at many thresholds: counts, precision, recall, areas under curves.

Predictions are probabilities. A prediction is positive at every threshold that it exceeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers.metrics.metric_variables import Metric, aligned, collect, metric_variable
from headrace._src.layers.weights import broadcast_weights
from headrace._src.ops.base.define import b
from headrace._src.variables.scope import variable_scope

__all__ = ["auc", "precision_at_thresholds", "recall_at_thresholds"]

_EPSILON = 1e-7
_KINDS = ("true_positives", "false_negatives", "true_negatives", "false_positives")

Counts = dict[str, Any]


def _at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    kinds: Sequence[str] = _KINDS,
) -> tuple[Counts, Counts]:
    """Return the counts of each kind, one per threshold, and the operations that add a batch to
    them.
    """
    low = b.assert_greater_equal(
        predictions, b.cast(0.0, predictions.dtype), message="predictions must be in [0, 1]"
    )
    high = b.assert_less_equal(
        predictions, b.cast(1.0, predictions.dtype), message="predictions must be in [0, 1]"
    )
    with control_dependencies([low, high]):
        predictions, labels, weights = aligned(
            b.cast(predictions, dtypes.float32), b.cast(labels, dtypes.bool), weights
        )
    scale = None
    if weights is not None:
        scale = broadcast_weights(b.cast(weights, dtypes.float32), predictions)
        scale = b.reshape(scale, [1, -1])
    limits = b.expand_dims(b.constant(list(thresholds), dtypes.float32), [1])
    said = b.greater(b.reshape(predictions, [1, -1]), limits)  # [thresholds, predictions]
    meant = b.reshape(labels, [1, -1])
    values, updates = {}, {}
    for kind in kinds:
        truth, positive = kind.startswith("true"), kind.endswith("positives")
        yes = said if positive else b.logical_not(said)
        right = meant if truth == positive else b.logical_not(meant)
        hits = b.cast(b.logical_and(yes, right), dtypes.float32)
        variable = metric_variable([len(thresholds)], name=kind)
        total = b.reduce_sum(hits if scale is None else hits * scale, 1)
        values[kind], updates[kind] = b.identity(variable), b.assign_add(variable, total)
    return values, updates


def _counted(
    kind: str,
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    values_in: Any,
    updates_in: Any,
    name: str | None,
) -> Metric:
    with variable_scope(name, kind, (predictions, labels, weights)):
        predictions, labels, weights = aligned(predictions, b.cast(labels, dtypes.bool), weights)
        values, updates = _at_thresholds(labels, predictions, thresholds, weights, [kind])
        return collect(values[kind], updates[kind], values_in, updates_in)


@export("metrics.true_positives_at_thresholds")
def true_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return, for each threshold, how many predictions above it have a true label."""
    given = labels, predictions, thresholds, weights, metrics_collections, updates_collections
    return _counted("true_positives", *given, name)


@export("metrics.true_negatives_at_thresholds")
def true_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return, for each threshold, how many predictions not above it have a false label."""
    given = labels, predictions, thresholds, weights, metrics_collections, updates_collections
    return _counted("true_negatives", *given, name)


@export("metrics.false_positives_at_thresholds")
def false_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return, for each threshold, how many predictions above it have a false label."""
    given = labels, predictions, thresholds, weights, metrics_collections, updates_collections
    return _counted("false_positives", *given, name)


@export("metrics.false_negatives_at_thresholds")
def false_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return, for each threshold, how many predictions not above it have a true label."""
    given = labels, predictions, thresholds, weights, metrics_collections, updates_collections
    return _counted("false_negatives", *given, name)


def _computed(
    scope: str,
    compute: Callable[[Counts, str], Tensor],
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    values_in: Any,
    updates_in: Any,
    name: str | None,
    kinds: Sequence[str] = _KINDS,
) -> Metric:
    """A metric that is a function of counts at thresholds."""
    with variable_scope(name, scope, (labels, predictions, weights)):
        predictions, labels, weights = aligned(predictions, labels, weights)
        values, updates = _at_thresholds(labels, predictions, thresholds, weights, kinds)
        value, update = compute(values, "value"), compute(updates, "update_op")
        return collect(value, update, values_in, updates_in)


@export("metrics.precision_at_thresholds")
def precision_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return, for each threshold, the fraction of predictions above it whose labels are true."""

    def compute(c: Counts, name: str) -> Tensor:
        hits, misses = c["true_positives"], c["false_positives"]
        return b.div(hits, _EPSILON + hits + misses, name=f"precision_{name}")

    given = labels, predictions, thresholds, weights, metrics_collections, updates_collections
    kinds = "true_positives", "false_positives"
    return _computed("precision_at_thresholds", compute, *given, name, kinds)


@export("metrics.recall_at_thresholds")
def recall_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return, for each threshold, the fraction of true labels whose predictions are above it."""

    def compute(c: Counts, name: str) -> Tensor:
        hits, misses = c["true_positives"], c["false_negatives"]
        return b.div(hits, _EPSILON + hits + misses, name=f"recall_{name}")

    given = labels, predictions, thresholds, weights, metrics_collections, updates_collections
    kinds = "true_positives", "false_negatives"
    return _computed("recall_at_thresholds", compute, *given, name, kinds)


def _spread(count: int) -> list[float]:
    """Return equally spaced thresholds from just below 0 to just above 1."""
    inner = [(i + 1) / (count - 1) for i in range(count - 2)]
    return [-_EPSILON, *inner, 1.0 + _EPSILON]


@export("metrics.sensitivity_at_specificity")
def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the sensitivity (the fraction of true labels predicted positive) at the threshold
    whose specificity (the fraction of false labels predicted negative) is nearest to `specificity`.
    """
    _check_share(specificity, "specificity")

    def compute(c: Counts, name: str) -> Tensor:
        tn, fp = c["true_negatives"], c["false_positives"]
        distance = b.abs(b.div(tn, tn + fp + _EPSILON) - specificity)
        at = b.cast(b.argmin(distance, 0), dtypes.int32)
        hits, misses = c["true_positives"][at], c["false_negatives"][at]
        return b.div(hits, hits + misses + _EPSILON, name)

    given = labels, predictions, _spread(num_thresholds), weights
    collections = metrics_collections, updates_collections
    return _computed("sensitivity_at_specificity", compute, *given, *collections, name)


@export("metrics.specificity_at_sensitivity")
def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the specificity (the fraction of false labels predicted negative) at the highest of
    the thresholds whose sensitivity (the fraction of true labels predicted positive) is nearest to
    `sensitivity`.
    """
    _check_share(sensitivity, "sensitivity")

    def compute(c: Counts, name: str) -> Tensor:
        tp, fn = c["true_positives"], c["false_negatives"]
        distance = b.abs(b.div(tp, tp + fn + _EPSILON) - sensitivity)
        nearest = b.cast(b.equal(distance, b.reduce_min(distance)), dtypes.int64)
        at = b.cast(b.argmax(b.cumsum(nearest), 0), dtypes.int32)  # the last of them
        hits, misses = c["true_negatives"][at], c["false_positives"][at]
        return b.div(hits, hits + misses + _EPSILON, name)

    given = labels, predictions, _spread(num_thresholds), weights
    collections = metrics_collections, updates_collections
    return _computed("specificity_at_sensitivity", compute, *given, *collections, name)


def _check_share(value: float, name: str) -> None:
    if value < 0 or value > 1:
        raise ValueError(f"`{name}` must be in the range [0, 1].")


# -- Areas -----------------------------------------------------------------------------------------


@export("metrics.auc")
def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> Metric:
    """Return the area under the ROC curve (true over false positive rate) or, for curve 'PR', the
    one of precision over recall, approximated by counts at thresholds.

    summation_method: 'trapezoidal', 'minoring' or 'majoring' (the lower or the higher of two
    neighbours), or, for PR, 'careful_interpolation' (Davis and Goadrich, 2006).
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    if summation_method not in _SUMMATIONS:
        raise ValueError(f"Invalid summation_method: {summation_method}")
    if thresholds is None:
        limits = _spread(num_thresholds)
    else:
        if any(not 0 <= t <= 1 for t in thresholds):
            raise ValueError("thresholds must be in [0, 1]")
        limits = [-_EPSILON, *sorted(thresholds), 1.0 + _EPSILON]

    def compute(c: Counts, name: str) -> Tensor:
        if curve == "PR" and summation_method == "careful_interpolation":
            return _interpolated(c, name)
        x, y = _points(c, curve)
        return b.reduce_sum(
            b.multiply(x[:-1] - x[1:], _SUMMATIONS[summation_method](y[:-1], y[1:])), name=name
        )

    given = labels, predictions, limits, weights
    return _computed("auc", compute, *given, metrics_collections, updates_collections, name)


_SUMMATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "trapezoidal": lambda y, z: (y + z) / 2.0,
    "careful_interpolation": lambda y, z: (y + z) / 2.0,
    "minoring": lambda y, z: b.minimum(y, z),
    "majoring": lambda y, z: b.maximum(y, z),
}


def _points(c: Counts, curve: str, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return the curve's points, from low to high thresholds."""
    tp, fn, tn, fp = (c[kind] for kind in _KINDS)
    recall = b.div(tp + epsilon, tp + fn + epsilon)
    if curve == "ROC":
        return b.div(fp, fp + tn + epsilon), recall
    return recall, b.div(tp + epsilon, tp + fp + epsilon)


def _interpolated(c: Counts, name: str) -> Tensor:
    """Return the area under precision over recall, if true and all positives grow in proportion
    from one threshold to the next.
    """
    tp, fn, fp = c["true_positives"], c["false_negatives"], c["false_positives"]
    positives = tp + fp
    more, less = positives[:-1], positives[1:]
    gain = tp[:-1] - tp[1:]
    slope = b.div_no_nan(gain, b.maximum(more - less, 0))
    intercept = tp[1:] - b.multiply(slope, less)
    ratio = b.where(
        b.logical_and(more > 0, less > 0),
        b.div_no_nan(more, b.maximum(less, 0)),
        b.ones_like(less),
    )
    areas = b.div_no_nan(slope * (gain + intercept * b.log(ratio)), b.maximum(tp[1:] + fn[1:], 0))
    return b.reduce_sum(areas, name=name)
