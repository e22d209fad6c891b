"""Categorical columns: map words and numbers to ids by a vocabulary, by a hash, or unchanged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core import dtypes, log
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.estimator.columns.column_base import (
    CategoricalColumn,
    Ids,
    Inputs,
    check_key,
    check_word_dtype,
    sparse_input,
)
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.ops.io.example_ops import VarLenFeature
from headrace._src.ops.state.vocabularies import index_table_from_file, index_table_from_tensor

__all__ = [
    "HashedCategoricalColumn",
    "IdentityCategoricalColumn",
    "VocabularyFileCategoricalColumn",
    "VocabularyListCategoricalColumn",
    "WeightedCategoricalColumn",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "weighted_categorical_column",
]


@dataclass(frozen=True)
class _KeyedColumn(CategoricalColumn):
    """A column of one raw feature, with the feature's name."""

    key: str

    @property
    def name(self) -> str:
        return self.key

    def _words(self, inputs: Inputs) -> SparseTensor:
        return sparse_input(inputs.get(self.key))

    def _check(self, words: SparseTensor, dtype: DType) -> None:
        check_word_dtype(words.dtype, f"column_name: {self.key} input_tensor")
        if dtype.is_integer != words.dtype.is_integer:
            raise ValueError(
                f"Column dtype and SparseTensors dtype must be compatible. key: {self.key}, "
                f"column dtype: {dtype}, tensor dtype: {words.dtype}"
            )


# ---- Hashes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HashedCategoricalColumn(_KeyedColumn):
    hash_bucket_size: int
    dtype: DType

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def transform(self, inputs: Inputs) -> SparseTensor:
        words = self._words(inputs)
        self._check(words, self.dtype)
        texts = words.values if self.dtype is dtypes.string else b.as_string(words.values)
        ids = b.string_to_hash_bucket_fast(texts, self.hash_bucket_size, name="lookup")
        return SparseTensor(words.indices, ids, words.dense_shape)


@export("feature_column.categorical_column_with_hash_bucket")
def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> HashedCategoricalColumn:
    """Return a column with ids by hash, for features with many values and no vocabulary."""
    if hash_bucket_size is None:
        raise ValueError(f"hash_bucket_size must be set. key: {key}")
    if hash_bucket_size < 1:
        raise ValueError(
            f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}"
        )
    check_key(key)
    kind = as_dtype(dtype)
    check_word_dtype(kind, f"column_name: {key}")
    return HashedCategoricalColumn(key, hash_bucket_size, kind)


# ---- Vocabularies --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _VocabularyColumn(_KeyedColumn):
    """Ids are positions in a vocabulary, followed by the ids of buckets for other words."""

    dtype: DType
    default_value: int
    num_oov_buckets: int

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    def transform(self, inputs: Inputs) -> SparseTensor:
        words = self._words(inputs)
        self._check(words, self.dtype)
        dtype = self.dtype
        if dtype.is_integer:
            dtype = dtypes.int64
            words = b.cast(words, dtypes.int64)
        return self._table(dtype, f"{self.key}_lookup").lookup(words)

    def _table(self, dtype: DType, name: str) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn(_VocabularyColumn):
    vocabulary_file: str
    vocabulary_size: int

    @property
    def num_buckets(self) -> int:
        return self.vocabulary_size + self.num_oov_buckets

    def _table(self, dtype: DType, name: str) -> Any:
        return index_table_from_file(
            vocabulary_file=self.vocabulary_file,
            num_oov_buckets=self.num_oov_buckets,
            vocab_size=self.vocabulary_size,
            default_value=self.default_value,
            key_dtype=dtype,
            name=name,
        )


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(_VocabularyColumn):
    vocabulary_list: tuple[Any, ...]

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary_list) + self.num_oov_buckets

    def _table(self, dtype: DType, name: str) -> Any:
        return index_table_from_tensor(
            vocabulary_list=self.vocabulary_list,
            default_value=self.default_value,
            num_oov_buckets=self.num_oov_buckets,
            dtype=dtype,
            name=name,
        )


def _check_buckets(count: int | None, has_default: bool, key: str) -> int:
    if count and has_default:
        raise ValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")
    if count and count < 0:
        raise ValueError(f"Invalid num_oov_buckets {count} in {key}.")
    return count or 0


@export("feature_column.categorical_column_with_vocabulary_file")
def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: Any,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> VocabularyFileCategoricalColumn:
    """Return a column whose ids are line numbers in a file.

    Words that aren't in it get `default_value` (-1, which drops them), or one of `num_oov_buckets`
    further ids, by their hash.
    """
    if not vocabulary_file:
        raise ValueError(f"Missing vocabulary_file in {key}.")
    path = os.fspath(vocabulary_file)
    if vocabulary_size is None:
        vocabulary_size = _count_lines(path, key)
    if vocabulary_size < 1:
        raise ValueError(f"Invalid vocabulary_size in {key}.")
    buckets = _check_buckets(num_oov_buckets, default_value is not None, key)
    kind = as_dtype(dtype)
    check_word_dtype(kind, f"column_name: {key}")
    check_key(key)
    return VocabularyFileCategoricalColumn(
        key=key,
        dtype=kind,
        default_value=-1 if default_value is None else default_value,
        num_oov_buckets=buckets,
        vocabulary_file=path,
        vocabulary_size=vocabulary_size,
    )


def _count_lines(path: str, key: str) -> int:
    if not os.path.exists(path):
        raise ValueError(f"vocabulary_file in {key} does not exist: {path}")
    with open(path, "rb") as file:
        size = sum(1 for _ in file)
    log.info(
        "vocabulary_size = %d in %s is inferred from the number of elements in the "
        "vocabulary_file %s.",
        *(size, key, path),
    )
    return size


@export("feature_column.categorical_column_with_vocabulary_list")
def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Any,
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyListCategoricalColumn:
    """Return a column whose ids are positions in a list; for other words see
    categorical_column_with_vocabulary_file.
    """
    if vocabulary_list is None or len(vocabulary_list) < 1:
        raise ValueError(f"vocabulary_list {vocabulary_list} must be non-empty, column_name: {key}")
    words = tuple(word.item() if isinstance(word, np.generic) else word for word in vocabulary_list)
    if len(set(words)) != len(words):
        raise ValueError(f"Duplicate keys in vocabulary_list {vocabulary_list}, column_name: {key}")
    found = as_dtype(np.array(vocabulary_list).dtype)
    buckets = _check_buckets(num_oov_buckets, default_value != -1, key)
    check_word_dtype(found, f"column_name: {key} vocabulary")
    kind = found if dtype is None else as_dtype(dtype)
    if kind.is_integer != found.is_integer:
        raise ValueError(
            f"dtype {kind} and vocabulary dtype {found} do not match, column_name: {key}"
        )
    check_word_dtype(kind, f"column_name: {key}")
    check_key(key)
    return VocabularyListCategoricalColumn(key, kind, default_value, buckets, words)


# ---- Identity ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IdentityCategoricalColumn(_KeyedColumn):
    number_buckets: int
    default_value: int | None

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(dtypes.int64)}

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    def transform(self, inputs: Inputs) -> SparseTensor:
        words = self._words(inputs)
        if not words.dtype.is_integer:
            raise ValueError(f"Invalid input, not integer. key: {self.key} dtype: {words.dtype}")
        ids = b.cast(words.values, dtypes.int64, name="values")
        limit = b.cast(self.num_buckets, dtypes.int64, name="num_buckets")
        zero = b.cast(0, dtypes.int64, name="zero")
        if self.default_value is None:
            below = b.assert_less(
                ids,
                limit,
                data=(ids, limit),
                message=f'Bucket index for categorical column "{self.name}" exceeds number of '
                "buckets",
                name="assert_less_than_num_buckets",
            )
            above = b.assert_greater_equal(
                ids,
                zero,
                data=(ids,),
                message=f'Negative bucket index for categorical column "{self.name}"',
                name="assert_greater_or_equal_0",
            )
            with control_dependencies((below, above)):
                ids = b.identity(ids)
        else:
            outside = b.logical_or(ids < zero, ids >= limit, name="out_of_range")
            shape, default = b.shape(ids), b.cast(self.default_value, dtypes.int64)
            ids = b.where_v2(outside, b.fill(shape, default, name="default_values"), ids)
        return SparseTensor(words.indices, ids, words.dense_shape)


@export("feature_column.categorical_column_with_identity")
def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """Return a column whose values are ids from 0 to num_buckets - 1; other values become
    `default_value`, or fail the step.
    """
    if num_buckets < 1:
        raise ValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(
            f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}"
        )
    check_key(key)
    return IdentityCategoricalColumn(key, num_buckets, default_value)


# ---- Weights -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: DType

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec = dict(self.categorical_column.parse_example_spec)
        if self.weight_feature_key in spec:
            raise ValueError(
                f"Parse config {spec[self.weight_feature_key]} already exists for "
                f"{self.weight_feature_key}."
            )
        return spec | {self.weight_feature_key: VarLenFeature(self.dtype)}

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def transform(self, inputs: Inputs) -> Ids:
        weights = b.convert_to_tensor_or_sparse_tensor(inputs.get(self.weight_feature_key))
        if weights.dtype.base_dtype is not self.dtype:
            raise ValueError(f"Bad dtype, expected {self.dtype}, but got {weights.dtype}.")
        weights = sparse_input(weights, 0.0)
        if not weights.dtype.is_floating:
            weights = b.cast(weights, dtypes.float32)
        return Ids(inputs.get(self.categorical_column), weights)

    def ids(self, inputs: Inputs) -> Ids:
        return inputs.get(self)


@export("feature_column.weighted_categorical_column")
def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: Any = dtypes.float32
) -> WeightedCategoricalColumn:
    """Return a column that gives each id of another column a weight from the feature
    `weight_feature_key`.
    """
    kind = None if dtype is None else as_dtype(dtype)
    if kind is None or not (kind.is_integer or kind.is_floating):
        raise ValueError(f"dtype {kind} is not convertible to float.")
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, kind)
