"""The rendezvous of the steps that a task takes part in. In: step ids, in any order of events. Out:
one RemoteRendezvous for each step, or None for a step that has ended.

A tensor may arrive before its step has started here: its rendezvous is then made at the first
mention. A tensor may also arrive after its step has ended: the ids of the last steps that ended are
remembered, so that such tensors are dropped. Both kinds of memory have limits. A step that was
mentioned and does not start in time is dropped with its tensors, as one that has ended.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from headrace._src.core.errors import AbortedError
from headrace._src.core.locks import Lock
from headrace._src.devices.rendezvous import RemoteRendezvous

__all__ = ["RendezvousTable"]

StepId = TypeVar("StepId", bound=Hashable)


class RendezvousTable(Generic[StepId]):
    """The rendezvous of each step of a task. Any thread may call any method.

    make: returns the rendezvous of a new step. most_early: how many steps may be mentioned and not
    started. patience: the seconds in which a step must start after its first mention. remembered:
    how many ended steps are known as such.
    """

    def __init__(
        self,
        make: Callable[[StepId], RemoteRendezvous],
        most_early: int = 1024,
        patience: float = 60.0,
        remembered: int = 16384,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._most_early = most_early
        self._patience = patience
        self._remembered = remembered
        self._clock = clock
        self._lock = Lock()
        # Steps that were mentioned and have not started, the oldest first, and when that was.
        self._early: OrderedDict[StepId, tuple[float, RemoteRendezvous]] = OrderedDict()
        self._started: dict[StepId, RemoteRendezvous] = {}
        self._ended: OrderedDict[StepId, None] = OrderedDict()  # the last to end is the last

    def mention(self, step: StepId) -> RemoteRendezvous | None:
        """Return the rendezvous of a step that a message names, or None if the step has ended."""
        with self._lock:
            found = self._started.get(step)
            if found is not None:
                return found
            if step in self._ended:
                return None
            dropped = self._too_old()
            if step in self._early:
                found = self._early[step][1]
            else:
                found = self._make(step)
                self._early[step] = self._clock(), found
                if len(self._early) > self._most_early:
                    dropped.append(self._drop_oldest())
        _abort(dropped)
        return found

    def start(self, step: StepId) -> RemoteRendezvous:
        """Return the rendezvous of a step that starts. AbortedError if it has ended already, as a
        step that was aborted elsewhere has.
        """
        with self._lock:
            if step in self._ended or step in self._started:
                what = "has ended" if step in self._ended else "is running"
                raise AbortedError(None, None, f"step {step} cannot start: it {what} on this task")
            early = self._early.pop(step, None)
            found = self._make(step) if early is None else early[1]
            self._started[step] = found
        return found

    def end(self, step: StepId, error: BaseException | None = None) -> None:
        """Drop a step, started or not, with its tensors; those that arrive later are dropped too.
        `error`: what its receivers get if there are still any.
        """
        with self._lock:
            early = self._early.pop(step, None)
            found = self._started.pop(step, None) or (early and early[1])
            self._remember(step)
        if found is not None:
            found.abort(error or _over())

    def expire(self) -> list[StepId]:
        """Drop the steps that were mentioned too long ago and have not started; return them."""
        with self._lock:
            known = list(self._early)
            dropped = self._too_old()
            ids = known[: len(dropped)]
        _abort(dropped)
        return ids

    def running(self) -> list[StepId]:
        """Return the steps that have started and not ended."""
        with self._lock:
            return list(self._started)

    def early(self) -> list[StepId]:
        """Return the steps that were mentioned and have not started, the oldest first."""
        with self._lock:
            return list(self._early)

    def _too_old(self) -> list[RemoteRendezvous]:
        dropped = []
        limit = self._clock() - self._patience
        while self._early and next(iter(self._early.values()))[0] < limit:
            dropped.append(self._drop_oldest())
        return dropped

    def _drop_oldest(self) -> RemoteRendezvous:
        step, (_, found) = self._early.popitem(last=False)
        self._remember(step)
        return found

    def _remember(self, step: StepId) -> None:
        self._ended[step] = None
        self._ended.move_to_end(step)
        while len(self._ended) > self._remembered:
            self._ended.popitem(last=False)


def _abort(dropped: list[RemoteRendezvous]) -> None:
    for found in dropped:
        found.abort(_over())


def _over() -> AbortedError:
    return AbortedError(None, None, "the step has ended on this task")
