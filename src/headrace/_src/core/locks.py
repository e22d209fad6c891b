"""Locks that an interrupted with-statement cannot leave locked.

Up to Python 3.13 the locks of `threading` have this property: no signal is handled between the
moment when `with lock:` has taken the lock and the moment when its block is entered. Python 3.14
calls `__enter__` as it calls any function, and handles signals when a function written in C has
returned; KeyboardInterrupt raised there leaves the lock held for ever.

threading.Condition lacks this property on every Python. Enter the lock that it wraps instead:

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

        # Signals are handled neither after an attribute read nor when a Python function returns.
        # `__exit__` stays the C function: a Python function could be interrupted before it releases
        # the lock.
        _taken = property(methodcaller("acquire"))

        def __enter__(self) -> bool:
            return self._taken

    Lock = RLock  # threading.Lock can't be subclassed
