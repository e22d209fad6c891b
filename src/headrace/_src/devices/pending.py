"""Pending: a result that a kernel promises. In: a value or an error, later. Out: a call back.

A kernel that has to wait (Effect.BLOCKS) returns a Pending at once and holds no thread. Whoever can
fulfil it later, in whatever thread, first *claims* it and then gives it a value; from the claim on
nothing else can end it, so what was taken from a queue for it is never lost. A step that is
cancelled ends its Pendings unless they are claimed, and their owners forget them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.locks import Lock

__all__ = ["Pending"]

_lock = Lock()  # held for a few instructions only: one for all is enough


class Pending:
    """A result that will come, or an error.

    what: what is waited for, for people: "an element of queue 'q' (3 of 32 are there)"
    forget: called when the Pending was cancelled, so that its owner drops it
    """

    __slots__ = ("_claimed", "_error", "_forget", "_over", "_then", "_value", "_what")

    works = False  # whether a thread works for it, rather than that it waits for an event

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

    def claim(self) -> bool:
        """Reserve the right to end it; False if someone else has."""
        with _lock:
            claimed, self._claimed = self._claimed, True
        return not claimed

    def complete(self, value: Any) -> None:
        """Give the value; after a claim. What is called back runs in this thread."""
        self._end(value, None)

    def fail(self, error: BaseException) -> None:
        """Give an error instead of a value; after a claim."""
        self._end(None, error)

    def cancel(self, error: BaseException) -> bool:
        """End it with an error unless it's claimed; returns whether that was so."""
        if not self.claim():
            return False
        if self._forget is not None:
            self._forget(self)
        self._end(None, error)
        return True

    def then(self, call: Callable[[Pending], None]) -> None:
        """Call `call(self)` once it's over: now, or in the thread that ends it."""
        with _lock:
            over = self._over
            if not over:
                self._then = call
        if over:
            call(self)

    def join(self) -> None:
        """Wait for the thread that works for it, if there is one."""

    def result(self) -> Any:
        """The value, or raise the error; once it's over."""
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
