"""The metrics of heads, under the names that evaluate() returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace._src.layers.metrics import confusions, curves, means
from headrace._src.layers.weights import broadcast_weights
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["binary_metrics", "class_metrics", "label_metrics", "number_metrics"]


def _mean(values: Any, weights: Any, name: str, inner: str) -> Any:
    with name_scope(name, None, (values, weights)) as scope:
        values = b.to_float(values, name=inner)
        return means.mean(values, weights=broadcast_weights(weights, values), name=scope)


def _auc(labels: Any, predictions: Any, weights: Any, curve: str, name: str) -> Any:
    with name_scope(name, None, (predictions, labels, weights)) as scope:
        predictions = b.to_float(predictions, name="predictions")
        weights = broadcast_weights(weights, predictions)
        return curves.auc(labels, predictions, weights=weights, curve=curve, name=scope)


def _baseline(labels_mean: Any) -> Any:
    """Return the accuracy of always predicting the more frequent class."""
    with name_scope(None, "accuracy_baseline", labels_mean):
        value, update = labels_mean
        return (
            b.maximum(value, 1.0 - value, name="value"),
            b.maximum(update, 1 - update, name="update_op"),
        )


def class_metrics(labels: Any, class_ids: Any, weights: Any, losses: Any) -> dict[str, Any]:
    """Return the metrics of several classes: the average loss, and the accuracy."""
    with name_scope(None, "metrics", (labels, class_ids, weights, losses)):
        return {
            "average_loss": means.mean(losses, weights=weights, name="average_loss"),
            "accuracy": means.accuracy(labels, class_ids, weights=weights, name="accuracy"),
        }


def binary_metrics(
    labels: Any,
    logistic: Any,
    class_ids: Any,
    weights: Any,
    losses: Any,
    thresholds: Sequence[float] = (),
) -> dict[str, Any]:
    """Return the metrics of two classes: of the predicted class, and of its probability."""
    with name_scope(None, "metrics", (labels, logistic, class_ids, weights, losses)):
        labels_mean = _mean(labels, weights, "label/mean", "labels")

        def compared(metric: Callable[..., Any], name: str) -> Any:
            return metric(labels, class_ids, weights=weights, name=name)

        return {
            "average_loss": means.mean(losses, weights=weights, name="average_loss"),
            "accuracy": compared(means.accuracy, "accuracy"),
            "precision": compared(confusions.precision, "precision"),
            "recall": compared(confusions.recall, "recall"),
            "prediction/mean": _mean(logistic, weights, "prediction/mean", "predictions"),
            "label/mean": labels_mean,
            "accuracy_baseline": _baseline(labels_mean),
            "auc": _auc(labels, logistic, weights, "ROC", "auc"),
            "auc_precision_recall": _auc(labels, logistic, weights, "PR", "auc_precision_recall"),
            **_at_thresholds(labels, logistic, weights, thresholds),
        }


def _at_thresholds(
    labels: Any, predictions: Any, weights: Any, thresholds: Sequence[float]
) -> dict[str, Any]:
    """Return the binary metrics of predictions, positive above a threshold."""
    found: dict[str, Any] = {}
    for threshold in thresholds:
        end = f"positive_threshold_{threshold:g}"
        for key, metric in (
            ("precision", curves.precision_at_thresholds),
            ("recall", curves.recall_at_thresholds),
        ):
            with name_scope(f"{key}/{end}", None, (predictions, labels, weights)) as scope:
                value, update = metric(
                    labels, predictions, thresholds=(threshold,), weights=weights, name=scope
                )
                found[f"{key}/{end}"] = b.squeeze(value), b.squeeze(update)
        with name_scope(f"accuracy/{end}", None, (predictions, labels, weights)) as scope:
            above = b.to_float(b.greater_equal(predictions, threshold))
            found[f"accuracy/{end}"] = means.accuracy(labels, above, weights=weights, name=scope)
    return found


def label_metrics(
    labels: Any,
    probabilities: Any,
    weights: Any,
    losses: Any,
    thresholds: Sequence[float],
    classes: Mapping[int, str],
) -> dict[str, Any]:
    """Return the metrics of multiple labels: of all of them, and of each of `classes`, by name."""
    with name_scope(None, "metrics", (labels, probabilities, weights, losses)):
        found = {
            "average_loss": means.mean(losses, weights=weights, name="average_loss"),
            "auc": _auc(labels, probabilities, weights, "ROC", "auc"),
            "auc_precision_recall": _auc(
                labels, probabilities, weights, "PR", "auc_precision_recall"
            ),
            **_at_thresholds(labels, probabilities, weights, thresholds),
        }
        for index, name in classes.items():
            wanted = b.expand_dims(labels[:, index], -1)
            given = b.expand_dims(probabilities[:, index], -1)
            key = f"probability_mean/{name}"
            found[key] = _mean(given, weights, key, "predictions")
            for key, curve in (("auc", "ROC"), ("auc_precision_recall", "PR")):
                key = f"{key}/{name}"
                found[key] = _auc(wanted, given, weights, curve, key)
        return found


def number_metrics(labels: Any, predicted: Any, weights: Any, losses: Any) -> dict[str, Any]:
    """Return the metrics of regression: the average loss, and the means of predictions and
    labels.
    """
    return {
        "average_loss": means.mean(losses, weights=weights),
        "prediction/mean": _mean(predicted, weights, "prediction/mean", "predictions"),
        "label/mean": means.mean(labels, weights=weights),
    }
