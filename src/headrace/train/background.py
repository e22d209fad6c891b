"""Work beside the program. In: a function. Out: its effect, later; its error, at the next call.

State: the thread of the last work, and the error that it ended with. At most one work at a time is
under way; the interpreter doesn't exit before it is done. The thread gives way to others: where
every core is at work, one that is kept waiting for a moment keeps all waiting that meet it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

__all__ = ["Background"]

_NICENESS = 10  # a tenth of a core's time where another thread wants it all


class Background:
    """Runs one function at a time in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start `work`, once the work before it is done."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="headrace-saver")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the work under way; raise the error that it ended with."""
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
        except BaseException as error:  # for whoever waits
            self._error = error


def _give_way() -> None:
    """Lower the priority of this thread, where the system has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
