"""Ops that move elements, where JAX has a function that says more than views do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["KERNELS"]


def _concat(values: Sequence[Any], axis: Any) -> Any:
    return jnp.concatenate([jnp.asarray(v) for v in values], int(axis))


def _pack(values: Sequence[Any], *, axis: int) -> Any:
    return jnp.stack([jnp.asarray(v) for v in values], axis)


def _pad(x: Any, paddings: np.ndarray, fill: Any = 0) -> Any:
    x = jnp.asarray(x)
    return jax.lax.pad(x, jnp.asarray(fill, x.dtype), [(int(a), int(b), 0) for a, b in paddings])


KERNELS: dict[str, Callable[..., Any]] = {
    "Concat": lambda axis, values: _concat(values, axis),
    "ConcatV2": _concat,
    "Pack": _pack,
    "Pad": _pad,
    "PadV2": _pad,
}
