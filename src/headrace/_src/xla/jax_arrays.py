"""JAX arrays that keep their types. In: NumPy arrays. Out: arrays on a JAX device, and back.

JAX computes in 32 bits unless it is told otherwise. `wide` is a context in which 64-bit types stay
what they are: everything that calls JAX enters it, and the program's own use of JAX is not changed.
JAX keeps traced functions apart by this setting, so it does not trace them again.

Nothing here is imported before a step uses the device: importing JAX takes most of a second.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["copied", "get", "jax_device", "put", "wide"]


def wide() -> Any:
    """A context in which JAX has 64-bit types."""
    return jax.enable_x64(True)


def jax_device(index: int) -> Any:
    """The JAX device of a number; there may be fewer than a session asks for."""
    found = jax.devices()
    return found[index % len(found)]


def put(value: Any, device: Any) -> Any:
    """Return a value as an array on a JAX device. On a CPU it may share the memory, which must not
    be written as long as the array is used.
    """
    with wide():
        return jax.device_put(value, device)


def copied(value: Any, device: Any) -> Any:
    """Return a copy of a value in memory of a JAX device, which the array alone holds."""
    with wide():
        return jax.device_put(jnp.array(value, copy=True), device).block_until_ready()


def get(value: Any) -> np.ndarray:
    """Return a JAX array as a NumPy array, read-only; on a CPU it shares the memory."""
    return np.asarray(value)
