"""Metrics of the k best predictions: precision, recall, and average precision, which also takes the
ranks of the right ones into account.

Labels are a set of classes per example: a tensor or SparseTensor [..., labels], or [...] for one
label each. Predictions are numbers [..., classes], of which the k largest count; the metrics "at
top k" get classes instead, [..., k]. Sums are float64; where there is nothing to find, the result
is NaN.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import float64, int32, int64
from headrace._src.core.export import export
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers.metrics.metric_variables import Metric, collect, metric_variable
from headrace._src.layers.weights import assert_broadcastable, broadcast_weights
from headrace._src.ops.base.conversion_registry import convert_to_tensor_or_sparse_tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.sparse.set_ops import set_difference, set_intersection, set_size
from headrace._src.variables.scope import variable_scope

__all__ = [
    "average_precision_at_k",
    "precision_at_k",
    "precision_at_top_k",
    "recall_at_k",
    "recall_at_top_k",
]


@export("metrics.precision_at_k", "metrics.sparse_precision_at_k")
def precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of the k largest predictions that are labels; for one class only, if
    `class_id` is given.
    """
    with variable_scope(name, _named("precision", k, class_id), (predictions, labels, weights)):
        found = _largest(predictions, k)
        value, update = _ratio("false_positive", labels, found, k, class_id, weights)
        return collect(value, update, metrics_collections, updates_collections)


@export("metrics.precision_at_top_k")
def precision_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """As precision_at_k, for the classes `predictions_idx`; `k` is used only in names."""
    inputs = (predictions_idx, labels, weights)
    with variable_scope(name, _named("precision", k, class_id), inputs):
        value, update = _ratio("false_positive", labels, predictions_idx, k, class_id, weights)
        return collect(value, update, metrics_collections, updates_collections)


@export("metrics.recall_at_k")
def recall_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of the labels that are among the k largest predictions; for one class
    only, if `class_id` is given.
    """
    with variable_scope(name, _named("recall", k, class_id), (predictions, labels, weights)):
        found = _largest(predictions, k)
        value, update = _ratio("false_negative", labels, found, k, class_id, weights)
        return collect(value, update, metrics_collections, updates_collections)


@export("metrics.recall_at_top_k")
def recall_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """As recall_at_k, for the classes `predictions_idx`; `k` is used only in names."""
    with variable_scope(name, _named("recall", k, class_id), (predictions_idx, labels, weights)):
        value, update = _ratio("false_negative", labels, predictions_idx, k, class_id, weights)
        return collect(value, update, metrics_collections, updates_collections)


@export("metrics.average_precision_at_k", "metrics.sparse_average_precision_at_k")
def average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over examples of the mean of the precisions at those of the ranks 1, 2, ... k
    that hold a label.
    """
    if k < 1:
        raise ValueError(f"Invalid k={k}.")
    with variable_scope(name, _named("average_precision", k), (predictions, labels, weights)):
        predictions = convert_to_tensor(predictions)
        top = _largest(predictions, k)
        known = _known_classes(_sets(labels, top), b.shape(predictions)[-1])
        precision = _average_precision(known, top, k)
        with name_scope(None, "max") as scope:
            most = metric_variable([], float64, name=scope)
        with name_scope(None, "total") as scope:
            total = metric_variable([], float64, name=scope)
        number = b.cast(b.size(precision), float64)
        if weights is not None:
            weights = broadcast_weights(b.cast(weights, float64), precision)
            precision, number = precision * weights, b.reduce_sum(weights)
        updates = b.assign_add(total, b.reduce_sum(precision)), b.assign_add(most, number)
        value = b.div_no_nan(total, most, name="mean")
        update = b.div_no_nan(*updates, name=_here())
        return collect(value, update, metrics_collections, updates_collections)


# -- Sets ------------------------------------------------------------------------------------------


def _named(name: str, k: int | None, class_id: int | None = None) -> str:
    name = f"{name}_at_k" if k is None else f"{name}_at_{k}"
    return name if class_id is None else f"{name}_class{class_id}"


def _here() -> str:
    """Return the current name scope as a name: TensorFlow names a result after its metric."""
    return f"{get_default_graph().get_name_scope()}/"


def _largest(predictions: Any, k: int) -> Tensor:
    return b.cast(b.top_k(predictions, k)[1], int64)


def _sets(labels: Any, found: Tensor) -> Any:
    """Return labels, with a last dimension of size 1 if they have none."""
    labels = convert_to_tensor_or_sparse_tensor(labels)
    labels = b.cast(labels, int64)
    rank, wanted = labels.shape.ndims, found.shape.ndims
    if rank is None or wanted is None:
        if isinstance(labels, SparseTensor):
            raise ValueError("the ranks of sparse labels and of predictions have to be known")
        return b.cond(
            b.equal(b.rank(labels), b.rank(found)),
            lambda: labels,
            lambda: b.expand_dims(labels, -1),
        )
    if rank != wanted - 1:
        return labels
    if isinstance(labels, SparseTensor):
        return b.sparse_reshape(labels, b.concat([labels.dense_shape, [1]], 0))
    return b.expand_dims(labels, -1)


def _of_class(sets: Any, class_id: int) -> SparseTensor:
    """Return the elements of sets that are of one class."""
    if isinstance(sets, SparseTensor):
        return b.sparse_retain(sets, b.equal(sets.values, class_id))
    only = b.fill(b.concat([b.shape(sets)[:-1], [1]], 0), b.cast(class_id, sets.dtype))
    return set_intersection(only, sets)


def _ratio(
    missed: str, labels: Any, found: Any, k: int | None, class_id: int | None, weights: Any
) -> tuple[Tensor, Tensor]:
    """Return true positives / (true positives + `missed`) over all batches, and its update."""
    found = b.cast(convert_to_tensor(found), int64)
    labels = _sets(labels, found)
    if class_id is not None:
        labels, found = _of_class(labels, class_id), _of_class(found, class_id)
    right, new_right = _counted("true_positive", labels, found, k, class_id, weights)
    wrong, new_wrong = _counted(missed, labels, found, k, class_id, weights)
    value = b.div(right, b.add(right, wrong), name=_here())
    return value, b.div(new_right, b.add(new_right, new_wrong), name="update")


def _counted(
    kind: str, labels: Any, found: Any, k: int | None, class_id: int | None, weights: Any
) -> tuple[Any, Tensor]:
    """Return a counter variable, and its update."""
    with name_scope(None, _named(kind, k, class_id)) as scope:
        number = b.cast(set_size(_CHOSEN[kind](found, labels)), float64)
        if weights is not None:
            with control_dependencies([assert_broadcastable(weights, number)]):
                number = number * b.cast(weights, float64)
        variable = metric_variable([], float64, name=scope)
        return variable, b.assign_add(variable, b.reduce_sum(number), name="update")


_CHOSEN = {
    "true_positive": set_intersection,
    "false_positive": lambda found, labels: set_difference(found, labels, aminusb=True),
    "false_negative": lambda found, labels: set_difference(found, labels, aminusb=False),
}


# -- Average precision -----------------------------------------------------------------------------


def _known_classes(labels: Any, classes: Tensor) -> Any:
    """Return labels in which -1, which no prediction equals, replaces values that aren't
    classes.
    """
    if isinstance(labels, SparseTensor):
        known = _known_classes(labels.values, classes)
        return SparseTensor(labels.indices, known, labels.dense_shape)
    classes = b.cast(classes, int64)
    return b.cond(
        b.greater_equal(b.reduce_max(labels), classes),
        lambda: b.where(b.less(labels, classes), labels, -b.ones_like(labels)),
        lambda: labels,
    )


def _average_precision(labels: Any, top: Tensor, k: int) -> Tensor:
    """Return the average precision of each example."""
    relevant = b.cast(set_size(_hits(labels, top, k)), float64)
    count = b.cumsum(b.ones_like(relevant), axis=-1)
    precision = b.cumsum(relevant, axis=-1) / count * relevant
    possible = b.minimum(_label_count(labels), k)
    return b.reduce_sum(precision, -1) / b.cast(possible, float64)


def _hits(labels: Any, top: Tensor, k: int) -> SparseTensor:
    """Return, for each rank of each example, the set of its class if that's a label."""
    each = b.expand_dims(top, -1)
    if not isinstance(labels, SparseTensor):
        labels = b.expand_dims(labels, -2)
        ones = b.ones_like(b.shape(labels))
        return set_intersection(each, b.tile(labels, b.concat([ones[:-2], [k, 1]], 0)))
    shape = labels.dense_shape
    wider = b.concat([shape[:-1], [1], shape[-1:]], 0)
    copies = [b.sparse_reshape(labels, wider)] * k
    return set_intersection(each, b.sparse_concat(-2, copies))


def _label_count(labels: Any) -> Tensor:
    if isinstance(labels, SparseTensor):
        return set_size(labels)
    return b.reduce_sum(b.cast(b.greater_equal(labels, 0), int32), -1)
