"""Crossed columns: all combinations of the values of several categorical features, hashed to
ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.estimator.columns.categorical import HashedCategoricalColumn
from headrace._src.estimator.columns.column_base import CategoricalColumn, Inputs
from headrace._src.graph.composite import SparseTensor
from headrace._src.ops.base.define import b
from headrace._src.ops.io.example_ops import VarLenFeature

__all__ = ["CrossedColumn", "crossed_column"]


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    def _leaves(self) -> Iterator[str | CategoricalColumn]:
        """Return the crossed features; nested crosses are flattened."""
        for key in self.keys:
            if isinstance(key, CrossedColumn):
                yield from key._leaves()
            else:
                yield key

    @property
    def name(self) -> str:
        return "_X_".join(
            sorted(key if isinstance(key, str) else key.name for key in self._leaves())
        )

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for key in self.keys:
            if isinstance(key, str):
                spec[key] = VarLenFeature(dtypes.string)
            else:
                spec.update(key.parse_example_spec)
        return spec

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def transform(self, inputs: Inputs) -> SparseTensor:
        features = []
        for key in self._leaves():
            if isinstance(key, str):
                features.append(inputs.get(key))
                continue
            ids = key.ids(inputs)
            if ids.weight_tensor is not None:
                raise ValueError(
                    "crossed_column does not support weight_tensor, but the given column populates "
                    f"weight_tensor. Given column: {key.name}"
                )
            features.append(ids.id_tensor)
        return b.sparse_cross_hashed(features, self.hash_bucket_size, self.hash_key)


@export("feature_column.crossed_column")
def crossed_column(keys: Any, hash_bucket_size: int, hash_key: int | None = None) -> CrossedColumn:
    """Return a column of all combinations of the values of `keys`, which are names of features, or
    columns.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise ValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in keys:
        if not isinstance(key, str | CategoricalColumn):
            raise ValueError(
                "Unsupported key type. All keys must be either string, or categorical column "
                f"except HashedCategoricalColumn. Given: {key}"
            )
        if isinstance(key, HashedCategoricalColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing. Hashing before "
                "crossing will increase probability of collision. Instead, use the feature name as "
                f"a string. Given: {key}"
            )
    return CrossedColumn(tuple(keys), hash_bucket_size, hash_key)
