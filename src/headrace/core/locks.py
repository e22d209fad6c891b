"""Locks for with-statements that an interrupt cannot leave locked.

Up to Python 3.13 those of `threading` are such: no signal is handled between the moment when
`with lock:` has taken the lock and the moment when its block is entered. Python 3.14 calls
`__enter__` as it calls any function, and handles signals when a function written in C has returned;
KeyboardInterrupt raised there leaves the lock taken for ever.

threading.Condition is not such a lock on any Python. Enter the lock that it was made of instead:

    lock = RLock()
    changed = threading.Condition(lock)
    with lock:
        changed.notify_all()
"""

from __future__ import annotations

import sys
from operator import methodcaller
from threading import Lock, RLock

__all__ = ["Lock", "RLock"]

if sys.version_info >= (3, 14):
    import _thread

    class RLock(_thread.RLock):
        """A reentrant lock."""

        __slots__ = ()

        # Signals are handled neither after an attribute was read nor when a function that is
        # written in Python returns. `__exit__` stays the C function: one that is written in Python
        # could be interrupted before it gives the lock back.
        _taken = property(methodcaller("acquire"))

        def __enter__(self) -> bool:
            return self._taken

    Lock = RLock  # the other type of locks can't be derived from
