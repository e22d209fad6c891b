"""Columns of sequences: any number of steps per example, each with numbers or with categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.estimator.columns import categorical
from headrace._src.estimator.columns.column_base import (
    CategoricalColumn,
    Ids,
    Inputs,
    SequenceColumn,
    Steps,
    sequence_lengths,
)
from headrace._src.estimator.columns.numeric import (
    check_normalizer,
    check_number_dtype,
    check_shape,
)
from headrace._src.graph.composite import SparseTensor
from headrace._src.ops.base.define import b
from headrace._src.ops.io.example_ops import VarLenFeature

__all__ = [
    "SequenceCategoricalColumn",
    "SequenceNumericColumn",
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_numeric_column",
]


@dataclass(frozen=True)
class SequenceNumericColumn(SequenceColumn):
    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: DType
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape.of(self.shape)

    def transform(self, inputs: Inputs) -> SparseTensor:
        feature = inputs.get(self.key)
        return feature if self.normalizer_fn is None else self.normalizer_fn(feature)

    def sequence(self, inputs: Inputs) -> Steps:
        numbers = inputs.get(self)
        dense = b.sparse_tensor_to_dense(numbers, default_value=self.default_value)
        shape = b.concat([b.shape(dense)[:1], [-1], self.variable_shape], axis=0)
        dense = b.reshape(dense, shape)
        # A matrix holds the numbers of all steps in each row; a tensor of higher rank has an axis
        # of steps.
        per_step = self.variable_shape.num_elements() if numbers.shape.ndims == 2 else 1
        return Steps(dense, sequence_lengths(numbers, per_step or 1))


@dataclass(frozen=True)
class SequenceCategoricalColumn(CategoricalColumn):
    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return self.categorical_column.name

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def transform(self, inputs: Inputs) -> Any:
        return self.categorical_column.transform(inputs)

    def ids(self, inputs: Inputs) -> Ids:
        """Return the ids with three dimensions: example, step, and position within the step."""
        ids, weights = self.categorical_column.ids(inputs)
        shape = b.shape(ids)
        target = [shape[0], shape[1], b.reduce_prod(shape[2:])]
        ids = b.sparse_reshape(ids, target)
        if weights is not None:
            weights = b.sparse_reshape(weights, target)
        return Ids(ids, weights)


@export("feature_column.sequence_numeric_column")
def sequence_numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: float = 0.0,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> SequenceNumericColumn:
    """Return a column of numbers of `shape` for each step; `default_value` pads shorter
    sequences.
    """
    sizes = check_shape(shape, key)
    kind = check_number_dtype(dtype, key)
    check_normalizer(normalizer_fn)
    return SequenceNumericColumn(key, sizes, default_value, kind, normalizer_fn)


@export("feature_column.sequence_categorical_column_with_identity")
def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """categorical_column_with_identity, for each step."""
    return SequenceCategoricalColumn(
        categorical.categorical_column_with_identity(key, num_buckets, default_value)
    )


@export("feature_column.sequence_categorical_column_with_hash_bucket")
def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> SequenceCategoricalColumn:
    """categorical_column_with_hash_bucket, for each step."""
    return SequenceCategoricalColumn(
        categorical.categorical_column_with_hash_bucket(key, hash_bucket_size, dtype)
    )


@export("feature_column.sequence_categorical_column_with_vocabulary_file")
def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: Any,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> SequenceCategoricalColumn:
    """categorical_column_with_vocabulary_file, for each step."""
    return SequenceCategoricalColumn(
        categorical.categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, num_oov_buckets, default_value, dtype
        )
    )


@export("feature_column.sequence_categorical_column_with_vocabulary_list")
def sequence_categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Any,
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> SequenceCategoricalColumn:
    """categorical_column_with_vocabulary_list, for each step."""
    return SequenceCategoricalColumn(
        categorical.categorical_column_with_vocabulary_list(
            key, vocabulary_list, dtype, default_value, num_oov_buckets
        )
    )
