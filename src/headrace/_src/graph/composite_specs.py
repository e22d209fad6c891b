"""The specs of values made of several tensors: SparseTensors and IndexedSlices."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType, as_dtype, float32, int32, int64
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from headrace._src.graph.operation import Tensor
from headrace._src.graph.type_spec import TensorSpec, TypeSpec

__all__ = ["IndexedSlicesSpec", "SparseTensorSpec"]


@export("SparseTensorSpec")
class SparseTensorSpec(TypeSpec):
    """A description of a sparse tensor: the shape and dtype of the tensor that it represents."""

    def __init__(self, shape: Any = None, dtype: Any = float32) -> None:
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype)

    @classmethod
    def from_value(cls, value: Any) -> SparseTensorSpec:
        """Return the spec of a SparseTensor or a SparseTensorValue."""
        if isinstance(value, SparseTensor):
            return cls(value.shape, value.dtype)
        if isinstance(value, SparseTensorValue):
            found = np.asarray(value.values).dtype
            if not isinstance(value.values, np.ndarray):  # Python's numbers, as tensors hold them
                found = {np.dtype("float64"): float32, np.dtype("int64"): int32}.get(found, found)
            return cls(np.ravel(value.dense_shape).tolist(), found)
        raise TypeError("Expected SparseTensor or SparseTensorValue")

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def value_type(self) -> type:
        return SparseTensor

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Return whether a sparse tensor, or another spec, is compatible with this spec."""
        if isinstance(spec_or_value, SparseTensorValue):
            spec_or_value = self.from_value(spec_or_value)
        return super().is_compatible_with(spec_or_value)

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype

    @property
    def _component_specs(self) -> list[TensorSpec]:
        rank = self._shape.ndims
        return [
            TensorSpec([None, rank], int64),
            TensorSpec([None], self._dtype),
            TensorSpec([rank], int64),
        ]

    def _to_components(self, value: Any) -> list[Tensor]:
        return SparseTensor.from_value(value).components()

    def _from_components(self, components: Any) -> SparseTensor:
        return SparseTensor(*components)


@export("IndexedSlicesSpec")
class IndexedSlicesSpec(TypeSpec):
    """A description of IndexedSlices: the shape and dtype of the tensor, the dtypes of `indices`
    and `dense_shape` (None if there is none), and the shape of `indices`.
    """

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = float32,
        indices_dtype: Any = int64,
        dense_shape_dtype: Any = None,
        indices_shape: Any = None,
    ) -> None:
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype)
        self._indices_dtype = as_dtype(indices_dtype)
        self._dense_shape_dtype = dense_shape_dtype and as_dtype(dense_shape_dtype)
        self._indices_shape = TensorShape(indices_shape).with_rank(1)

    @property
    def value_type(self) -> type:
        return IndexedSlices

    def _serialize(self) -> tuple[Any, ...]:
        return (
            self._shape,
            self._dtype,
            self._indices_dtype,
            self._dense_shape_dtype,
            self._indices_shape,
        )

    @property
    def _component_specs(self) -> list[TensorSpec]:
        found = [
            TensorSpec(self._indices_shape.concatenate(self._shape[1:]), self._dtype),
            TensorSpec(self._indices_shape, self._indices_dtype),
        ]
        if self._dense_shape_dtype is not None:
            found.append(TensorSpec([self._shape.ndims], self._dense_shape_dtype))
        return found

    def _to_components(self, value: IndexedSlices) -> list[Tensor]:
        return value.components()

    def _from_components(self, components: Any) -> IndexedSlices:
        return IndexedSlices(*components)
