"""Threads whose failures fail a test. In: a function. Out: a thread whose `join` raises its
error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["CheckedThread"]


class CheckedThread:
    """A thread of a test: if its function raises an error, `join` raises it as a failure of the
    test.

    State: whether it was joined, which is required; the error that its function raised.
    """

    def __init__(
        self,
        fail: Callable[[str], Any],
        target: Callable[..., Any],
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
    ) -> None:
        self._fail = fail
        self._target = target
        self._args, self._kwargs = tuple(args or ()), dict(kwargs or {})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.is_joined = False

    def _run(self) -> None:
        try:
            self._target(*self._args, **self._kwargs)
        except BaseException as error:
            self._error = error

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for it to end, and fail if its function failed."""
        self.is_joined = True
        self._thread.join()
        if self._error is not None:
            self._fail(f"Error in checkedThread: {self._error}")

    def is_alive(self) -> bool:
        """Return whether it is still running."""
        return self._thread.is_alive()

    def check_joined(self) -> None:
        """Fail if it was never joined."""
        if not self.is_joined:
            self._fail("A checked thread was not joined.")
