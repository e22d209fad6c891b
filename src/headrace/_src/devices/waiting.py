"""State that ops may have to wait for. In: an action, and the condition for it. Out: the action's
result, or a Pending.

State: one lock, and a line of waiters. All changes of the state go through `attempt`, which then
serves the line: waiters that can proceed do so, in order of arrival. The Pendings are ended after
the lock is released.
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
    """A waiter in the line: `act` performs its action, once `ready` returns True."""

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
        """Perform the action, with the lock held."""
        try:
            self.outcome = self.act()
        except Exception as error:
            self.outcome = error

    def tell(self) -> None:
        """End the Pending, without holding the lock."""
        if isinstance(self.outcome, BaseException):
            self.fail(self.outcome)
        else:
            self.complete(self.outcome)

    def cancel(self, error: BaseException) -> bool:
        if type(error) is CancelledError:
            error = CancelledError(None, None, f"{self.action} operation was cancelled")
        return super().cancel(error)


class Waiting:
    """The base of state that ops may have to wait for.

    in_order: whether no waiter may proceed before those that came earlier.
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
        """Call `act()` when `ready()`, both under the lock: now, and return its result, or later,
        and return a Pending. For messages, `what` names the thing awaited and `action` the waiter.
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
        """Let all waiters proceed that can; each may make it possible for others."""
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
        """Drop a cancelled waiter; those behind it may proceed now."""
        with self._lock:
            ended = self._serve() if self._line.pop(pending, None) is not None else []
        for waiter in ended:
            waiter.tell()
