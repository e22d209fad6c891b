"""Dense columns of categories: counts of each id (indicator), or learned rows of a table
(embedding).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.estimator.columns.categorical import WeightedCategoricalColumn
from headrace._src.estimator.columns.column_base import (
    CategoricalColumn,
    DenseColumn,
    Ids,
    Inputs,
    SequenceColumn,
    Steps,
    sequence_lengths,
)
from headrace._src.estimator.columns.sequence import SequenceCategoricalColumn
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.train.saving.checkpoint_init import init_from_checkpoint
from headrace._src.variables.initializers import TruncatedNormal

__all__ = [
    "EmbeddingColumn",
    "IndicatorColumn",
    "SharedEmbeddingColumn",
    "embedding_column",
    "indicator_column",
    "shared_embedding_columns",
]


class _OfCategories(DenseColumn, SequenceColumn):
    """A dense column made from a categorical one, which may be a sequence."""

    categorical_column: CategoricalColumn
    _made_by = "embedding_column"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    def _dense(self, inputs: Inputs) -> Tensor:
        raise NotImplementedError

    def dense(self, inputs: Inputs) -> Tensor:
        if isinstance(self.categorical_column, SequenceCategoricalColumn):
            raise ValueError(
                f"In {self._made_by}: {self.name}. categorical_column must not be of type "
                "SequenceCategoricalColumn. Suggested fix A: If you wish to use input_layer, use a "
                "non-sequence categorical_column_with_*. Suggested fix B: If you wish to create "
                f"sequence input, use SequenceFeatures. Given (type "
                f"{type(self.categorical_column)}): {self.categorical_column}"
            )
        return self._dense(inputs)

    def sequence(self, inputs: Inputs) -> Steps:
        if not isinstance(self.categorical_column, SequenceCategoricalColumn):
            raise ValueError(
                f"In {self._made_by}: {self.name}. categorical_column must be of type "
                "SequenceCategoricalColumn to use SequenceFeatures. Suggested fix: Use one of "
                f"sequence_categorical_column_with_*. Given (type "
                f"{type(self.categorical_column)}): {self.categorical_column}"
            )
        dense = self._dense(inputs)
        return Steps(dense, sequence_lengths(self.categorical_column.ids(inputs).id_tensor))


# ---- Counts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndicatorColumn(_OfCategories):
    categorical_column: CategoricalColumn
    _made_by = "indicator_column"

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape.of((1, self.categorical_column.num_buckets))

    def transform(self, inputs: Inputs) -> Tensor:
        ids, weights = self.categorical_column.ids(inputs)
        buckets = self.categorical_column.num_buckets
        if weights is not None:
            merged = b.sparse_merge(ids, weights, vocab_size=buckets)
            # Ids beyond the last bucket or below the first are dropped.
            kept = b.sparse_slice(merged, [0, 0], merged.dense_shape)
            return b.scatter_nd(kept.indices, kept.values, kept.dense_shape)
        dense = b.sparse_tensor_to_dense(ids, default_value=-1)
        hot = b.one_hot(dense, buckets, on_value=1.0, off_value=0.0)
        return b.reduce_sum(hot, axis=[-2])

    def _dense(self, inputs: Inputs) -> Tensor:
        return inputs.get(self)


@export("feature_column.indicator_column")
def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """Return a column that counts each id of another column in an example, or sums its weights."""
    return IndicatorColumn(categorical_column)


# ---- Embeddings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmbeddingColumn(_OfCategories):
    categorical_column: CategoricalColumn
    dimension: int
    combiner: str
    initializer: Callable[..., Any]
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_embedding"

    @property
    def table_shape(self) -> tuple[int, int]:
        return self.categorical_column.num_buckets, self.dimension

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape.of((self.dimension,))

    def transform(self, inputs: Inputs) -> Any:
        return inputs.get(self.categorical_column)

    def _dense(self, inputs: Inputs) -> Tensor:
        ids = self.categorical_column.ids(inputs)
        return self._combined(ids, inputs.weights(self))

    def _combined(self, ids: Ids, table: Any) -> Tensor:
        if self.ckpt_to_load_from is not None:
            init_from_checkpoint(self.ckpt_to_load_from, {self.tensor_name_in_ckpt or "": table})
        return b.safe_embedding_lookup_sparse(
            table,
            ids.id_tensor,
            sparse_weights=ids.weight_tensor,
            combiner=self.combiner,
            name=f"{self.name}_weights",
            max_norm=self.max_norm,
        )


@dataclass(frozen=True)
class SharedEmbeddingColumn(EmbeddingColumn):
    """One of several columns that share one table, stored in a collection of the graph."""

    shared_embedding_collection_name: str
    old_style = True

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_shared_embedding"

    @property
    def scope_name(self) -> str:
        return self.shared_embedding_collection_name

    def _dense(self, inputs: Inputs) -> Tensor:
        with name_scope(None, default_name=self.name):
            return super()._dense(inputs)


def _check_embedding(
    dimension: Any, ckpt: Any, tensor_name: Any, initializer: Any, where: str = ""
) -> Callable[..., Any]:
    """Check the common arguments of embeddings; return the initializer to use."""
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}.")
    if (ckpt is None) != (tensor_name is None):
        raise ValueError(
            "Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them."
        )
    if initializer is None:
        return TruncatedNormal(mean=0.0, stddev=1 / math.sqrt(dimension))
    if not callable(initializer):
        raise ValueError(f"initializer must be callable if specified.{where}")
    return initializer


@export("feature_column.embedding_column")
def embedding_column(
    categorical_column: CategoricalColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> EmbeddingColumn:
    """Return a column of learned vectors of size `dimension`, one for each id; those of an example
    are combined.

    combiner: 'mean', 'sqrtn' or 'sum'. initializer: of the table; if None, truncated normal with
    deviation 1/sqrt(dimension). ckpt_to_load_from, tensor_name_in_ckpt: the table's initial value.
    max_norm: longer vectors are scaled down to this norm.
    """
    where = f" Embedding of column_name: {getattr(categorical_column, 'name', '')}"
    chosen = _check_embedding(dimension, ckpt_to_load_from, tensor_name_in_ckpt, initializer, where)
    return EmbeddingColumn(
        categorical_column,
        dimension,
        combiner,
        chosen,
        ckpt_to_load_from,
        tensor_name_in_ckpt,
        max_norm,
        trainable,
    )


@export("feature_column.shared_embedding_columns")
def shared_embedding_columns(
    categorical_columns: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> list[SharedEmbeddingColumn]:
    """Return embedding columns, one for each of `categorical_columns`, that share one table."""
    chosen = _check_embedding(dimension, ckpt_to_load_from, tensor_name_in_ckpt, initializer)
    columns = list(categorical_columns)
    ordered = sorted(columns, key=lambda column: column.name)
    _check_shareable(ordered)
    name = shared_embedding_collection_name
    if not name:
        name = "_".join(column.name for column in ordered) + "_shared_embedding"
    return [
        SharedEmbeddingColumn(
            column,
            dimension,
            combiner,
            chosen,
            ckpt_to_load_from,
            tensor_name_in_ckpt,
            max_norm,
            trainable,
            name,
        )
        for column in columns
    ]


def _check_shareable(columns: list[Any]) -> None:
    first, *others = map(_unweighted, columns)
    if not isinstance(first, CategoricalColumn):
        raise ValueError(
            "All categorical_columns must be subclasses of _CategoricalColumn. Given: "
            f"{first}, of type: {type(first)}"
        )
    for column in others:
        if not isinstance(column, type(first)):
            raise ValueError(
                "To use shared_embedding_column, all categorical_columns must have the same type, "
                "or be weighted_categorical_column of the same type. Given column: "
                f"{first} of type: {type(first)} does not match given column: {column} of type: "
                f"{type(column)}"
            )
        if column.num_buckets != first.num_buckets:
            raise ValueError(
                "To use shared_embedding_column, all categorical_columns must have the same "
                f"number of buckets. Given column: {first} with buckets: {first.num_buckets} does "
                f"not match column: {column} with buckets: {column.num_buckets}"
            )


def _unweighted(column: Any) -> Any:
    is_weighted = isinstance(column, WeightedCategoricalColumn)
    return column.categorical_column if is_weighted else column
