"""Columns of numbers: unchanged, or bucketized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core import dtypes, nest
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.estimator.columns.column_base import (
    CategoricalColumn,
    DenseColumn,
    Ids,
    Inputs,
    check_key,
)
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.io.example_ops import FixedLenFeature

__all__ = [
    "BucketizedColumn",
    "NumericColumn",
    "bucketized_column",
    "check_normalizer",
    "check_number_dtype",
    "check_shape",
    "numeric_column",
]


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: DType
    normalizer_fn: Callable[[Tensor], Tensor] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    def transform(self, inputs: Inputs) -> Tensor:
        feature = inputs.get(self.key)
        if isinstance(feature, SparseTensor):
            raise ValueError(
                "The corresponding Tensor of numerical column must be a Tensor. SparseTensor is "
                f"not supported. key: {self.key}"
            )
        if self.normalizer_fn is not None:
            feature = self.normalizer_fn(feature)
        return b.cast(feature, dtypes.float32)

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape.of(self.shape)

    def dense(self, inputs: Inputs) -> Tensor:
        return inputs.get(self)


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.source_column.parse_example_spec

    def transform(self, inputs: Inputs) -> Tensor:
        return b.bucketize(inputs.get(self.source_column), list(self.boundaries))

    @property
    def _per_number(self) -> int:
        return len(self.boundaries) + 1

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape.of((*self.source_column.shape, self._per_number))

    def dense(self, inputs: Inputs) -> Tensor:
        buckets = b.cast(inputs.get(self), dtypes.int64)
        return b.one_hot(buckets, self._per_number, on_value=1.0, off_value=0.0)

    @property
    def num_buckets(self) -> int:
        return self._per_number * self.source_column.shape[0]

    def ids(self, inputs: Inputs) -> Ids:
        """An id for each number of an example; each position in the vector has its own buckets."""
        buckets = inputs.get(self)
        batch, width = b.shape(buckets)[0], self.source_column.shape[0]
        rows = b.reshape(b.tile(b.expand_dims(b.range(0, batch), 1), [1, width]), (-1,))
        places = b.tile(b.range(0, width), [batch])
        ids = b.reshape(buckets, (-1,)) + self._per_number * places
        indices = b.cast(b.transpose(b.stack((rows, places))), dtypes.int64)
        shape = b.cast(b.stack([batch, width]), dtypes.int64)
        return Ids(SparseTensor(indices, ids, shape), None)


@export("feature_column.numeric_column")
def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Tensor], Tensor] | None = None,
) -> NumericColumn:
    """Return a column of numbers: a vector, or a tensor of `shape`, for each example.

    default_value: for Examples that lack the feature. normalizer_fn: a function of the raw tensor.
    """
    sizes = check_shape(shape, key)
    kind = check_number_dtype(dtype, key)
    default = _check_default(sizes, default_value, kind, key)
    check_normalizer(normalizer_fn)
    check_key(key)
    return NumericColumn(key, sizes, default, kind, normalizer_fn)


@export("feature_column.bucketized_column")
def bucketized_column(source_column: Any, boundaries: Any) -> BucketizedColumn:
    """Return a column that tells which of the intervals between `boundaries` (lower end included) a
    number is in.
    """
    if not isinstance(source_column, NumericColumn):
        raise ValueError(
            "source_column must be a column generated with numeric_column(). Given: "
            f"{source_column}"
        )
    if len(source_column.shape) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Given: {source_column}")
    if isinstance(boundaries, list | tuple) and not boundaries:
        raise ValueError("boundaries must not be empty.")
    if not isinstance(boundaries, list | tuple) or any(np.diff(boundaries) <= 0):
        raise ValueError("boundaries must be a sorted list.")
    return BucketizedColumn(source_column, tuple(boundaries))


def check_shape(shape: Any, key: Any) -> tuple[int, ...]:
    if isinstance(shape, TensorShape):
        shape = shape.as_list()
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    for size in sizes:
        if not isinstance(size, int):
            raise TypeError(f"shape dimensions must be integer. shape: {sizes}, key: {key}")
        if size < 1:
            raise ValueError(f"shape dimensions must be greater than 0. shape: {sizes}, key: {key}")
    return sizes


def check_number_dtype(dtype: Any, key: Any) -> DType:
    kind = as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise ValueError(f"dtype must be convertible to float. dtype: {kind}, key: {key}")
    return kind


def check_normalizer(function: Any) -> None:
    if function is not None and not callable(function):
        raise TypeError(f"normalizer_fn must be a callable. Given: {function}")


def _check_default(shape: tuple[int, ...], value: Any, dtype: DType, key: str) -> Any:
    """Return a default as nested tuples of the shape; a single number is repeated."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim and array.shape != shape:
        raise ValueError(
            "The shape of default_value must be equal to given shape. default_value: "
            f"{value}, shape: {shape}, key: {key}"
        )
    numbers = nest.flatten(array.tolist())
    fits = (int, float) if dtype.is_floating else (int,)
    if not all(isinstance(n, fits) for n in numbers):
        raise TypeError(
            f"default_value must be compatible with dtype. default_value: {value}, dtype: "
            f"{dtype}, key: {key}"
        )
    return _as_tuples(np.broadcast_to(array, shape).tolist())


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
