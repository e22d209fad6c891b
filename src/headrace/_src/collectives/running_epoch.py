"""An epoch that runs: its links, its desks, and the collectives in it. In: frames of other ranks,
and losses. Out: what collectives ask of their surroundings (`operations.Surroundings`).

State: the collectives by name and key, what came before they were started, and what has broken the
epoch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._src.collectives import messages as say
from headrace._src.collectives.desk import Desk
from headrace._src.collectives.epoch import Epoch
from headrace._src.collectives.exchange import Exchange
from headrace._src.collectives.operations import AllReduce
from headrace._src.collectives.streams import RingStream, StreamPair, Streams
from headrace._src.core import errors
from headrace._src.devices.collectives import RankLostError
from headrace._src.devices.target import usable_cores
from headrace._src.transport.connect import Connection
from headrace._src.transport.frame import Frame, ProtocolError
from headrace._src.transport.link import Link

if TYPE_CHECKING:
    from headrace._src.collectives.communicator import Communicator

__all__ = ["RunningEpoch"]

_PATIENCE = 1e-3  # seconds that a thread looks for late ranks before it sleeps
_CROWDED = 3e-5  # the same if there are more ranks than cores
_CHECK = 0.02  # seconds between two looks at desks while something waits
_GRACE = 1.0  # seconds that collectives have to end when a rank has left


class RunningEpoch:
    """An epoch with its links, and the collectives in it."""

    def __init__(self, epoch: Epoch, owner: Communicator) -> None:
        self.epoch = epoch
        self.memory = owner.arena if len(epoch.sharing) > 1 else None
        self.crowded = len(epoch.on_host) > usable_cores()
        self.patience = _CROWDED if self.crowded else _PATIENCE
        self.links: dict[int, Link] = {}  # by rank
        self.desks: Sequence[Desk] = ()
        self.found: dict[int, Desk] = {}  # by rank, as they come
        self.error: str | None = None
        self.running: dict[int, Any] = {}  # collectives by key
        self._early: dict[int, list[tuple[int, Frame]]] = {}  # of collectives to come, by key
        self._named: dict[tuple[str, str], Any] = {}
        self._making = threading.Lock()
        self._departed: set[int] = set()  # ranks that have ended by themselves
        self._polite = False  # whether that is what has broken the epoch
        self._owner = owner
        self._sleeping: set[AllReduce] = set()
        self._timer: Any = None
        self._flushing: dict[int, list[Callable[[], Any]]] = {}
        self._streams = Streams(0.0 if self.crowded else _PATIENCE)
        # The connections of large all-reduces, by key; None: it is being made.
        self._before: dict[int, Any] = {}
        self._behind: dict[int, Any] = {}
        self._pairing: dict[int, Callable[[StreamPair], Any]] = {}

    @property
    def is_complete(self) -> bool:
        others = [r for r in range(self.epoch.size) if r != self.epoch.rank]
        shared = [r for r in self.epoch.sharing if r != self.epoch.rank]
        return all(r in self.links for r in others) and all(r in self.found for r in shared)

    def check(self) -> None:
        if self.error is not None and not self._polite:
            raise self.lost()

    def settle(self) -> None:
        if self.error is not None:
            raise self.lost()

    def leave(self, rank: int | None, reason: str) -> None:
        """In the loop: a rank has ended by itself. What is under way may be completed without it,
        and gets a little time.
        """
        if rank is not None:
            self._departed.add(rank)

        def end() -> None:
            self._polite |= self.error is None
            self._owner.broken(self, reason)

        self._owner.loop.call_later(_GRACE, end)

    def lost(self) -> RankLostError:
        """Return the error of a collective that cannot be completed."""
        return RankLostError(None, None, f"the ranks cannot go on together: {self.error}")

    def send(self, rank: int, frame: Frame) -> None:
        if rank in self._departed:
            return
        link = self.links[rank]
        if link.unix and frame.kind == say.SEGMENT:  # the other would read memory that changes
            frame = frame._replace(tensors=tuple(np.array(t) for t in frame.tensors))
        with contextlib.suppress(errors.UnavailableError):  # the loop reads why, and ends the epoch
            link.send(frame)

    def ring_bell(self, rank: int, key: int) -> None:
        self.send(rank, Frame(say.BELL, key, say.number_pair(self.epoch.number, 0)))

    def queued(self, rank: int) -> int:
        return self.links[rank].queued_bytes

    def when_flushed(self, rank: int, call: Callable[[], Any]) -> None:
        self._flushing.setdefault(rank, []).append(call)
        link = self.links[rank]
        link.on_flushed = lambda: self._flushed(rank)
        if not link.queued_bytes:
            self._flushed(rank)

    def _flushed(self, rank: int) -> None:
        for call in self._flushing.pop(rank, ()):
            call()

    def soon(self, call: Callable[[], Any]) -> None:
        self._owner.loop.call_soon(call)

    def pair_up(self, key: int, then: Callable[[StreamPair], Any]) -> None:
        self._pairing[key] = then
        if key not in self._behind:
            self._behind[key] = None
            ring = self.epoch.ring
            rank = ring[(ring.index(self.epoch.rank) + 1) % len(ring)]

            def reached(found: Connection | Exception) -> None:
                if isinstance(found, Exception):
                    self.lose(rank, f"cannot be reached: {found}")
                else:
                    self._joined(self._behind, key, found)

            self._owner.connect_stream(self.epoch.members[rank].address, key, reached)
        self._start_paired(key)

    def stream_from_before(self, key: int, connection: Connection) -> None:
        """In the loop: the member before has connected a collective."""
        self._joined(self._before, key, connection)

    def _joined(self, side: dict[int, Any], key: int, connection: Connection) -> None:
        self._streams.own(connection.socket)
        side[key] = connection.socket
        self._start_paired(key)

    def _start_paired(self, key: int) -> None:
        before, behind = self._before.get(key), self._behind.get(key)
        if before is not None and behind is not None and key in self._pairing:
            self._pairing.pop(key)(StreamPair(before, behind))

    def stream(self, stream: RingStream) -> None:
        self._streams.add(stream)

    def lose(self, rank: int, why: str = "is gone: its connection has ended") -> None:
        # Its other connection says more, if that has ended too.
        self._owner.loop.call_later(_GRACE, lambda: self._owner.broken(self, f"rank {rank} {why}"))

    def sleep(self, waiting: AllReduce) -> None:
        self._sleeping.add(waiting)
        self.soon(self._look_later)

    def wake(self, waiting: AllReduce) -> None:
        self._sleeping.discard(waiting)

    def _look_later(self) -> None:
        if self._sleeping and self._timer is None:
            self._timer = self._owner.loop.call_later(_CHECK, self._look)

    def _look(self) -> None:
        self._timer = None
        for each in list(self._sleeping):
            each.poll()
        self._look_later()

    def abort(self, reason: str) -> None:
        mine = f"rank {self.epoch.rank} {reason}"
        frame = Frame(say.ABORT, 0, say.number_pair(self.epoch.number, 0) + mine.encode()[:4096])
        for link in self.links.values():
            with contextlib.suppress(errors.UnavailableError):
                link.send(frame)
        self._owner.broken(self, mine)

    def keep(self, memory: Any) -> None:
        self._owner.kept.append(memory)

    def count(self, shared: int = 0, sent: int = 0) -> None:
        self._owner.moved.shared += shared
        self._owner.moved.sent += sent

    def collective(self, kind: str, name: str) -> Any:
        """Return the collective of a kind and name."""
        found = self._named.get((kind, name))
        if found is None:
            with self._making:
                found = self._named.get((kind, name))
                if found is not None:
                    return found
                found = AllReduce(name, self) if kind == "reduce" else Exchange(name, kind, self)
                self._named[kind, name] = self.running[found.key] = found
                early = self._early.pop(found.key, [])
            for rank, frame in early:
                self.deliver(rank, frame)
        return found

    def deliver(self, rank: int, frame: Frame) -> None:
        """Give a frame to its collective, or keep it until that has begun here."""
        found = self.running.get(frame.number)
        if found is None and frame.kind != say.BELL:
            with self._making:
                found = self.running.get(frame.number)
                if found is None:
                    self._early.setdefault(frame.number, []).append((rank, frame))
                    return
        if frame.kind == say.BELL:
            if found is not None:
                found.poll()
        elif len(frame.tensors) != 1 or frame.tensors[0] is None:
            raise ProtocolError("a frame of a collective has one tensor")
        elif frame.kind == say.SEGMENT and isinstance(found, AllReduce):
            found.segment(say.SegmentHead.unpack(frame.head), frame.tensors[0].reshape(-1))
        elif frame.kind == say.PART and isinstance(found, Exchange):
            found.part(rank, say.PartHead.unpack(frame.head), frame.tensors[0])
        else:
            raise ProtocolError(f"a frame of kind {frame.kind} does not fit its collective")

    def fail(self) -> None:
        """In the loop: end everything that waits."""
        self._streams.close()
        for each in list(self.running.values()):
            each.fail(self.lost())
