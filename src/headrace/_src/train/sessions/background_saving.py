"""Run work in the background. In: a function. Out: its effect, later; its error, at the next call.

State: the thread of the last job, and the error that it ended with. At most one job runs at a time;
the interpreter doesn't exit before it is done. The thread has low priority: if every core is busy,
delaying one compute thread for a moment delays all threads that synchronise with it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

__all__ = ["Background"]

_NICENESS = 10  # a tenth of a core if another thread wants all of it


class Background:
    """Runs one function at a time in a background thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start `work` once the previous work is done."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="headrace-saver")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the running work; raise the error that it ended with."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            _give_way()
            work()
        except BaseException as error:  # for `wait` to raise
            self._error = error


def _give_way() -> None:
    """Lower the priority of this thread, where the system has per-thread priorities."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
