"""The device type XLA: a JAX device. In: full names. Out: devices whose regions JAX compiles.

It is whatever platform JAX finds. A session has one of them if JAX is installed; JAX itself is
imported when a value or a region is first put on it.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.locks import Lock
from headrace._src.devices.device import Device, device_types, register_device
from headrace._src.devices.variable_state import VariableState
from headrace._src.graph.definition import register_table
from headrace._src.lowering.backends import register_backend
from headrace._src.xla.table import kernels_of

__all__ = ["XLA", "Xla", "is_installed", "register"]

XLA = "XLA"

_lock = Lock()


def is_installed() -> bool:
    """Return whether JAX can be imported, without importing it."""
    return find_spec("jax") is not None


class Xla(Device):
    """One of JAX's devices."""

    compiler = "xla"
    on_request = True

    @cached_property
    def jax_device(self) -> Any:
        """The JAX device behind it."""
        from headrace._src.xla.jax_arrays import jax_device  # imports JAX

        return jax_device(int(DeviceSpec.from_string(self.name).device_index or 0))

    def put(self, value: Any) -> Any:
        """Return a host value as an array of the device; strings stay where they are. On a CPU it
        may share the memory, which must not be written until the step ends.
        """
        array = value if _is_jax(value) else np.asarray(value)
        if array.dtype.kind in "OSU":
            return value
        from headrace._src.xla.jax_arrays import put  # imports JAX

        return put(array, self.jax_device)

    def get(self, value: Any) -> Any:
        """Return a device array as a NumPy array; other values as they are."""
        return np.asarray(value) if _is_jax(value) else value

    def variable(self, name: str, dtype: Any, shape: Any) -> VariableState:
        """Return a variable, without a value, whose value lives on the device."""
        from headrace._src.xla.variable import XlaVariableState  # imports JAX

        return XlaVariableState(name, dtype, shape, self.allocator, self.jax_device)


def _is_jax(value: Any) -> bool:
    return hasattr(value, "addressable_shards")  # known without JAX


def register() -> None:
    """Make the type known, with one device per session if JAX is installed; once."""
    with _lock:  # several threads may make their first sessions
        if XLA not in device_types():
            register_table(XLA, kernels_of)
            register_backend("xla", _backend)
            register_device(XLA, Xla, count=0, on_request=is_installed())


def _backend() -> Any:
    from headrace._src.xla.backend import BACKEND  # for steps with nodes on such a device

    return BACKEND
