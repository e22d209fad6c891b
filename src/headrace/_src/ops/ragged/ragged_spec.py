"""RaggedTensorSpec: the static description of a ragged tensor."""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import as_dtype, float32, int64
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.operation import Tensor
from headrace._src.graph.type_spec import TensorSpec, TypeSpec
from headrace._src.ops.ragged.ragged_splits import is_index_type
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor
from headrace._src.ops.ragged.ragged_value import RaggedTensorValue

__all__ = ["RaggedTensorSpec"]


@export("RaggedTensorSpec")
class RaggedTensorSpec(TypeSpec):
    """A description of a ragged tensor: shape, dtype, number of ragged dimensions, and the type of
    its row splits.
    """

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = int64,
    ) -> None:
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype)
        self._row_splits_dtype = as_dtype(row_splits_dtype)
        if not is_index_type(self._row_splits_dtype):
            raise ValueError("row_splits_dtype must be int32 or int64")
        rank = self._shape.ndims
        if ragged_rank is None:
            if rank is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            ragged_rank = rank - 1
        elif not isinstance(ragged_rank, int):
            raise TypeError("ragged_rank must be an int")
        if rank is not None and ragged_rank >= rank:
            raise ValueError("ragged_rank must be less than rank.")
        self._ragged_rank = ragged_rank

    @classmethod
    def from_value(cls, value: Any) -> RaggedTensorSpec:
        """Return the spec of a RaggedTensor or a RaggedTensorValue."""
        if isinstance(value, RaggedTensorValue):
            kind = value.flat_values.dtype
            return cls(value.shape, kind, value.ragged_rank, value.row_splits.dtype)
        if isinstance(value, RaggedTensor):
            splits = value.row_splits.dtype.base_dtype
            return cls(value.shape, value.dtype.base_dtype, value.ragged_rank, splits)
        raise TypeError("Expected RaggedTensor or RaggedTensorValue")

    @property
    def value_type(self) -> type:
        return RaggedTensor if self._ragged_rank > 0 else Tensor

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Return whether a ragged tensor, or another spec, is compatible with this spec."""
        if isinstance(spec_or_value, RaggedTensorValue):
            spec_or_value = self.from_value(spec_or_value)
        if self._ragged_rank == 0:
            return TensorSpec(self._shape, self._dtype).is_compatible_with(spec_or_value)
        return super().is_compatible_with(spec_or_value)

    def most_specific_compatible_type(self, other: TypeSpec) -> TypeSpec:
        """Return the most specific spec compatible with both; ValueError if there is none."""
        return super().most_specific_compatible_type(other)

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._ragged_rank, self._row_splits_dtype

    @property
    def _component_specs(self) -> list[TensorSpec]:
        depth = self._ragged_rank
        if depth == 0:
            return [TensorSpec(self._shape, self._dtype)]
        flat = TensorShape([None]).concatenate(self._shape[depth + 1 :])
        rows = self._shape[0].value if self._shape.ndims else None
        outer = TensorSpec([None if rows is None else rows + 1], self._row_splits_dtype)
        inner = [TensorSpec([None], self._row_splits_dtype) for _ in range(1, depth)]
        return [TensorSpec(flat, self._dtype), outer, *inner]

    def _to_components(self, value: Any) -> list[Any]:
        if isinstance(value, RaggedTensor | RaggedTensorValue):
            return [value.flat_values, *value.nested_row_splits]
        return [value]

    def _from_components(self, components: Any) -> Any:
        flat, *splits = components
        return RaggedTensor.from_nested_row_splits(flat, splits, validate=False)
