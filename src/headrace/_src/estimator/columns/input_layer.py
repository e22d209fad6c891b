"""Concatenate dense columns. In: features and dense columns. Out: a matrix, a row per example.

`input_layer` makes reference variables in its own scope, as tf.feature_column always did;
DenseFeatures, which the canned estimators use, and SequenceFeatures are objects with resource
variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.estimator.columns.column_base import (
    DenseColumn,
    FeatureColumn,
    Inputs,
    SequenceColumn,
    same_batch_size,
    sorted_columns,
)
from headrace._src.estimator.columns.embedded import EmbeddingColumn, SharedEmbeddingColumn
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = ["DenseFeatures", "SequenceFeatures", "input_layer", "make_table", "variable_collections"]


def variable_collections(collections: Any) -> list[str]:
    """Return the collections of a column's variables: the given ones, and the standard ones."""
    kept = list(collections or [])
    return kept + [
        key for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES) if key not in kept
    ]


def make_table(column: EmbeddingColumn, trainable: bool, collections: list[str]) -> Any:
    """Return a table in the current variable scope, or the one that a column shares."""
    shared = isinstance(column, SharedEmbeddingColumn)
    if shared:
        name = column.shared_embedding_collection_name
        kept = get_default_graph().get_collection(name)
        if kept:
            return _check_shared(name, kept, column.table_shape)
    table = get_variable(
        "embedding_weights",
        shape=column.table_shape,
        dtype="float32",
        initializer=column.initializer,
        trainable=column.trainable and trainable,
        collections=collections,
    )
    if shared:
        get_default_graph().add_to_collection(name, table)
    return table


def _check_shared(name: str, kept: list[Any], shape: tuple[int, int]) -> Any:
    fix = (
        "Suggested fix A: Choose a unique name for this collection. Suggested fix B: Do not add "
        "any variables to this collection. The feature_column library already adds a variable "
        "under the hood."
    )
    if len(kept) > 1:
        raise ValueError(f"Collection {kept} can only contain one variable. {fix}")
    if tuple(kept[0].shape.as_list()) != shape:
        raise ValueError(
            f"Shared embedding collection {name} contains variable {kept[0].name} of unexpected "
            f"shape {kept[0].shape}. Expected shape is {shape}. {fix}"
        )
    return kept[0]


@export("feature_column.input_layer")
def input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Any = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> Tensor:
    """Return the tensors of dense columns as one matrix, columns in order of their names.

    weight_collections: further collections for the variables. cols_to_vars and
    cols_to_output_tensors: dicts that are filled with each column's variables and tensor.
    """
    columns = sorted_columns(feature_columns)
    _check_kind(columns, DenseColumn, "_DenseColumn")
    collections = variable_collections(weight_collections)
    inputs = Inputs(features, lambda column: make_table(column, trainable, collections))
    outputs = []
    with variable_scope(None, default_name="input_layer", values=features.values()):
        for column in columns:
            with variable_scope(None, default_name=column.scope_name):
                tensor = column.dense(inputs)  # type: ignore[attr-defined]
                size = column.variable_shape.num_elements()  # type: ignore[attr-defined]
                outputs.append(b.reshape(tensor, (b.shape(tensor)[0], size)))
                if cols_to_vars is not None:
                    cols_to_vars[column] = get_default_graph().get_collection(
                        GraphKeys.GLOBAL_VARIABLES, get_variable_scope().name
                    )
                if cols_to_output_tensors is not None:
                    cols_to_output_tensors[column] = outputs[-1]
        same_batch_size(outputs, columns)
        return b.concat(outputs, 1)


def _check_kind(columns: list[FeatureColumn], kind: type, called: str) -> None:
    for column in columns:
        if not isinstance(column, kind):
            raise ValueError(
                f"Items of feature_columns must be a {called}. You can wrap a categorical column "
                f"with an embedding_column or indicator_column. Given: {column}"
            )


class _FeaturesLayer:
    """Columns with their own variables, made by the first call."""

    _default_name = ""
    _kind: type = FeatureColumn
    _called = ""

    def __init__(
        self, feature_columns: Any, trainable: bool = True, name: str | None = None
    ) -> None:
        self._columns = sorted_columns(feature_columns)
        _check_kind(self._columns, self._kind, self._called)
        self.trainable = trainable
        self.name = name or get_default_graph().unique_name(self._default_name, False)
        self._tables: dict[FeatureColumn, Any] | None = None

    @property
    def variables(self) -> list[Any]:
        """Return the tables, in order of the columns' names."""
        return list((self._tables or {}).values())

    def __call__(self, features: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        with name_scope(self.name):
            if self._tables is None:
                self._tables = self._build()
            return self.call(Inputs(features, self._tables.__getitem__), *args, **kwargs)

    def call(self, features: Inputs) -> Any:
        raise NotImplementedError

    def _build(self) -> dict[FeatureColumn, Any]:
        tables = {}
        with variable_scope(self.name, auxiliary_name_scope=False):
            for column in self._columns:
                with variable_scope(column.name, auxiliary_name_scope=False):
                    if isinstance(column, EmbeddingColumn):
                        tables[column] = _resource_table(column, self.trainable)
        return tables


def _resource_table(column: EmbeddingColumn, trainable: bool) -> Any:
    if column.old_style:
        raise ValueError(
            "shared_embedding_columns are not supported here. Please use input_layer or "
            f"linear_model instead. Given: {column}"
        )
    return get_variable(
        "embedding_weights",
        shape=column.table_shape,
        dtype="float32",
        initializer=column.initializer,
        trainable=column.trainable and trainable,
        use_resource=True,
    )


@export("keras.layers.DenseFeatures")
class DenseFeatures(_FeaturesLayer):
    """Dense columns as one matrix: `DenseFeatures(columns)(features)`."""

    _default_name = "dense_features"
    _kind = DenseColumn
    _called = "DenseColumn"

    def call(
        self, features: Inputs, cols_to_output_tensors: dict[Any, Any] | None = None
    ) -> Tensor:
        outputs = []
        for column in self._columns:
            with name_scope(column.name):
                tensor = column.dense(features)  # type: ignore[attr-defined]
                size = column.variable_shape.num_elements()  # type: ignore[attr-defined]
                outputs.append(b.reshape(tensor, (b.shape(tensor)[0], size)))
                if cols_to_output_tensors is not None:
                    cols_to_output_tensors[column] = outputs[-1]
        same_batch_size(outputs, self._columns)
        return b.concat(outputs, -1)


@export("keras.experimental.SequenceFeatures")
class SequenceFeatures(_FeaturesLayer):
    """Sequence columns as one tensor [batch, steps, values], with the sequences' lengths."""

    _default_name = "sequence_features"
    _kind = SequenceColumn
    _called = "SequenceDenseColumn"

    def call(self, features: Inputs) -> tuple[Tensor, Tensor]:
        outputs, lengths = [], []
        for column in self._columns:
            with name_scope(column.name):
                tensor, length = column.sequence(features)  # type: ignore[attr-defined]
                size = column.variable_shape.num_elements()  # type: ignore[attr-defined]
                shape = b.shape(tensor)
                outputs.append(b.reshape(tensor, (shape[0], shape[1], size)))
                lengths.append(length)
        same_batch_size(lengths, self._columns)
        length = _all_equal(lengths)
        same_batch_size(outputs, self._columns)
        return b.concat(outputs, -1), length


def _all_equal(lengths: list[Tensor]) -> Tensor:
    """Return the lengths on which all columns agree; otherwise the step fails."""
    with name_scope(None, "assert_all_equal", lengths):
        if len(lengths) == 1:
            return lengths[0]
        checks = [b.assert_equal(lengths[0], other) for other in lengths[1:]]
        with control_dependencies(checks):
            return b.identity(lengths[0])
