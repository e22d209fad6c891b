"""EagerTensor: a tensor with a value. Python and NumPy can use it as its value: in conditions,
loops, indices, formats, and as an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.operation import Tensor

__all__ = ["EagerTensor"]

_OPAQUE = (dtypes.resource, dtypes.variant)


class EagerTensor(Tensor):
    """One output of an operation that has run."""

    _value: Any = None

    def fill(self, value: Any) -> None:
        """Set the value that the operation's kernel returned."""
        self._value = value
        if self.dtype.base_dtype not in _OPAQUE:
            self._shape = TensorShape.of(np.shape(value))

    @property
    def value(self) -> Any:
        """The value that kernels pass on: an array, a handle or a list."""
        return self._value

    @property
    def held(self) -> Any:
        if self._value is None or self.dtype.base_dtype in _OPAQUE:
            return None
        # `asarray` would make a fixed-width string of bytes.
        return np.asarray(self._value, object if self.dtype is dtypes.string else None)

    def numpy(self) -> Any:
        """Return a copy of the value as an array, or as a NumPy scalar."""
        held = self.held
        if held is None:
            raise ValueError(f"a tensor of dtype {self.dtype.name} can't become an array")
        return np.array(held) if held.ndim else held[()]

    def eval(self, feed_dict: Any = None, session: Any = None) -> NoReturn:
        """Sessions don't run eager tensors."""
        raise NotImplementedError(
            "eval is not supported when eager execution is enabled, is .numpy() what you're "
            "looking for?"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an eager tensor becomes an array only by a copy")
        return np.array(self.numpy(), dtype)

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __index__(self) -> int:
        return self.numpy().__index__()

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec)

    def __len__(self) -> int:
        if not np.ndim(self._value):
            raise TypeError("Scalar tensor has no `len()`")
        return len(self._value)

    def __iter__(self) -> Iterator[Any]:
        if not np.ndim(self._value):
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[i] for i in range(len(self)))

    def __deepcopy__(self, memo: Any) -> EagerTensor:
        return self  # it is immutable

    def __reduce__(self) -> NoReturn:
        raise TypeError("an eager tensor can't be pickled: use its .numpy()")

    def _shown(self, is_repr: bool) -> str:
        if self.dtype.base_dtype in _OPAQUE or self._value is None:
            return "<unprintable>"
        found = self.numpy()
        if not isinstance(found, np.ndarray):
            return repr(found) if isinstance(found, bytes) else str(found)
        text = repr(found) if is_repr else str(found)
        return f"\n{text}" if is_repr and "\n" in text else text

    def __repr__(self) -> str:
        return (
            f"<tf.Tensor: id={self.op._id}, shape={self._shape}, dtype={self.dtype.name}, "
            f"numpy={self._shown(True)}>"
        )

    def __str__(self) -> str:
        return f"tf.Tensor({self._shown(False)}, shape={self._shape}, dtype={self.dtype.name})"
