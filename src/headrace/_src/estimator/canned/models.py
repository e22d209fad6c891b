"""The model functions of canned estimators. In: features, labels, a head and the model's
parameters. Out: an EstimatorSpec.

Variables are named as in TensorFlow 1.15, so that checkpoints can be exchanged: those in the scopes
`dnn`, `linear` and `baseline` belong to that part of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace._src.estimator.canned.dnn import Network, add_summaries
from headrace._src.estimator.canned.heads import Head
from headrace._src.estimator.canned.linear import default_optimizer, linear_logits
from headrace._src.estimator.canned.optimizers import optimizer_of
from headrace._src.estimator.columns.numeric import NumericColumn
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.train.sessions.global_step import get_global_step
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.partition import min_max_variable_partitioner
from headrace._src.variables.scope import variable_scope

__all__ = ["baseline_model", "combined_model", "dnn_model", "linear_model"]

_TRAINED = GraphKeys.TRAINABLE_VARIABLES
_LARGE = 64 << 20  # the least size of a part, in bytes, of a partitioned table


def _check_features(features: Any) -> None:
    if not isinstance(features, dict):
        raise ValueError(
            f"features should be a dictionary of `Tensor`s. Given type: {type(features)}"
        )


def _partitioner(config: Any, min_slice_size: int = 256 << 10) -> Any:
    """Return the partitioner over parameter servers, of which there may be none."""
    count = config.num_ps_replicas if config else 0
    return min_max_variable_partitioner(max(count, 1), min_slice_size=min_slice_size)


def dnn_model(
    features: Mapping[str, Any],
    labels: Any,
    mode: str,
    config: Any,
    head: Head,
    network: Network,
    optimizer: Any,
    input_partitioner: Any = None,
) -> EstimatorSpec:
    """The model function of a network."""
    chosen = optimizer_of(optimizer, 0.05)
    _check_features(features)
    values = list(features.values())
    with variable_scope("dnn", values=values, partitioner=_partitioner(config)):
        input_partitioner = input_partitioner or _partitioner(config, _LARGE)
        logits = network.logits(features, mode, head.logits_dimension, input_partitioner)
        return head.create_estimator_spec(features, mode, logits, labels, chosen)


def linear_model(
    features: Mapping[str, Any],
    labels: Any,
    mode: str,
    config: Any,
    head: Head,
    columns: tuple[Any, ...],
    optimizer: Any,
    partitioner: Any,
    combiner: str,
) -> EstimatorSpec:
    """The model function of a linear model."""
    _check_features(features)
    partitioner = partitioner or _partitioner(config, _LARGE)
    with variable_scope("linear", values=list(features.values()), partitioner=partitioner):
        logits = linear_logits(features, columns, head.logits_dimension, combiner)
        chosen = optimizer_of(optimizer or default_optimizer(columns), 0.2)
        return head.create_estimator_spec(features, mode, logits, labels, chosen)


def combined_model(
    features: Mapping[str, Any],
    labels: Any,
    mode: str,
    config: Any,
    head: Head,
    network: Network,
    dnn_optimizer: Any,
    linear_columns: tuple[Any, ...],
    linear_optimizer: Any,
    combiner: str,
    input_partitioner: Any,
) -> EstimatorSpec:
    """The model function of a network and a linear model whose logits are added, each trained by
    its own optimizer.

    A part without columns is left out.
    """
    _check_features(features)
    input_partitioner = input_partitioner or _partitioner(config, _LARGE)
    values = list(features.values())
    parts: list[Tensor] = []
    trained: list[tuple[Any, str]] = []
    if network.columns:
        if not network.hidden_units:
            raise ValueError(
                "dnn_hidden_units must be defined when dnn_feature_columns is specified."
            )
        trained.append((optimizer_of(dnn_optimizer, 0.001), "dnn"))
        with variable_scope("dnn", values=values, partitioner=_partitioner(config)):
            logits = network.logits(features, mode, head.logits_dimension, input_partitioner)
            parts.append(logits)
    if linear_columns:
        rate = min(0.005, 1.0 / math.sqrt(len(linear_columns)))
        trained.append((optimizer_of(linear_optimizer, rate), "linear"))
        with variable_scope("linear", values=values, partitioner=input_partitioner) as scope:
            logits = linear_logits(features, linear_columns, head.logits_dimension, combiner)
            add_summaries(logits, scope.name)
            parts.append(logits)

    def train(loss: Tensor) -> Any:
        graph = get_default_graph()
        steps = [
            chosen.minimize(loss, var_list=graph.get_collection(_TRAINED, scope=scope))
            for chosen, scope in trained
        ]
        with control_dependencies([b.group(*steps)]):
            return get_global_step().assign_add(1).op

    logits = parts[0] + parts[1] if len(parts) == 2 else parts[0]
    return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train)


def baseline_model(
    features: Mapping[str, Any],
    labels: Any,
    mode: str,
    head: Head,
    optimizer: Any,
    weight_column: Any,
) -> EstimatorSpec:
    """The model function of a baseline, which learns the labels' distribution or mean."""
    _check_features(features)
    weight_key = weight_column.key if isinstance(weight_column, NumericColumn) else weight_column
    sizes, checks = [], []
    for key, feature in features.items():
        if key != weight_key:
            sizes.append(b.shape(feature)[0])
            if len(sizes) > 1:
                checks.append(b.assert_equal(sizes[0], sizes[-1]))
    if not sizes:
        raise ValueError("A baseline model needs a feature, to know how many examples there are.")
    with control_dependencies(checks), variable_scope("baseline"):
        bias = get_variable("bias", shape=[head.logits_dimension], initializer=Zeros)
        logits = b.multiply(bias, b.ones([sizes[0], head.logits_dimension]))

    def train(loss: Tensor) -> Any:
        chosen = optimizer_of(optimizer, 0.3)
        return chosen.minimize(loss, global_step=get_global_step())

    return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train)
