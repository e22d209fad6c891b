"""Threads for calls that may block each other. In: calls. Out: each call starts at once, in a
thread that no other call uses meanwhile.

The number of threads has no limit: a call that waits for one that can't start would wait forever.
Idle threads stay for a while, since starting a thread takes longer than waking one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

__all__ = ["start"]

_IDLE_SECONDS = 10.0

_Inbox = SimpleQueue[Callable[[], None]]

_lock = threading.Lock()
_idle: list[_Inbox] = []


def start(call: Callable[[], None]) -> None:
    """Run `call`, which must not raise, in a thread of its own."""
    with _lock:
        inbox = _idle.pop() if _idle else None
    if inbox is not None:
        inbox.put(call)
    else:
        threading.Thread(target=_work, args=(call,), name="headrace call", daemon=True).start()


def _work(call: Callable[[], None]) -> None:
    inbox: _Inbox = SimpleQueue()
    while True:
        call()
        del call  # it keeps its arguments alive
        with _lock:
            _idle.append(inbox)
        try:
            call = inbox.get(timeout=_IDLE_SECONDS)
        except Empty:
            with _lock:
                if inbox in _idle:
                    _idle.remove(inbox)
                    return
            call = inbox.get()  # `start` took this thread as the timeout expired


def _forget_threads() -> None:
    """Drop the idle threads, since a forked child has none of them."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_threads)
