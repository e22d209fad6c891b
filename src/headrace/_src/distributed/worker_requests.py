"""What a master has asked workers, until they answer.

Invariants: an answer counts once, and only from the process that was asked. Nothing is kept of a
process that is gone, nor of a session or graph that has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.sessions import MasterSession, RegisteredGraph

__all__ = ["WorkerRequests"]


class WorkerRequests:
    """The requests of one master. numbers: those that it has not used yet."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._asked: dict[int, tuple[Any, ...]] = {}  # what the answers of workers are for

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, what: str, subject: Any, peer: Peer, *more: Any) -> int:
        """Return the number of a request to a worker, whose answer is for `subject`."""
        number = next(self._numbers)
        self._asked[number] = what, subject, peer, *more
        return number

    def asked_of(self, peer: Peer, number: int) -> tuple[Any, ...] | None:
        """Return what a peer was asked with this number, once."""
        if number not in self._asked or self._asked[number][2] != peer:
            return None
        return self._asked.pop(number)

    def expect_nothing_for(self, subject: MasterSession | RegisteredGraph) -> None:
        """Ignore answers that are still to come."""
        for number in [n for n, asked in self._asked.items() if asked[1] is subject]:
            del self._asked[number]

    def lost(self, peer: Peer) -> None:
        """A process is gone. If it answers all the same, it answers too late."""
        for number in [n for n, asked in self._asked.items() if asked[2] == peer]:
            del self._asked[number]
