"""The value of a variable on an XLA device. In: values and JAX arrays. Out: JAX arrays for regions,
NumPy arrays for every other reader.

Invariant: the variable is the only holder of its JAX array, so a region that writes it may be given
its memory (donation). NumPy readers get a copy. Whichever of the two was written last is the value;
the other is made of it when it is asked for. `lock` guards both. The device's allocator counts one
of them, because copies for readers are not in its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.allocator import Allocator, Held
from headrace._src.devices.variable_state import VariableState, new_memory
from headrace._src.xla.jax_arrays import copied, get

__all__ = ["XlaVariableState"]


class XlaVariableState(VariableState):
    """A variable whose value is a JAX array, while regions use it.

    array: the JAX array; None if there is no value, or if the host has written it since.
    """

    __slots__ = ("_counter", "_device", "_held", "array")

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: TensorShape,
        allocator: Allocator | None = None,
        device: Any = None,
    ) -> None:
        super().__init__(name, dtype, shape)
        self.array: Any = None
        self._device = device
        self._counter = allocator
        self._held: Held | None = None

    def hold(self, size: int) -> None:
        """Count the value as `size` bytes of the device's memory; raise MemoryError if it has no
        room for them.
        """
        held = self._held
        if self._counter is not None and (held is None or held.size != size):
            self._held = self._counter.hold(size)

    # -- On the device -----------------------------------------------------------------------------

    def on_device(self) -> Any:
        """Return the JAX array; call with `lock` held. It is not to be kept: a region may be given
        its memory.
        """
        if self.array is None:
            self.array = copied(super().look(), self._device)
        return self.array

    def adopt_array(self, array: Any, sizes: tuple[int, ...]) -> None:
        """Replace the value by a JAX array of shape `sizes` that nobody else holds; call with
        `lock` held, and after `hold` if its size is new.
        """
        self.array = array
        self._lent = self._lender = self._own = None
        self.sizes = sizes

    # -- On the host -------------------------------------------------------------------------------

    def _copy_to_host(self) -> None:
        if self._own is None and self.array is not None:
            copy = new_memory(self.array.shape, self.array.dtype)
            np.copyto(copy, get(self.array))
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
        self.array = None
        return own

    def update(self, function: Callable[..., Any], operand: Any) -> None:
        with self.lock:
            super().update(function, operand)
            self.array = None

    def assign(self, value: Any) -> None:
        with self.lock:
            super().assign(value)
            self.array = None

    def adopt(self, value: np.ndarray) -> None:
        with self.lock:
            self.hold(value.nbytes)
            super().adopt(value)
            self.array = None

    def saved(self) -> dict[str, np.ndarray]:
        with self.lock:
            self._copy_to_host()
            return super().saved()
