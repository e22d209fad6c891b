"""Calls at given times. In: a time and a call. Out: the call, in one thread for all of them.

A step that is blocked occupies no thread, and neither does its deadline.

State: the calls that are due later, and the thread that makes them, which is started by the first.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

__all__ = ["Deadline"]

_MOST_CANCELLED = 64  # entries that are kept though they were cancelled, or half of all


class Deadline:
    """A call at a time on the clock of time.monotonic, unless it is cancelled before. The call must
    be short and must not raise.
    """

    __slots__ = ("_call", "_number", "_when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self._when = when
        self._number = next(_numbers)
        self._call: Callable[[], None] | None = call
        _clock.add(self)

    def __lt__(self, other: Deadline) -> bool:
        return (self._when, self._number) < (other._when, other._number)

    @property
    def when(self) -> float:
        return self._when

    @property
    def is_cancelled(self) -> bool:
        return self._call is None

    def cancel(self) -> None:
        """Withdraw the call; it may be under way."""
        if self._call is not None:
            self._call = None
            _clock.drop_cancelled()

    def come(self) -> None:
        """Make the call."""
        call, self._call = self._call, None
        if call is not None:
            call()


class _Clock:
    """The deadlines that have yet to come, and the thread that waits for the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._due: list[Deadline] = []
        self._cancelled = 0
        self._thread: threading.Thread | None = None

    def add(self, deadline: Deadline) -> None:
        with self._changed:
            heappush(self._due, deadline)
            if self._due[0] is deadline:
                self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._wait, name="headrace deadlines", daemon=True
                )
                self._thread.start()

    def drop_cancelled(self) -> None:
        """Drop the deadlines that were cancelled, now and then: they keep nothing else alive."""
        with self._changed:
            self._cancelled += 1
            if self._cancelled > max(_MOST_CANCELLED, len(self._due) // 2):
                self._due = [deadline for deadline in self._due if not deadline.is_cancelled]
                heapify(self._due)
                self._cancelled = 0

    def _wait(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0].when > time.monotonic():
                    left = self._due[0].when - time.monotonic() if self._due else None
                    self._changed.wait(left if left is None else max(left, 0.0))
                deadline = heappop(self._due)
            deadline.come()
            del deadline


_numbers = count()
_clock = _Clock()


def _forget_clock() -> None:
    """Reset the state in a forked child, which has no other threads and runs no step."""
    global _clock
    _clock = _Clock()


os.register_at_fork(after_in_child=_forget_clock)
