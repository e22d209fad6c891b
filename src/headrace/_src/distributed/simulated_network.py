"""Connections of the simulator. Messages arrive in order, after delays of their own; a connection
that is cut loses those under way, and its ends learn of it at different times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.distributed.instructions import Peer

__all__ = ["SimulatedConnection"]


class SimulatedConnection:
    """A connection between two parties. arrivals: when the last message arrives at each end."""

    def __init__(self, world: Any, one: Any, two: Any) -> None:
        self.world = world
        self.ends = one, two
        self.peers = one.me, two.me
        self.arrivals = [0.0, 0.0]
        self.is_cut = False
        world.connections.append(self)

    def other(self, party: Any) -> Any:
        return self.ends[self.ends[0] is party]

    def peer_of(self, party: Any) -> Peer:
        """Return the process at the other end."""
        return self.peers[self.ends[0] is party]

    def send(self, source: Any, message: Any) -> None:
        """Send a message; it arrives after those sent before, unless the connection is cut."""
        target = self.other(source)

        def arrive() -> None:
            if not self.is_cut:
                target.do(lambda: target.frame(self, self.peer_of(target), message))

        self._post(target, "receives", (self.peer_of(target), message), arrive)
        self.world.spring(self, source, message)

    def close(self, source: Any) -> None:
        """Close it from one end: the other learns of it after the messages under way."""
        target = self.other(source)
        self._post(target, "sees the end of", self.peer_of(target), lambda: self.tell(target))

    def cut(self) -> None:
        """Lose all messages under way; both ends learn of it, at different times."""
        self.is_cut = True
        for end, linked in zip(self.ends, self.arrivals, strict=True):
            delay = self.world.random.choice((0.001, 0.1, 1.2)) * self.world.random.random()
            when, tell = max(linked, self.world.now + delay), lambda e=end: self.tell(e)
            self.world.at(when, end.me, "sees the cut from", self.peer_of(end), tell)

    def tell(self, end: Any) -> None:
        end.do(lambda: end.unlinked(self))

    def _post(self, target: Any, verb: str, what: Any, then: Callable[[], None]) -> None:
        side = self.ends.index(target)
        when = max(self.arrivals[side], self.world.now + self.world.delay())
        self.arrivals[side] = when
        self.world.at(when, target.me, verb, what, then)
