"""Faults: conditions under which an op's own kernel raises an error.

XLA's functions cannot raise, so a traced function returns whether one of these conditions held. Its
caller then runs the ops' own kernels, which say what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp

__all__ = ["any_of", "check", "check_indices", "collected"]

_found: ContextVar[list[Any] | None] = ContextVar("found", default=None)


@contextmanager
def collected() -> Iterator[list[Any]]:
    """Collect the faults of what is traced in this context."""
    token = _found.set(found := [])
    try:
        yield found
    finally:
        _found.reset(token)


def check(fault: Any) -> None:
    """Note a condition, a boolean scalar, under which the result must not be used."""
    found = _found.get()
    if found is not None:
        found.append(fault)


def check_indices(indices: Any, limit: int) -> None:
    """Note that indices must be in [0, limit)."""
    indices = jnp.asarray(indices)
    check(jnp.any((indices < 0) | (indices >= limit)))


def any_of(faults: list[Any]) -> Any:
    """Whether one of the conditions holds."""
    result = jnp.asarray(False)
    for fault in faults:
        result = result | fault
    return result
