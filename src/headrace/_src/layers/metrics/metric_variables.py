"""The common parts of metrics: counter variables, inputs of one shape, and results.

A metric is a pair: a value, computed from the counts so far, and an operation that counts a batch
and returns the new value. Its variables are local, and in METRIC_VARIABLES.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.layers.weights import may_end_in_one
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.variable import Variable

__all__ = ["aligned", "collect", "metric_variable"]

Metric = tuple[Any, Any]


def metric_variable(shape: Any, dtype: Any = float32, name: str | None = None) -> Any:
    """Return a variable that starts with zeros and isn't saved or trained."""
    return Variable(
        lambda: b.zeros(shape, dtype),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        name=name,
        synchronization=VariableSynchronization.ON_READ,
        aggregation=VariableAggregation.SUM,
    )


def collect(value: Any, update: Any, metrics_collections: Any, updates_collections: Any) -> Metric:
    """Return a metric, after adding its parts to collections."""
    graph = get_default_graph()
    if metrics_collections:
        graph.add_to_collections(metrics_collections, value)
    if updates_collections:
        graph.add_to_collections(updates_collections, update)
    return value, update


def aligned(predictions: Any, labels: Any, weights: Any) -> tuple[Tensor, Any, Any]:
    """Return predictions, labels and weights (both may be None) with equal rank: a superfluous last
    dimension of size 1 is removed, and a missing one is added to weights.
    """
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        labels, predictions = b.remove_squeezable_dimensions(labels, predictions)
        predictions.shape.assert_is_compatible_with(labels.shape)
    if weights is None:
        return predictions, labels, None
    weights = convert_to_tensor(weights)
    rank, wanted = weights.shape.ndims, predictions.shape.ndims
    if rank == 0:
        return predictions, labels, weights
    if rank is not None and wanted is not None:
        if rank - wanted == 1:
            weights = b.squeeze(weights, [-1])
        elif wanted - rank == 1:
            weights = b.expand_dims(weights, [-1])
        return predictions, labels, weights
    return predictions, labels, _aligned_in_step(weights, b.rank(predictions))


def _aligned_in_step(weights: Tensor, wanted: Tensor) -> Tensor:
    """Handle weights of unknown rank, or for values of unknown rank."""
    rank = b.rank(weights)
    extra = rank - wanted

    def narrowed() -> Tensor:
        return b.squeeze(weights, [-1]) if may_end_in_one(weights.shape) else weights

    def fitted() -> Tensor:
        return b.cond(b.equal(extra, 1), narrowed, widened)

    def widened() -> Tensor:
        return b.cond(b.equal(extra, -1), lambda: b.expand_dims(weights, [-1]), lambda: weights)

    return b.cond(b.equal(rank, 0), lambda: weights, fitted)
