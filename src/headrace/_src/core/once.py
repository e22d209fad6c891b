"""Make what a process has one of. In: a function without arguments. Out: one that runs it once.

`functools.cache` runs a function twice if two threads call it for the first time together, and
keeps one of the results. That is harmless for values. It is not where the function starts a thread
or a process, takes memory or changes the environment: the other result would be used and dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from headrace._src.core.locks import RLock

__all__ = ["once"]

T = TypeVar("T")


def once(function: Callable[[], T]) -> Callable[[], T]:
    """Call a function at most once, whichever threads ask, and return its result each time. If it
    raises, the next caller tries again.
    """
    lock = RLock()
    results: list[T] = []

    @functools.wraps(function)
    def first_or_known() -> T:
        if not results:
            with lock:
                if not results:
                    results.append(function())
        return results[0]

    return first_or_known
