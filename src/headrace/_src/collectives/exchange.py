"""The all-gathers and broadcasts of one epoch. In: an array of this rank, and those of the others.
Out: a result, or a Pending for it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from headrace._src.collectives.messages import PART, PartHead
from headrace._src.collectives.operations import Surroundings
from headrace._src.collectives.shared_reduce import key_of
from headrace._src.core import errors
from headrace._src.devices.pending import Pending
from headrace._src.transport.frame import Frame

__all__ = ["Exchange"]


class Exchange:
    """The all-gathers, or the broadcasts, of one name.

    State, under its lock: the parts that have come, by round and rank; the round under way.
    """

    def __init__(self, name: str, kind: str, around: Surroundings) -> None:
        self.name, self.kind, self.key = name, kind, key_of(f"{kind} {name}")
        self._around, self._epoch = around, around.epoch
        self._lock = threading.RLock()
        self._round = 0
        self._parts: dict[int, dict[int, np.ndarray]] = {}
        self._pending: Pending | None = None
        self._root = -1
        self._form = ""  # the type and shape that this rank has

    def start(self, array: np.ndarray, root: int = -1) -> Any:
        """Begin a round: an all-gather, or the broadcast of rank `root`, whose type and shape all
        ranks have.
        """
        around, rank = self._around, self._epoch.rank
        if not -1 <= root < self._epoch.size:
            raise errors.InvalidArgumentError(
                None, None, f"rank {root} cannot broadcast: there are {self._epoch.size} ranks"
            )
        if root < 0 and array.ndim == 0:
            raise errors.InvalidArgumentError(
                None, None, "an all-gather joins along the first dimension, but got a scalar"
            )
        with self._lock:
            around.check()
            if self._pending is not None:
                raise errors.FailedPreconditionError(
                    None, None, f"{self.kind} '{self.name}' is already under way in this process"
                )
            self._round += 1
            self._root, self._form = root, _form(array)
            if root in (-1, rank):
                self._parts.setdefault(self._round, {})[rank] = array
                head = PartHead(self._epoch.number, self._round, root).pack()
                for other in range(self._epoch.size):
                    if other != rank:
                        around.count(sent=array.nbytes)
                        around.send(other, Frame(PART, self.key, head, (array,)))
            if self._is_complete():
                return self._take()
            around.settle()
            self._pending = Pending(self._what, self._cancelled)
            return self._pending

    def part(self, rank: int, head: PartHead, array: np.ndarray) -> None:
        """A part has come."""
        with self._lock:
            if head.round < self._round or (head.round == self._round and self._pending is None):
                others = f"{self.kind} '{self.name}' of other roots on other ranks"
                self._around.abort(f"has begun {others}")
                return
            self._parts.setdefault(head.round, {})[rank] = array
            if self._pending is None or not self._is_complete():
                return
            pending, self._pending = self._pending, None
            try:
                value, error = self._take(), None
            except Exception as found:
                value, error = None, found
        if pending.claim():
            if error is None:
                pending.complete(value)
            else:
                pending.fail(error)

    def poll(self) -> None:
        """Nothing happens without a message."""

    def fail(self, error: Exception) -> None:
        """The epoch is broken."""
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None and pending.claim():
            pending.fail(error)

    def _cancelled(self, pending: Pending) -> None:
        self._around.abort(f"gave up {self.kind} '{self.name}'")

    def _what(self) -> str:
        there = self._parts.get(self._round, {})
        wanted = range(self._epoch.size) if self._root < 0 else [self._root]
        return f"{self.kind} '{self.name}': ranks {[r for r in wanted if r not in there]}"

    def _is_complete(self) -> bool:
        there = self._parts.get(self._round, {})
        if self._root >= 0:
            return bool(there)  # one of another rank is an error
        return len(there) == self._epoch.size

    def _take(self) -> np.ndarray:
        parts = self._parts.pop(self._round)
        if self._root >= 0:
            return self._broadcast(parts)
        found = [parts[rank] for rank in range(self._epoch.size)]
        first = found[0]
        for rank, each in enumerate(found):
            if each.dtype != first.dtype or each.shape[1:] != first.shape[1:]:
                raise errors.InvalidArgumentError(
                    None,
                    None,
                    f"Mismatched all-gather '{self.name}': rank {rank} has {_form(each)}, "
                    f"rank 0 {_form(first)}; only the first dimensions may differ",
                )
        return np.concatenate(found)

    def _broadcast(self, parts: dict[int, np.ndarray]) -> np.ndarray:
        """Return the root's array; raise InvalidArgumentError if it is not what this rank has."""
        others = [rank for rank in parts if rank != self._root]
        if others:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"Mismatched broadcast '{self.name}': its root is rank {self._root} here, and "
                f"rank {others[0]} there",
            )
        found = parts[self._root]
        if _form(found) != self._form:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"Mismatched broadcast '{self.name}': the root, rank {self._root}, has "
                f"{_form(found)}, rank {self._epoch.rank} {self._form}",
            )
        return np.array(found)


def _form(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
