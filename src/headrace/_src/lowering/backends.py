"""The registry of compilers for types of devices other than the CPU. In: the name that a Device has
as its `compiler`. Out: the backend, which is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["backend", "register_backend"]

_backends: dict[str, Callable[[], Any]] = {}


def register_backend(name: str, load: Callable[[], Any]) -> None:
    """Make a compiler known; `load` returns its Backend (see compile.clusters.backend)."""
    _backends[name] = load


def backend(name: str) -> Any:
    """Return the compiler of that name; KeyError if there is none."""
    return _backends[name]()
