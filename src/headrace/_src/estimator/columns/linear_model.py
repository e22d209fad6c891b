"""A linear model of columns. In: features, and columns of any kind. Out: for each example, the
weighted sum of its columns' values, plus a bias.

A categorical column has a weight per id, a dense one a weight per number. `linear_model` is
tf.feature_column's function, which names variables as input_layer does; the canned estimators use
LinearModel, which keeps its variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.estimator.columns.column_base import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    Inputs,
    same_batch_size,
    sorted_columns,
)
from headrace._src.estimator.columns.embedded import EmbeddingColumn
from headrace._src.estimator.columns.input_layer import make_table, variable_collections
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.layers.layer import Layer
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = ["LinearModel", "OldLinearModel", "linear_model"]


def _check_kinds(columns: list[FeatureColumn], prefix: str) -> None:
    for column in columns:
        if not isinstance(column, DenseColumn | CategoricalColumn):
            raise ValueError(
                f"Items of feature_columns must be either a {prefix}DenseColumn or "
                f"{prefix}CategoricalColumn. Given: {column}"
            )


def _rows(column: Any) -> int:
    """Return how many weights a column needs for each unit."""
    if isinstance(column, CategoricalColumn):
        return column.num_buckets
    return column.variable_shape.num_elements()


def _weighted_sum(column: Any, inputs: Inputs, combiner: str, weights: Any) -> Tensor:
    if not isinstance(column, CategoricalColumn):
        tensor = column.dense(inputs)
        shape = (b.shape(tensor)[0], column.variable_shape.num_elements())
        return b.matmul(b.reshape(tensor, shape), weights, name="weighted_sum")
    ids, id_weights = column.ids(inputs)
    ids = b.sparse_reshape(ids, [b.shape(ids)[0], -1])
    if id_weights is not None:
        id_weights = b.sparse_reshape(id_weights, [b.shape(id_weights)[0], -1])
    return b.safe_embedding_lookup_sparse(
        weights, ids, sparse_weights=id_weights, combiner=combiner, name="weighted_sum"
    )


# ---- Variables in separate scopes ----------------------------------------------------------------


class _OldLayer(Layer):
    """A layer whose variables also join further collections."""

    def __init__(self, collections: list[str], trainable: bool, name: str) -> None:
        super().__init__(trainable=trainable, name=name)
        self._collections = collections

    def _add(self, name: str, shape: list[int]) -> Any:
        variable = self.add_weight(
            name, shape, initializer=Zeros(), trainable=self.trainable, use_resource=True
        )
        parts = list(variable) if isinstance(variable, PartitionedVariable) else [variable]
        for key in self._collections:
            if key != GraphKeys.GLOBAL_VARIABLES:  # where it is already
                for part in parts:
                    get_default_graph().add_to_collection(key, part)
        return variable


class _ColumnLayer(_OldLayer):
    """The weighted sum of one column."""

    def __init__(
        self, column: Any, units: int, combiner: str, collections: list[str], *rest: Any
    ) -> None:
        super().__init__(collections, *rest)
        self.column, self._units, self._combiner = column, units, combiner

    def build(self, input_shape: Any) -> None:
        self._weights = self._add("weights", [_rows(self.column), self._units])
        self.built = True

    def call(self, inputs: Inputs) -> Tensor:
        return _weighted_sum(self.column, inputs, self._combiner, self._weights)


class _BiasLayer(_OldLayer):
    """The bias; the input of the layer is ignored."""

    def __init__(self, units: int, collections: list[str], trainable: bool) -> None:
        super().__init__(collections, trainable, "bias_layer")
        self._units = units

    def build(self, input_shape: Any) -> None:
        self._bias = self._add("bias_weights", [self._units])
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self._bias


class OldLinearModel:
    """The layer behind linear_model, and behind canned estimators whose columns share embeddings.

    State after the call: cols_to_vars, from columns, and 'bias', to lists of variables.
    """

    def __init__(
        self,
        feature_columns: Any,
        units: int = 1,
        sparse_combiner: str = "sum",
        weight_collections: Any = None,
        trainable: bool = True,
        name: str = "linear_model",
    ) -> None:
        columns = sorted_columns(feature_columns)
        _check_kinds(columns, "_")
        self.name = name
        self._collections = variable_collections(weight_collections)
        self._trainable = trainable
        self._layers = [
            _ColumnLayer(
                column, units, sparse_combiner, self._collections, trainable, _unused_name(column)
            )
            for column in columns
        ]
        self._bias = _BiasLayer(units, self._collections, trainable)
        self.cols_to_vars: dict[Any, list[Any]] = {}

    def __call__(self, features: Mapping[str, Any]) -> Tensor:
        inputs = Inputs(
            features, lambda column: make_table(column, self._trainable, self._collections)
        )
        layers = sorted(self._layers, key=lambda layer: layer.name)
        with name_scope(self.name), variable_scope(self.name):
            sums = []
            for layer in layers:
                sums.append(layer(inputs))
                self.cols_to_vars[layer.column] = get_default_graph().get_collection(
                    GraphKeys.GLOBAL_VARIABLES, layer.scope_name
                )
            same_batch_size(sums, [layer.column for layer in layers])
            total = b.add_n(sums, name="weighted_sum_no_bias")
            bias = self._bias(inputs, scope=get_variable_scope())
            predictions = b.bias_add(total, bias, name="weighted_sum")
            self.cols_to_vars["bias"] = self._bias.variables
        return predictions


def _unused_name(column: FeatureColumn) -> str:
    """Return a name for a column's scope that is unused in the current scope."""
    with variable_scope(None, default_name=column.scope_name) as scope:
        return scope.name.rsplit("/", 1)[-1]


@export("feature_column.linear_model")
def linear_model(
    features: Mapping[str, Any],
    feature_columns: Any,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Any = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Tensor:
    """Return the predictions [batch, units] of a linear model of columns.

    sparse_combiner: 'sum', 'mean' or 'sqrtn', of the ids of a categorical column.
    weight_collections: further collections for the variables. cols_to_vars: a dict that is filled
    with each column's variables, and with those of 'bias'.
    """
    with variable_scope(None, "linear_model") as scope:
        name = scope.name.rsplit("/", 1)[-1]
    model = OldLinearModel(
        feature_columns, units, sparse_combiner, weight_collections, trainable, name
    )
    predictions = model(features)
    if cols_to_vars is not None:
        cols_to_vars.update(model.cols_to_vars)
    return predictions


# ---- Variables that are kept ---------------------------------------------------------------------


class LinearModel:
    """A linear model that keeps its variables: `bias`, and `weights` of the columns."""

    def __init__(
        self,
        feature_columns: Any,
        units: int = 1,
        sparse_combiner: str = "sum",
        trainable: bool = True,
        name: str = "linear_model",
    ) -> None:
        self._columns = sorted_columns(feature_columns)
        _check_kinds(self._columns, "")
        self._units, self._combiner, self._trainable = units, sparse_combiner, trainable
        self.name = name
        self._tables: dict[FeatureColumn, Any] = {}
        self.weights: dict[FeatureColumn, Any] = {}
        self.bias: Any = None

    @property
    def variables(self) -> list[Any]:
        """All variables but the bias, in order of their columns' names."""
        return [
            variable
            for column in self._columns
            for variable in (self._tables.get(column), self.weights.get(column))
            if variable is not None
        ]

    def __call__(self, features: Mapping[str, Any]) -> Tensor:
        # TensorFlow has a model that holds a layer that opens a scope: three nested names.
        with name_scope(self.name), name_scope(self.name):
            if self.bias is None:
                self._build()
            with name_scope(self.name):
                return self._call(Inputs(features, self._tables.__getitem__))

    def _build(self) -> None:
        with variable_scope(self.name, auxiliary_name_scope=False):
            for column in self._columns:
                with variable_scope(column.name, auxiliary_name_scope=False):
                    if isinstance(column, EmbeddingColumn):
                        self._tables[column] = self._variable(
                            "embedding_weights",
                            column.table_shape,
                            column.initializer,
                            column.trainable,
                        )
                    shape = (_rows(column), self._units)
                    self.weights[column] = self._variable("weights", shape, Zeros())
            self.bias = self._variable("bias_weights", (self._units,), Zeros())

    def _variable(self, name: str, shape: Any, initializer: Any, trainable: bool = True) -> Any:
        return get_variable(
            name,
            shape=shape,
            dtype="float32",
            initializer=initializer,
            trainable=trainable and self._trainable,
            use_resource=True,
        )

    def _call(self, inputs: Inputs) -> Tensor:
        sums = []
        for column in self._columns:
            with name_scope(column.name):
                sums.append(_weighted_sum(column, inputs, self._combiner, self.weights[column]))
        same_batch_size(sums, self._columns)
        total = b.add_n(sums, name="weighted_sum_no_bias")
        return b.bias_add(total, self.bias, name="weighted_sum")
