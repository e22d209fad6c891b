"""A network of dense layers. In: features, and dense columns. Out: logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace._src.estimator.columns.input_layer import DenseFeatures, input_layer
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.graph.operation import Tensor
from headrace._src.layers.core import Dense, Dropout
from headrace._src.layers.layer import Layer
from headrace._src.layers.normalization import BatchNormalization
from headrace._src.ops.base.define import b
from headrace._src.ops.io import summary_functions
from headrace._src.variables.initializers import GlorotUniform
from headrace._src.variables.scope import VariableScope, variable_scope

__all__ = ["Network", "add_summaries"]


def add_summaries(value: Tensor, tag: str) -> None:
    """Add summaries of a layer's outputs: the fraction of zeros, and a histogram."""
    summary_functions.scalar(f"{tag}/fraction_of_zero_values", b.zero_fraction(value))
    summary_functions.histogram(f"{tag}/activation", value)


@dataclass(frozen=True)
class Network:
    """The parameters of a network: see the canned estimators."""

    columns: tuple[Any, ...]
    hidden_units: Sequence[int]
    activation_fn: Any
    dropout: float | None
    batch_norm: bool

    def logits(
        self, features: Mapping[str, Any], mode: str, units: int, input_partitioner: Any
    ) -> Tensor:
        """Build the network in the current variable scope."""
        # Make all layers before any operation: the names of scopes, and so of variables, depend on
        # it.
        hidden = [self._hidden(i, count) for i, count in enumerate(self.hidden_units)]
        with variable_scope("logits", use_resource=True) as scope:
            last, last_name = _dense(units, None, scope), scope.name
        training = mode == ModeKeys.TRAIN
        net = self._input(features, input_partitioner)
        for name, dense, dropout, norm in hidden:
            net = dense(net)
            if dropout is not None and training:
                net = dropout(net, training=True)
            if norm is not None:
                net = norm(net, training=training)
            add_summaries(net, name)
        result = last(net)
        add_summaries(result, last_name)
        return result

    def _hidden(self, index: int, units: int) -> tuple[str, Layer, Layer | None, Layer | None]:
        with variable_scope(f"hiddenlayer_{index}", use_resource=True) as scope:
            dense = _dense(units, self.activation_fn, scope)
            dropout = None if self.dropout is None else Dropout(rate=self.dropout)
            norm = None
            if self.batch_norm:
                name = f"batchnorm_{index}"
                norm = BatchNormalization(momentum=0.999, name=name, _scope=name)
            return scope.name, dense, dropout, norm

    def _input(self, features: Mapping[str, Any], partitioner: Any) -> Tensor:
        with variable_scope("input_from_feature_columns", partitioner=partitioner):
            if any(column.old_style for column in self.columns):
                return input_layer(features, self.columns)
            return DenseFeatures(self.columns, name="input_layer")(features)


def _dense(units: int, activation: Any, scope: VariableScope) -> Dense:
    return Dense(
        units,
        activation=activation,
        kernel_initializer=GlorotUniform(),
        name=scope.name,
        _scope=scope,
    )
