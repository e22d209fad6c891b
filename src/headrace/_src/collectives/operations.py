"""The collectives of one epoch, each known by a name. In: arrays of this rank, and frames of the
others. Out: results, or Pendings for them.

`AllReduce` reduces in shared memory among the processes of this host, and by a ring of TCP
connections between hosts: in frames, or in streams if there is much to send. `exchange.Exchange`
gathers and broadcasts by messages. A collective waits for nothing but its own messages, so ranks
may start theirs in different orders.

State of an AllReduce, under its lock: the phase of the round that is under way.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from headrace._src.collectives.desk import ARRIVED, DONE, Desk
from headrace._src.collectives.epoch import Epoch
from headrace._src.collectives.messages import SEGMENT, SegmentHead
from headrace._src.collectives.ring import Do, Ring
from headrace._src.collectives.shared_reduce import (
    Reduced,
    ReducePlan,
    SharedReduce,
    adder,
    key_of,
)
from headrace._src.collectives.shares import cut, pieces, share
from headrace._src.collectives.streams import (
    WINDOW,
    EndedError,
    MismatchError,
    RingStream,
    StreamPair,
)
from headrace._src.core import errors
from headrace._src.devices.buffers import address as address_of
from headrace._src.devices.pending import Pending
from headrace._src.transport.frame import Frame
from headrace._src.transport.slabs import Slabs

__all__ = ["AllReduce", "Surroundings"]

SEGMENT_BYTES = 1 << 20  # as large as the buffers that the transport uses again
STREAMED_FROM = 4 << 20  # bytes of a ring for which connections of its own pay


class Surroundings(Protocol):
    """What collectives need of the communicator. Methods with `rank` raise UnavailableError if its
    connection has ended.
    """

    epoch: Epoch
    memory: Slabs | None
    desks: Sequence[Desk]
    patience: float
    crowded: bool  # whether the host has more ranks than cores

    def check(self) -> None:
        """Raise the reason if the epoch is broken, unless ranks have just ended: what they have
        sent before may still be used.
        """

    def settle(self) -> None:
        """Raise the reason if the epoch is broken: nothing more will come."""

    def send(self, rank: int, frame: Frame) -> None: ...

    def ring_bell(self, rank: int, key: int) -> None: ...

    def queued(self, rank: int) -> int:
        """Return the bytes that are not on their way to a rank yet."""
        ...

    def when_flushed(self, rank: int, call: Callable[[], Any]) -> None: ...

    def soon(self, call: Callable[[], Any]) -> None:
        """Call a function in the thread that receives frames."""

    def pair_up(self, key: int, then: Callable[[StreamPair], Any]) -> None:
        """In the thread that receives frames: connect a collective with its neighbours in the ring
        by streams, if it is not yet, and call back.
        """

    def stream(self, stream: RingStream) -> None:
        """Let a thread move the bytes of a stream."""

    def lose(self, rank: int) -> None:
        """A connection with a rank has ended."""

    def sleep(self, waiting: AllReduce) -> None:
        """Call `poll` after a bell."""

    def wake(self, waiting: AllReduce) -> None: ...

    def abort(self, reason: str) -> None:
        """Break the epoch for all ranks."""

    def keep(self, memory: Any) -> None:
        """Never use memory again: a rank that was believed dead may still write to it."""

    def count(self, shared: int = 0, sent: int = 0) -> None:
        """Count bytes that were moved in others' memory, or sent."""


class _Phase(enum.Enum):
    IDLE = "idle"
    ARRIVING = "the others to begin"
    RING = "other hosts"
    FINISHING = "the others to do their shares"


class AllReduce:
    """The all-reduces of one name."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name, self.key = name, key_of(f"reduce {name}")
        self._around, self._epoch = around, around.epoch
        self._lock = threading.RLock()
        self._phase = _Phase.IDLE
        self._round = 0
        self._reduced: Reduced | None = None
        self._pending: Pending | None = None
        self._error: Exception | None = None
        self._ring: Ring | None = None
        self._streaming = False  # whether the round under way has a stream instead
        self._early: dict[int, list[tuple[SegmentHead, np.ndarray]]] = {}
        self._planned: tuple[Any, ReducePlan] | None = None  # of the last round
        self._shared: SharedReduce | None = None
        if len(self._epoch.sharing) > 1:
            assert around.memory is not None
            self._shared = SharedReduce(self.key, around.desks, self._epoch.place, around.memory)

    def start(
        self, arrays: Sequence[np.ndarray], merge: str, average: bool, in_place: bool = False
    ) -> Any:
        """Begin a round; return the results, or a Pending for them. in_place: they may take the
        arrays' memory.
        """
        around = self._around
        with self._lock:
            around.settle()
            if self._phase is not _Phase.IDLE:
                raise errors.FailedPreconditionError(
                    None,
                    None,
                    f"all-reduce '{self.name}' is already under way in this process: two steps "
                    "that run at the same time need different names",
                )
            memory = None if self._shared is None else self._shared.memory
            plan = self._plan(arrays, merge, average)
            # A ring sends inputs while results come; two ranks that do not divide the work each
            # read all inputs.
            in_place = in_place and len(self._epoch.groups) == 1 and not plan.alone
            reduced = Reduced(plan, arrays, memory, in_place)
            self._round += 1
            self._reduced, self._error = reduced, None
            self._phase = _Phase.ARRIVING
            if self._shared is not None and self._begin_shared(self._shared, reduced):
                return self._take()
            if self._advance(around.patience):
                return self._take()
            pending = self._pending = Pending(self._what, self.given_up)
            if self._shared is not None:
                # The others look at this word after they have set theirs, so one last look at
                # theirs comes after it. Should the processor reorder the two, a timer helps.
                self._shared.sleep(True)
                if self._advance(0):
                    self._pending = None
                    return self._take()
                around.sleep(self)
        return pending

    def _plan(self, arrays: Sequence[np.ndarray], merge: str, average: bool) -> ReducePlan:
        key = (merge, average, *[(a.shape, a.dtype) for a in arrays])
        if self._planned is None or self._planned[0] != key:
            divisor = self._epoch.size if average else 1
            self._planned = key, ReducePlan(arrays, merge, divisor)
        return self._planned[1]

    def poll(self) -> None:
        """Go on, if the others have: a bell has rung, or a timer."""
        with self._lock:
            if self._pending is None or self._phase in (_Phase.IDLE, _Phase.RING):
                return
            try:
                if not self._advance(0):
                    return
            except Exception as error:
                self._error = error
                self._around.abort(f"all-reduce '{self.name}': {error}")
                return
            self._complete()

    def _complete(self) -> None:
        """Give the Pending its results."""
        pending, self._pending = self._pending, None
        self._around.wake(self)
        try:
            value, error = self._take(), None
        except Exception as found:
            value, error = None, found
        if pending is not None and pending.claim():
            if error is None:
                pending.complete(value)
            else:
                pending.fail(error)

    def fail(self, error: Exception) -> None:
        """The epoch is broken: end the round with an error. Its memory is not used again, since
        others may still write to it.
        """
        self.poll()
        with self._lock:
            pending, self._pending = self._pending, None
            self._around.wake(self)
            if self._reduced is not None:
                self._around.keep(self._reduced)
        if pending is not None and pending.claim():
            pending.fail(self._error or error)

    def given_up(self, pending: Pending) -> None:
        """The step that waits for the results was cancelled."""
        self._around.abort(f"gave up all-reduce '{self.name}'")

    def _what(self) -> str:
        phase, shared = self._phase, self._shared
        if shared is not None and phase in (_Phase.ARRIVING, _Phase.FINISHING):
            places = shared.absent(ARRIVED if phase is _Phase.ARRIVING else DONE)
            ranks = [self._epoch.sharing[i] for i in places if i != self._epoch.place]
            return f"all-reduce '{self.name}': ranks {ranks} are not there yet"
        return f"all-reduce '{self.name}': waits for {phase.value}"

    # -- The phases, under the lock ----------------------------------------------------------------

    def _take(self) -> list[np.ndarray]:
        """Return the results of a round that is over."""
        reduced, error = self._reduced, self._error
        self._reduced = self._ring = None
        if error is not None:
            raise error
        assert reduced is not None
        return reduced.take()

    def _begin_shared(self, shared: SharedReduce, reduced: Reduced) -> bool:
        """Let the others know of the round; return whether it is over already."""
        over = shared.begin(reduced)
        if over:
            self._around.count(shared=shared.moved)
            self._phase = _Phase.FINISHING if over == 1 else _Phase.IDLE
        if over < 2:
            self._wake_others()
        return over == 2

    def _advance(self, seconds: float) -> bool:
        """Go on as far as possible, waiting a little; return whether the round is over."""
        reduced, shared, around = self._reduced, self._shared, self._around
        assert reduced is not None
        if self._phase is _Phase.ARRIVING:
            if shared is not None and not shared.has_all(ARRIVED, seconds):
                return False
            if shared is not None and (others := shared.differing()):
                self._error = self._disagreement([self._epoch.sharing[i] for i in others])
            elif len(self._epoch.groups) == 1:
                assert shared is not None
                around.count(shared=shared.reduce(reduced, len(self._epoch.sharing), True))
            else:
                if shared is not None:
                    around.count(shared=shared.reduce(reduced, self._epoch.owners, False))
                if self._epoch.ring:
                    self._phase = _Phase.RING
                    around.soon(self._start_ring)
                    return False
            self._finish_share()
        if self._phase is _Phase.FINISHING:
            if shared is not None:
                if not shared.has_all(DONE, seconds):
                    return False
                shared.sleep(False)
            self._phase = _Phase.IDLE
            return True
        return False

    def _finish_share(self) -> None:
        self._phase = _Phase.FINISHING
        if self._shared is not None:
            self._shared.finish()
            self._wake_others()

    def _wake_others(self) -> None:
        assert self._shared is not None
        for place in self._shared.sleepers():
            self._around.ring_bell(self._epoch.sharing[place], self.key)

    def _disagreement(self, ranks: list[int]) -> errors.InvalidArgumentError:
        reduced = self._reduced
        assert reduced is not None
        shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in reduced.arrays[:8])
        return errors.InvalidArgumentError(
            None,
            None,
            f"Mismatched all-reduce '{self.name}': ranks {ranks} have other types, shapes or "
            f"operations than rank {self._epoch.rank}, which has {reduced.plan.merge} of {shapes}",
        )

    # -- The ring, in the thread that receives frames ----------------------------------------------

    def _start_ring(self) -> None:
        with self._lock:
            reduced = self._reduced
            if reduced is None or self._phase is not _Phase.RING:
                return
            members, plan = self._epoch.ring, reduced.plan
            low, high = share(plan.total, self._epoch.owners, self._epoch.place)
            ranges = [share(high - low, len(members), i) for i in range(len(members))]
            chunks = [list(pieces(plan.starts, plan.sizes, low + a, low + b)) for a, b in ranges]
            if high - low >= STREAMED_FROM:
                self._streaming = True
                if self._early.pop(self._round, None):
                    self._ring_failed(self._disagreement([self._neighbour(-1)]))
                else:
                    self._around.pair_up(
                        self.key, lambda pair: self._start_stream(pair, reduced, chunks)
                    )
                return
            segments = [cut(iter(chunk), SEGMENT_BYTES) for chunk in chunks]
            self._ring = Ring(members.index(self._epoch.rank), segments)
            try:
                for do in self._ring.start():
                    self._follow(do, None)
                for head, array in self._early.pop(self._round, ()):
                    self._received(head, array)
                if self._ring is not None and self._ring.is_over:
                    self._ring_over()
            except Exception as error:
                self._ring_failed(error)

    def _neighbour(self, hops: int) -> int:
        """Return the rank of the member so many places behind."""
        members = self._epoch.ring
        return members[(members.index(self._epoch.rank) + hops) % len(members)]

    def _start_stream(self, pair: StreamPair, reduced: Reduced, chunks: list[Any]) -> None:
        index = self._epoch.ring.index(self._epoch.rank)
        summed = self._shared is not None
        window = math.inf if self._around.crowded else WINDOW
        over = self._stream_over
        self._around.stream(
            RingStream(pair, window, index, chunks, reduced, summed, self._round, over)
        )

    def _stream_over(self, stream: RingStream, error: Exception | None) -> None:
        """In the thread of streams: all bytes are here, and all have left."""
        self._around.count(sent=stream.written)
        with self._lock:
            if isinstance(error, EndedError):
                self._around.lose(self._neighbour(1 if error.behind else -1))
            elif isinstance(error, MismatchError):
                self._ring_failed(self._disagreement([self._neighbour(-1)]))
            elif error is not None:
                self._ring_failed(error)
            else:
                self._ring_done()

    def segment(self, head: SegmentHead, array: np.ndarray) -> None:
        """A segment has come from the member before."""
        with self._lock:
            if self._streaming and head.round == self._round:  # it has fewer bytes
                self._ring_failed(self._disagreement([self._neighbour(-1)]))
                return
            if self._ring is None or head.round != self._round:
                self._early.setdefault(head.round, []).append((head, array))
                return
            try:
                self._received(head, array)
            except Exception as error:
                self._ring_failed(error)

    def _ring_failed(self, error: Exception) -> None:
        self._error = error
        self._around.abort(f"all-reduce '{self.name}': {error}")

    def _received(self, head: SegmentHead, array: np.ndarray) -> None:
        ring, reduced = self._ring, self._reduced
        assert ring is not None and reduced is not None
        if head.signature != reduced.plan.signature:
            raise self._disagreement([self._neighbour(-1)])
        do = ring.received(head.phase, head.chunk, head.segment)
        if array.dtype != reduced.plan.dtype or array.nbytes != do.piece.stop - do.piece.start:
            raise errors.InternalError(None, None, f"a segment has {array.nbytes} bytes of {do}")
        self._follow(do, array)
        if ring.is_over:
            self._ring_over()

    def _follow(self, do: Do, received: np.ndarray | None) -> None:
        reduced = self._reduced
        assert reduced is not None
        # The sum of this host's processes, if they share memory, is in the results already.
        data = reduced.view(do.piece, self._shared is not None)
        if received is not None:
            out = reduced.view(do.piece, True)
            if do.combine:
                add = adder(reduced.plan, reduced.plan.divisor if do.last else 1)
                add(out.nbytes, address_of(received), address_of(data), address_of(out))
            elif do.store:
                np.copyto(out, received)
            data = out
        if do.send is not None:
            head = SegmentHead(
                self._epoch.number,
                self._round,
                reduced.plan.signature,
                do.send,
                do.chunk,
                do.segment,
            )
            self._around.count(sent=data.nbytes)
            self._around.send(self._neighbour(1), Frame(SEGMENT, self.key, head.pack(), (data,)))

    def _ring_over(self) -> None:
        """All segments are here. The results may change once the last ones have been sent."""
        with self._lock:
            ring, reduced = self._ring, self._reduced
            if ring is None or reduced is None or self._phase is not _Phase.RING:
                return
            following = self._neighbour(1)
            if self._around.queued(following):
                self._around.when_flushed(following, self._ring_over)
                return
            self._ring = None
            self._ring_done()

    def _ring_done(self) -> None:
        """Give this process's share of the sum to the others of its host."""
        reduced = self._reduced
        if reduced is None or self._phase is not _Phase.RING:
            return
        self._streaming = False
        if self._shared is not None:
            moved = self._shared.spread(reduced, self._epoch.owners)
            self._around.count(shared=moved)
        self._finish_share()
        if self._shared is None or self._pending is not None:
            self.poll()
