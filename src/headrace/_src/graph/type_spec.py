"""TypeSpecs: static descriptions of values. In: shapes, dtypes, names. Out: specs that can be
compared, merged, and checked against values.

`_serialize` returns the constructor's arguments as a tuple: equality, hash, compatibility, merging,
printing and pickling are based on it. A value that consists of several tensors has a spec for each
of them (`_component_specs`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType, as_dtype, float32
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.operation import Tensor

__all__ = ["BoundedTensorSpec", "TensorSpec", "TypeSpec", "spec_of"]


@export("TypeSpec")
class TypeSpec(ABC):
    """A description of the values of one type, such as `tf.Tensor` or `tf.SparseTensor`."""

    @property
    @abstractmethod
    def value_type(self) -> type:
        """The type of the values."""

    @abstractmethod
    def _serialize(self) -> tuple[Any, ...]:
        """Return the constructor's arguments for an equal spec."""

    @property
    @abstractmethod
    def _component_specs(self) -> Any:
        """The specs of a value's parts, in a nest."""

    @abstractmethod
    def _to_components(self, value: Any) -> Any:
        """Return the parts of a value, in the same nest."""

    @abstractmethod
    def _from_components(self, components: Any) -> Any:
        """Return the value that has these parts."""

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Return whether a value, or another spec, is compatible with this spec."""
        other = spec_of(spec_or_value)
        if other is None or type(other) is not type(self):
            return False
        return _fit(self._serialize(), other._serialize())

    def most_specific_compatible_type(self, other: TypeSpec) -> TypeSpec:
        """Return the most specific spec compatible with both; ValueError if there is none."""
        if type(other) is not type(self):
            raise ValueError(f"No TypeSpec is compatible with both {self!r} and {other!r}")
        return type(self)(*self._joined(self._serialize(), other._serialize(), other))

    def _joined(self, a: Any, b: Any, other: TypeSpec) -> Any:
        if isinstance(a, TensorShape) and isinstance(b, TensorShape):
            return a.most_specific_compatible_shape(b)
        if isinstance(a, TypeSpec) and isinstance(b, TypeSpec):
            return a.most_specific_compatible_type(b)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(self._joined(x, y, other) for x, y in zip(a, b, strict=True))
        if type(a) is not type(b) or a != b:
            raise ValueError(f"Types are not compatible: {self!r} vs {other!r}")
        return a

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _key(self._serialize()) == _key(other._serialize())

    def __hash__(self) -> int:
        return hash((type(self), _key(self._serialize())))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._serialize()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._serialize()))})"


def spec_of(value: Any) -> TypeSpec | None:
    """Return the spec of a tensor or a composite of tensors; a spec unchanged; None for others."""
    if isinstance(value, TypeSpec):
        return value
    if isinstance(value, Tensor):
        return TensorSpec(value.shape, value.dtype)
    return getattr(value, "_type_spec", None)


def _fit(a: Any, b: Any) -> bool:
    """Return whether `b` is compatible with `a`."""
    if isinstance(a, TensorShape | DType | TypeSpec):
        return isinstance(b, type(a)) and a.is_compatible_with(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_fit, a, b))
    return type(a) is type(b) and a == b


def _key(item: Any) -> Any:
    """Return a comparable form of an item of a spec: unknown shapes aren't equal to each other."""
    if isinstance(item, TensorShape):
        return "shape", item.sizes
    return tuple(map(_key, item)) if isinstance(item, tuple) else item


@export("TensorSpec", "contrib.framework.TensorSpec")
class TensorSpec(TypeSpec):
    """A description of a tensor: shape, dtype and, if it matters, name."""

    def __init__(self, shape: Any, dtype: Any = float32, name: str | None = None) -> None:
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype)
        self._name = name

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        return cls(spec.shape, spec.dtype, name or spec.name)

    @classmethod
    def from_tensor(cls, tensor: Tensor, name: str | None = None) -> TensorSpec:
        return cls(tensor.shape, tensor.dtype, name or tensor.op.name)

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def value_type(self) -> type:
        return Tensor

    def is_compatible_with(self, spec_or_tensor: Any) -> bool:
        """Return whether the dtype and shape of a spec or tensor are compatible with this one."""
        other = spec_of(spec_or_tensor)
        return (
            isinstance(other, TensorSpec)
            and self._dtype.is_compatible_with(other.dtype)
            and self._shape.is_compatible_with(other.shape)
        )

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._name

    @property
    def _component_specs(self) -> Any:
        return self

    def _to_components(self, value: Any) -> Any:
        return value

    def _from_components(self, components: Any) -> Any:
        return components

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"


@export("contrib.framework.BoundedTensorSpec")
class BoundedTensorSpec(TensorSpec):
    """A description of a tensor whose elements lie between `minimum` and `maximum`, both included,
    which are scalars or broadcast to its shape.
    """

    def __init__(
        self, shape: Any, dtype: Any, minimum: Any, maximum: Any, name: str | None = None
    ) -> None:
        super().__init__(shape, dtype, name)
        if minimum is None or maximum is None:
            raise ValueError(
                f"minimum and maximum must be provided; but saw '{minimum}' and '{maximum}'"
            )
        self._minimum = self._bound("minimum", minimum)
        self._maximum = self._bound("maximum", maximum)

    def _bound(self, which: str, value: Any) -> np.ndarray:
        bound = np.array(value, dtype=self.dtype.numpy)
        sizes = self.shape.sizes
        if sizes is not None:
            known = [1 if n is None else n for n in sizes]
            try:
                np.broadcast_shapes(bound.shape, tuple(known))
            except ValueError as error:
                raise ValueError(
                    f"{which} is not compatible with shape {self.shape}: {error}"
                ) from None
        bound.setflags(write=False)
        return bound

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> BoundedTensorSpec:
        """Return a spec with bounds; one without bounds gets those of its dtype."""
        minimum = getattr(spec, "minimum", spec.dtype.min)
        maximum = getattr(spec, "maximum", spec.dtype.max)
        return cls(spec.shape, spec.dtype, minimum, maximum, name or spec.name)

    @property
    def minimum(self) -> np.ndarray:
        return self._minimum

    @property
    def maximum(self) -> np.ndarray:
        return self._maximum

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._minimum, self._maximum, self._name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundedTensorSpec)
            and TensorSpec(*super()._serialize()) == TensorSpec(*TensorSpec._serialize(other))
            and np.allclose(self.minimum, other.minimum)
            and np.allclose(self.maximum, other.maximum)
        )

    __hash__ = None  # type: ignore[assignment]  # equal ones may have bounds that differ a little

    def __repr__(self) -> str:
        return (
            f"BoundedTensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r}, "
            f"minimum={self._minimum!r}, maximum={self._maximum!r})"
        )
