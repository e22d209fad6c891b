"""Pending: a result that a kernel promises. In: a value or an error, later. Out: a callback.

A kernel that is blocked (Effect.BLOCKS) returns a Pending at once and occupies no thread. The code
that can fulfil it later, in any thread, first *claims* it and then gives it a value. After the
claim nothing else can end it, so that an element taken from a queue for it is never lost. A step
that is cancelled ends its Pendings unless they are claimed, and their owners drop them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import faults
from headrace._src.core.locks import Lock

__all__ = ["Pending"]

_lock = Lock()  # held for a few instructions only, so one for all is enough


class Pending:
    """A value that will be available later, or an error.

    what: the reason for waiting, for messages: "an element of queue 'q' (3 of 32 are there)"
    forget: called when the Pending was cancelled, so that its owner drops it
    """

    __slots__ = ("_claimed", "_error", "_forget", "_over", "_then", "_value", "_what")

    works = False  # whether a thread computes the result; else it comes with an event

    def __init__(
        self, what: str | Callable[[], str], forget: Callable[[Pending], None] | None = None
    ) -> None:
        self._what = what
        self._forget = forget
        self._claimed = False
        self._over = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._then: Callable[[Pending], None] | None = None

    @property
    def what(self) -> str:
        return self._what if isinstance(self._what, str) else self._what()

    @property
    def is_over(self) -> bool:
        return self._over

    @property
    def has_effect(self) -> bool:
        """Whether others may see an effect of what is waited for: it has ended well, or is about to
        end.
        """
        return self._claimed and self._error is None

    def claim(self) -> bool:
        """Reserve the right to end the Pending; return False if it is already reserved."""
        with _lock:
            claimed, self._claimed = self._claimed, True
        return not claimed

    def complete(self, value: Any) -> None:
        """Set the value, after a claim. The callback runs in this thread."""
        if faults.armed:
            faults.reach("pending")
        self._end(value, None)

    def fail(self, error: BaseException) -> None:
        """Set an error instead of a value, after a claim."""
        self._end(None, error)

    def cancel(self, error: BaseException) -> bool:
        """End the Pending with an error unless it's claimed; return whether this call ended it."""
        if not self.claim():
            return False
        if self._forget is not None:
            self._forget(self)
        self._end(None, error)
        return True

    def then(self, call: Callable[[Pending], None]) -> None:
        """Call `call(self)` once the Pending has ended: now, or in the thread that ends it."""
        with _lock:
            over = self._over
            if not over:
                self._then = call
        if over:
            call(self)

    def map(self, function: Callable[[Any], Any]) -> Pending:
        """Return a Pending for what `function` makes of the value. Cancelling it cancels this."""

        def forget(_: Pending) -> None:
            self.cancel(RuntimeError("what depends on it was cancelled"))

        mapped = Pending(self._what, forget)

        def ended(pending: Pending) -> None:
            if mapped.claim():
                try:
                    value = function(pending.result())
                except BaseException as error:
                    mapped.fail(error)
                else:
                    mapped.complete(value)

        self.then(ended)
        return mapped

    def join(self) -> None:
        """Wait for the thread that computes the result, if there is one."""

    def result(self) -> Any:
        """Return the value or raise the error, once the Pending has ended."""
        assert self._over
        if self._error is not None:
            raise self._error
        return self._value

    def _end(self, value: Any, error: BaseException | None) -> None:
        with _lock:
            assert self._claimed and not self._over
            self._value, self._error, self._over = value, error, True
            then = self._then
        if then is not None:
            then(self)
