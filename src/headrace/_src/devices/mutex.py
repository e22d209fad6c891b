"""Mutex: mutual exclusion between steps. In: a request. Out: a lock, now or later.

A lock is given back when it's released, or when the last reference to it is gone: a step that fails
while it holds the lock leaves the mutex free.
"""

from __future__ import annotations

import weakref
from _thread import start_new_thread
from typing import Any

from headrace._src.devices.waiting import Waiting

__all__ = ["Mutex", "MutexLock"]


class MutexLock:
    """Exclusive ownership of a mutex. A second call of `release` does nothing."""

    __slots__ = ("__weakref__", "_lost", "_mutex")

    def __init__(self, mutex: Mutex) -> None:
        self._mutex = mutex
        # The garbage collector may free a lost lock in any call, even in one of this mutex or of
        # its next owner. The thread that it interrupts must not take their locks again, nor change
        # their state in the middle of a change: another thread gives the mutex back.
        self._lost = weakref.finalize(self, start_new_thread, mutex._given_back, ())
        self._lost.atexit = False

    def release(self) -> None:
        if self._lost.detach() is not None:
            self._mutex._given_back()


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

    def _given_back(self) -> None:
        def act() -> None:
            self._held = False

        self.attempt(act)
