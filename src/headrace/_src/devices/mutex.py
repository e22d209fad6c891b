"""Mutex: one at a time. In: a request. Out: a lock, now or later.

A lock is given back when it's released, or when nobody holds it any more: a step that fails between
the two leaves the mutex free.
"""

from __future__ import annotations

import weakref
from typing import Any

from headrace._src.devices.waiting import Waiting

__all__ = ["Mutex", "MutexLock"]


class MutexLock:
    """The right to be the only one. `release` may be called again, and does nothing then."""

    __slots__ = ("__weakref__", "_free")

    def __init__(self, mutex: Mutex) -> None:
        self._free = weakref.finalize(self, mutex._released)

    def release(self) -> None:
        self._free()


class Mutex(Waiting):
    """A mutex whose waiters are served in their order."""

    def __init__(self, name: str) -> None:
        super().__init__(in_order=True)
        self.name = name
        self._held = False

    def acquire(self) -> Any:
        """Return a MutexLock, once nobody else has one."""

        def act() -> MutexLock:
            self._held = True
            return MutexLock(self)

        return self.attempt(act, lambda: not self._held, f"mutex '{self.name}'", "MutexLock")

    def _released(self) -> None:
        def act() -> None:
            self._held = False

        self.attempt(act)
