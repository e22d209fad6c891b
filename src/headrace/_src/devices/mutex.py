"""Mutex: mutual exclusion between steps. In: a request. Out: a lock, now or later.

A lock is given back when it's released, or when the last reference to it is gone: a step that fails
while it holds the lock leaves the mutex free.
"""

from __future__ import annotations

import weakref
from typing import Any

from headrace._src.devices.waiting import Waiting

__all__ = ["Mutex", "MutexLock"]


class MutexLock:
    """Exclusive ownership of a mutex. A second call of `release` does nothing."""

    __slots__ = ("__weakref__", "_free")

    def __init__(self, mutex: Mutex) -> None:
        self._free = weakref.finalize(self, mutex._released)

    def release(self) -> None:
        self._free()


class Mutex(Waiting):
    """A mutex that serves its waiters in order of arrival."""

    def __init__(self, name: str) -> None:
        super().__init__(in_order=True)
        self.name = name
        self._held = False

    def acquire(self) -> Any:
        """Return a MutexLock, or a Pending for it while another one is held."""

        def act() -> MutexLock:
            self._held = True
            return MutexLock(self)

        return self.attempt(act, lambda: not self._held, f"mutex '{self.name}'", "MutexLock")

    def _released(self) -> None:
        def act() -> None:
            self._held = False

        self.attempt(act)
