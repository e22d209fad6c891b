"""The gate that threads which fill queues pass before each step. In: threads. Out: moments at which
none of them is amid a step.

A saved queue, its producer's generator and its count of epochs only belong together if no step is
under way between them. A producer whose step waits for room in a queue is no harm: what it waits
with is saved with the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from headrace._src.core.locks import RLock

__all__ = ["Gate"]

_LOOK = 1e-3  # seconds between two looks at the threads inside


class Gate:
    """Used in a with-block around a step. State: who is inside, and whether it's shut."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: set[int] = set()
        self._shut = False

    def __enter__(self) -> Gate:
        with self._lock:
            while self._shut:
                self._changed.wait()
            self._inside.add(threading.get_ident())
        return self

    def __exit__(self, *unused: object) -> None:
        with self._lock:
            self._inside.discard(threading.get_ident())
            if self._shut:
                self._changed.notify_all()

    @contextmanager
    def shut(self, asleep: Callable[[], Collection[int]], patience: float) -> Iterator[bool]:
        """Let nobody in, and wait until all who are inside are `asleep`; whether that came to pass
        within `patience` seconds.
        """
        until = time.monotonic() + patience
        with self._lock:
            while self._shut:
                self._changed.wait()
            self._shut = True
            while not (quiet := self._inside <= set(asleep())) and time.monotonic() < until:
                self._changed.wait(_LOOK)
        try:
            yield quiet
        finally:
            with self._lock:
                self._shut = False
                self._changed.notify_all()
