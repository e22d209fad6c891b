"""The value of a variable on an XLA device. In: values and JAX arrays. Out: JAX arrays for regions,
NumPy arrays for every other reader.

Invariant: the variable is the only holder of its JAX array, so a region that writes it may be given
its memory (donation). NumPy readers get a copy. Whichever of the two was written last is the value;
the other is made of it when it is asked for. `lock` guards both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.allocator import Allocator
from headrace._src.devices.variable_state import VariableState, new_memory
from headrace._src.xla.jax_arrays import copied, get

__all__ = ["XlaVariableState"]


class XlaVariableState(VariableState):
    """A variable whose value is a JAX array, while regions use it."""

    __slots__ = ("_array", "_device")

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: TensorShape,
        allocator: Allocator | None = None,
        device: Any = None,
    ) -> None:
        super().__init__(name, dtype, shape, allocator)
        self._array: Any = None
        self._device = device

    # -- On the device -----------------------------------------------------------------------------

    def on_device(self) -> Any:
        """Return the JAX array; call with `lock` held. It is not to be kept: a region may be given
        its memory.
        """
        if self._array is None:
            self._array = copied(super().look(), self._device)
        return self._array

    def adopt_array(self, array: Any) -> None:
        """Replace the value by a JAX array that nobody else holds; call with `lock` held."""
        self._lent = self._lender = self._own = None
        self._array = array
        self.sizes = array.shape

    # -- On the host -------------------------------------------------------------------------------

    def _copy_to_host(self) -> None:
        if self._own is None and self._array is not None:
            copy = new_memory(self._array.shape, self._array.dtype)
            np.copyto(copy, get(self._array))
            super().adopt(copy)

    def read(self) -> np.ndarray:
        lent = self._lent
        if lent is not None:
            return lent
        with self.lock:
            self._copy_to_host()
            return super().read()

    def look(self) -> np.ndarray:
        self._copy_to_host()
        return super().look()

    def writable(self) -> np.ndarray:
        own = super().writable()
        self._array = None
        return own

    def update(self, function: Callable[..., Any], operand: Any) -> None:
        with self.lock:
            super().update(function, operand)
            self._array = None

    def assign(self, value: Any) -> None:
        with self.lock:
            super().assign(value)
            self._array = None

    def adopt(self, value: np.ndarray) -> None:
        with self.lock:
            super().adopt(value)
            self._array = None

    def saved(self) -> dict[str, np.ndarray]:
        with self.lock:
            self._copy_to_host()
            return super().saved()
