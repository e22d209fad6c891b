"""State that some must wait for. In: what is to be done, and when it can be. Out: its result, or a
Pending.

State: one lock, and a line of those who wait. Whatever changes the state goes through `attempt`,
which then serves the line: whoever can go on does, in the order in which they came. The Pendings
are ended after the lock is released.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from headrace._src.core.errors import CancelledError
from headrace._src.core.locks import Lock
from headrace._src.devices.pending import Pending

__all__ = ["Waiting"]


def _always() -> bool:
    return True


class _Waiter(Pending):
    """Someone in the line: `act` does it, once `ready` says that it can be done."""

    __slots__ = ("act", "action", "outcome", "ready")

    def __init__(
        self,
        owner: Waiting,
        act: Callable[[], Any],
        ready: Callable[[], bool],
        what: str,
        action: str,
    ) -> None:
        super().__init__(what, owner._forget)
        self.act = act
        self.ready = ready
        self.action = action
        self.outcome: Any = None

    def go(self) -> None:
        """Do it, with the lock held."""
        try:
            self.outcome = self.act()
        except Exception as error:
            self.outcome = error

    def tell(self) -> None:
        """End the Pending, without the lock."""
        if isinstance(self.outcome, BaseException):
            self.fail(self.outcome)
        else:
            self.complete(self.outcome)

    def cancel(self, error: BaseException) -> bool:
        if type(error) is CancelledError:
            error = CancelledError(None, None, f"{self.action} operation was cancelled")
        return super().cancel(error)


class Waiting:
    """What state that is waited for is made of.

    in_order: whether nobody may go on before those who came earlier.
    """

    def __init__(self, in_order: bool = False) -> None:
        self._in_order = in_order
        self._lock = Lock()
        self._line: OrderedDict[Pending, _Waiter] = OrderedDict()

    def attempt(
        self,
        act: Callable[[], Any],
        ready: Callable[[], bool] = _always,
        what: str = "",
        action: str = "",
    ) -> Any:
        """Do `act()` when `ready()`, both under the lock: now, giving its result, or later, giving
        a Pending. `what` is what is waited for and `action` who waits, for people.
        """
        with self._lock:
            behind = self._in_order and ready is not _always and bool(self._line)
            if behind or not ready():
                waiter = _Waiter(self, act, ready, what, action)
                self._line[waiter] = waiter
                return waiter
            result = act()
            ended = self._serve() if self._line else ()
        for waiter in ended:
            waiter.tell()
        return result

    def _serve(self) -> list[_Waiter]:
        """Let go on whoever can; each may make it possible for others."""
        ended: list[_Waiter] = []
        changed = True
        while changed:
            changed = False
            for waiter in list(self._line.values()):
                if not waiter.ready():
                    if self._in_order:
                        break
                    continue
                del self._line[waiter]
                if waiter.claim():
                    waiter.go()
                    ended.append(waiter)
                    changed = True
        return ended

    def _forget(self, pending: Pending) -> None:
        """Drop who was cancelled; those behind may go on now."""
        with self._lock:
            ended = self._serve() if self._line.pop(pending, None) is not None else []
        for waiter in ended:
            waiter.tell()
