"""The gate that queue-filling threads pass before each step. In: threads. Out: moments at which
none of them is in the middle of a step.

A saved queue, its producer's generator and its count of epochs are only consistent if no step runs
while they are saved. A producer whose step waits for room in a queue does no harm: the elements
that it is adding are saved with the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from headrace._src.core.locks import RLock

__all__ = ["Gate"]

_LOOK = 1e-3  # seconds between two checks of the threads inside


class Gate:
    """A context manager around a step. State: the threads inside, and whether the gate is shut."""

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
        """Close the gate and wait until every thread inside is `asleep`; yield whether that
        succeeded within `patience` seconds.
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
