"""The driver of one rank: connects it with the coordinator and with the other ranks, and gives
their frames to the collectives. In: an address and a rank. Out: a `Communicator`, which is the
group of the process.

One thread, the loop's, receives all frames. Collectives in shared memory are run by the thread that
starts them, as long as no rank is late.

State of a Communicator, under `_changed`: the epoch that runs, with its links and desks, and the
one that is being connected.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.collectives import messages as say
from headrace._src.collectives.coordinator import CoordinatorService
from headrace._src.collectives.desk import DESK_BYTES, Desk
from headrace._src.collectives.epoch import Epoch
from headrace._src.collectives.membership import Begin, Broken, Member, OthersWait, Refused
from headrace._src.collectives.running_epoch import RunningEpoch
from headrace._src.collectives.starting_thread import StartingThread
from headrace._src.compile.native.heartbeat import responder
from headrace._src.core import errors
from headrace._src.devices.buffers import address as address_of
from headrace._src.devices.collectives import RankLostError
from headrace._src.devices.host_identity import host_name, memory_name
from headrace._src.devices.target import usable_cores
from headrace._src.transport.connect import Connection, connect, listen, split_address
from headrace._src.transport.frame import Frame, ProtocolError
from headrace._src.transport.handshake import Hello, Service
from headrace._src.transport.heartbeat import Heartbeat
from headrace._src.transport.keys import configured_key
from headrace._src.transport.link import Link
from headrace._src.transport.loop import Loop
from headrace._src.transport.slabs import Slabs

__all__ = ["Communicator", "Moved", "Solo"]

_CONNECT = 5.0  # seconds for one connection
_START = 300.0  # seconds for all ranks to come


class Moved:
    """Bytes that collectives of this process have moved: read and written in the memory of other
    processes, sent to other ranks, and sent to the coordinator.
    """

    def __init__(self) -> None:
        self.shared = self.sent = self.control = 0


class Communicator:
    """This process's place among the ranks. Blocks until all of them are there.

    address: the coordinator's. rank: the one that this process should have, -1 for any. size: how
    many ranks there are. serves: whether this process runs the coordinator.
    """

    def __init__(self, address: str, rank: int, size: int, serves: bool = False) -> None:
        self.moved = Moved()
        self.waiting = 0  # processes that wait for the next epoch
        self.id = (time.time_ns() >> 10 << 10 | secrets.randbits(10)) & (1 << 63) - 1
        self._hello = Hello("task", "rank", max(rank, -1), self.id, os.getpid())
        self._key = configured_key()
        self.arena = _arena()
        self.loop = Loop("headrace-ranks")
        self._changed = threading.Condition()
        self._run: RunningEpoch | None = None
        self._next: RunningEpoch | None = None
        self._refused: str | None = None
        self._closed = False
        self._links: dict[int, Link] = {}  # to other ranks, by the number of the process
        self._ahead: dict[int, list[tuple[int, Frame]]] = {}  # frames of epochs to come
        self._desks: dict[int, list[tuple[Link, Frame]]] = {}  # of epochs to come
        self._streams_ahead: dict[int, list[Connection]] = {}  # of epochs to come
        self._polite: set[Link] = set()  # whose ranks have said that they end
        self.kept: list[Any] = []  # desks of all epochs: a late rank may still look at its own
        self._own_desk: tuple[np.ndarray, int, int] | None = None  # memory, offset, slab's size
        self._service = CoordinatorService(address, size) if serves else None
        self._coordinator: Link | None = None
        self._background = StartingThread()
        try:
            self._meet(address, rank)
            self._await_epoch(0, _START)
        except BaseException:
            self.close()
            raise

    def _meet(self, address: str, rank: int) -> None:
        found = self._reach(address, Service.FRAMES, _START)
        # The address by which the coordinator sees this process is one that others can reach.
        own = split_address(address)[0] if found.unix else found.socket.getsockname()[0]
        host = f"[{own}]" if ":" in own else own
        listener = listen(f"{host}:0", self._key)
        self.loop.listen(listener, self._hello, self._connected)
        self._coordinator = self.loop.add(found, self._told, self._coordinator_lost)
        self.loop.start()
        beats = self._reach(address, Service.HEARTBEATS, _CONNECT)
        Heartbeat(beats, responder(), self.loop, self._coordinator_silent)
        member = Member(self.id, listener.address, host_name(), memory_name(self.id))
        self._tell(say.JoinRanks(member, rank))

    def _reach(self, address: str, service: Service, patience: float) -> Connection:
        """Connect to the coordinator, which may not have started yet."""
        end = time.monotonic() + patience
        while True:
            try:
                return connect(address, self._hello, self._key, _CONNECT, service)
            except errors.UnavailableError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.05)

    def connect_stream(
        self, address: str, key: int, then: Callable[[Connection | Exception], Any]
    ) -> None:
        """In the loop: connect a collective of the epoch with a rank, and call back there."""
        hello = replace(self._hello, cookie=say.number_pair(self.epoch.number, key))
        self.loop.connect(address, hello, self._key, _CONNECT, then)

    def _tell(self, message: Any) -> None:
        frame = say.encode(message)
        self.moved.control += len(frame.head)
        assert self._coordinator is not None
        self._coordinator.send(frame)

    def _await_epoch(self, after: int, seconds: float) -> None:
        """Wait until an epoch after this one is connected."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if self._refused is not None:
                    raise RankLostError(None, None, self._refused)
                run = self._run
                if run is not None and run.epoch.number > after:
                    return
                left = end - time.monotonic()
                if left <= 0:
                    raise errors.DeadlineExceededError(
                        None, None, f"not all ranks have come in {seconds:g} s"
                    )
                self._changed.wait(min(left, 1.0))

    def next_epoch(self, seconds: float = _START) -> None:
        """Ask for the next epoch, and wait until it is there. Everything of this one ends."""
        run = self.run
        self.broken(run, f"rank {run.epoch.rank} waits for other ranks to join or leave")
        self._tell(say.Ready(run.epoch.number))
        self._await_epoch(run.epoch.number, seconds)

    def close(self) -> None:
        """Leave the group."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        for link in list(self._links.values()):
            with contextlib.suppress(errors.UnavailableError):
                link.send(Frame(say.BYE, 0, say.number_pair(0, 0)))
        if self._coordinator is not None:
            with contextlib.suppress(errors.UnavailableError):
                self._tell(say.Leave("has ended"))
        self.loop.stop()
        for connection in [c for ahead in self._streams_ahead.values() for c in ahead]:
            connection.socket.close()
        for run in (self._run, self._next):
            if run is not None:
                self.broken(run, f"rank {run.epoch.rank} has shut down")
                run.fail()
        self._background.close()
        if self._service is not None:
            self._service.close()

    # -- As a group --------------------------------------------------------------------------------

    @property
    def run(self) -> RunningEpoch:
        """The epoch that runs."""
        assert self._run is not None
        return self._run

    @property
    def epoch(self) -> Epoch:
        return self.run.epoch

    @property
    def rank(self) -> int:
        return self.run.epoch.rank

    @property
    def size(self) -> int:
        return self.run.epoch.size

    @property
    def memory(self) -> Slabs | None:
        return self.run.memory

    @property
    def overlaps(self) -> bool:
        """Whether an exchange has something to run on while a step goes on: a core of this host,
        or the network.
        """
        epoch = self.epoch
        return len(epoch.on_host) < max(usable_cores(), epoch.size)

    def all_reduce(
        self,
        name: str,
        arrays: Sequence[np.ndarray],
        merge: str = "Add",
        average: bool = False,
        background: bool = False,
        in_place: bool = False,
    ) -> Any:
        run = self.run
        if run.epoch.size == 1 or not arrays:
            return [np.array(a) for a in arrays]
        found = run.collective("reduce", name)
        if background and run.memory is not None:  # else another thread does everything anyway
            return self._background.start(found, arrays, merge, average, in_place)
        return found.start(arrays, merge, average, in_place)

    def all_gather(self, name: str, array: np.ndarray) -> Any:
        return self.run.collective("all-gather", name).start(array)

    def broadcast(self, name: str, array: np.ndarray, root: int) -> Any:
        return self.run.collective("broadcast", name).start(array, root)

    # -- In the loop's thread: the coordinator -----------------------------------------------------

    def _told(self, link: Link, frame: Frame) -> None:
        message = say.decode(frame)
        if isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Broken):
            run = self._run
            if run is not None and run.epoch.number == message.epoch:
                if message.graceful:
                    run.leave(None, message.reason)
                else:
                    self.broken(run, message.reason)
        elif isinstance(message, OthersWait):
            self.waiting = message.count
        elif isinstance(message, Refused):
            with self._changed:
                self._refused = f"this process cannot take part: {message.reason}"
                self._changed.notify_all()

    def _coordinator_silent(self, hello: Hello, reason: str) -> None:
        self._coordinator_gone(f"the coordinator of the ranks is gone: {reason}")

    def _coordinator_lost(self, link: Link, error: Exception | None) -> None:
        self._coordinator_gone("the coordinator of the ranks is gone: its connection has ended")

    def _coordinator_gone(self, reason: str) -> None:
        if self._closed:
            return
        with self._changed:
            self._refused = self._refused or reason
            self._changed.notify_all()
        if self._run is not None:
            self.broken(self._run, reason)

    # -- In the loop's thread: epochs --------------------------------------------------------------

    def _begin(self, message: Begin) -> None:
        """An epoch begins: connect with its members."""
        rank = next(i for i, m in enumerate(message.members) if m.id == self.id)
        if self._run is not None:
            self.broken(self._run, "the next epoch has begun")
        if self._next is not None:
            self._next.fail()
        epoch = Epoch(message.epoch, message.members, rank)
        run = self._next = RunningEpoch(epoch, self)
        self.waiting = 0
        if run.memory is not None:
            self._make_desk(run)
        for other, member in enumerate(epoch.members):
            link = self._links.get(member.id)
            if link is not None and not link.closed:
                self._link_up(run, other, link)
            elif other < rank:
                self.loop.connect(
                    member.address,
                    self._hello,
                    self._key,
                    _CONNECT,
                    lambda found, other=other: self._reached(run, other, found),
                )
        for link, frame in self._desks.pop(message.epoch, ()):
            self._desk(link, frame)
        for connection in self._streams_ahead.pop(message.epoch, ()):
            self._stream_connected(connection)
        self._complete(run)

    def _make_desk(self, run: RunningEpoch) -> None:
        memory = self.arena.allocate(DESK_BYTES)
        self.kept.append(memory)
        found = self.arena.lease(memory)
        assert found is not None
        block, offset = found
        self._own_desk = memory, offset, block.slab.size
        address = address_of(memory)
        desk = run.found[run.epoch.rank] = Desk(address, address - offset, block.slab.size)
        desk.clear()

    def _reached(self, run: RunningEpoch, rank: int, found: Connection | Exception) -> None:
        if isinstance(found, Exception):
            self._abandon(run, f"rank {rank} cannot be reached: {found}")
        else:
            self._connected(found)

    def _connected(self, connection: Connection) -> None:
        """A link to another rank is there, from either side."""
        if self._closed:
            connection.socket.close()
            return
        if connection.peer.cookie:
            self._stream_connected(connection)
            return
        id = connection.peer.incarnation
        link = self.loop.add(connection, self._frame, self._unlinked, slabs=self.arena)
        link.context = id
        self._links[id] = link
        run = self._next
        if run is not None:
            for rank, member in enumerate(run.epoch.members):
                if member.id == id:
                    self._link_up(run, rank, link)
            self._complete(run)

    def _stream_connected(self, connection: Connection) -> None:
        """A rank has connected a collective by a stream: see connect_stream."""
        number, key = say.pair_of(connection.peer.cookie)
        for run in (self._run, self._next):
            if run is not None and run.epoch.number == number:
                run.stream_from_before(key, connection)
                return
        newest = self._next or self._run
        if newest is None or number > newest.epoch.number:
            self._streams_ahead.setdefault(number, []).append(connection)
        else:
            connection.socket.close()

    def _link_up(self, run: RunningEpoch, rank: int, link: Link) -> None:
        run.links[rank] = link
        if rank in run.epoch.sharing:
            if not link.unix:
                self._abandon(run, f"rank {rank} is on this host, but has no Unix socket")
                return
            assert self._own_desk is not None
            memory, offset, size = self._own_desk
            head = say.number_pair(run.epoch.number, offset)
            with contextlib.suppress(errors.UnavailableError):  # _unlinked comes
                link.send(Frame(say.DESK, size, head, (memory,)))

    def _abandon(self, run: RunningEpoch, reason: str) -> None:
        """An epoch cannot be connected."""
        if run is not self._next:
            return  # it was given up before, and the next one may be on its way
        with self._changed:
            run.error = run.error or reason
            self._run, self._next = run, None
            self._changed.notify_all()
        run.fail()

    def _complete(self, run: RunningEpoch) -> None:
        """Let an epoch run, if all links and desks are there."""
        if run is not self._next or not run.is_complete:
            return
        run.desks = [run.found[r] for r in run.epoch.sharing] if run.memory is not None else []
        with self._changed:
            self._run, self._next = run, None
            self._changed.notify_all()
        ahead = self._ahead
        self._ahead = {n: frames for n, frames in ahead.items() if n > run.epoch.number}
        for id, frame in ahead.get(run.epoch.number, ()):
            self._give(run, id, frame)

    def _unlinked(self, link: Link, error: Exception | None) -> None:
        id = link.context
        if self._links.get(id) is link:
            del self._links[id]
        for run in (self._run, self._next):
            if run is None or self._closed:
                continue
            for rank, each in list(run.links.items()):
                if each is link:
                    if link in self._polite:
                        continue
                    reason = f"rank {rank} is gone: its connection has ended"
                    if run is self._next:
                        self._abandon(run, reason)
                    else:
                        self.broken(run, reason)

    def broken(self, run: RunningEpoch, reason: str) -> None:
        """Nothing of an epoch can be completed any more; from any thread."""
        with self._changed:
            if run.error is not None:
                return
            run.error = reason
        self.loop.call_soon(run.fail)

    # -- In the loop's thread: frames of other ranks -----------------------------------------------

    def _frame(self, link: Link, frame: Frame) -> None:
        if frame.kind == say.DESK:
            self._desk(link, frame)
            return
        if frame.kind == say.BYE:
            self._polite.add(link)
            for run in (self._run, self._next):
                if run is not None:
                    for rank in [r for r, each in run.links.items() if each is link]:
                        run.leave(rank, f"rank {rank} has ended")
            return
        (number, *_) = say.pair_of(frame.head[:16])
        run = self._run
        if run is not None and number == run.epoch.number and run is not self._next:
            self._give(run, link.context, frame)
        elif run is None or number > run.epoch.number:
            self._ahead.setdefault(number, []).append((link.context, frame))

    def _desk(self, link: Link, frame: Frame) -> None:
        number, offset = say.pair_of(frame.head)
        run = self._next
        if run is None or number != run.epoch.number:
            if run is None or number > run.epoch.number:  # the coordinator has not told us yet
                self._desks.setdefault(number, []).append((link, frame))
            return
        if len(frame.tensors) != 1 or frame.tensors[0].nbytes != DESK_BYTES:
            raise ProtocolError("a desk has another size")
        ranks = [r for r, m in enumerate(run.epoch.members) if m.id == link.context]
        memory = frame.tensors[0]
        self.kept.append(memory)  # and with it the lease and the mapping
        address = address_of(memory)
        run.found[ranks[0]] = Desk(address, address - offset, frame.number)
        self._complete(run)

    def _give(self, run: RunningEpoch, id: int, frame: Frame) -> None:
        rank = next((r for r, m in enumerate(run.epoch.members) if m.id == id), None)
        if rank is None:
            return
        if frame.kind == say.ABORT:
            self.broken(run, frame.head[16:].decode(errors="replace"))
        else:
            run.deliver(rank, frame)


def _arena() -> Slabs:
    """Make memory for collectives: one slab, so that others need to map nothing later. It takes
    space only where it is used.
    """
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return Slabs(limit, slab_bytes=limit, warm=limit // 4)


class Solo:
    """The group of a process that is alone."""

    rank, size, memory, waiting, overlaps = 0, 1, None, 0, False

    def __init__(self) -> None:
        self.moved = Moved()
        self.epoch = Epoch(1, (Member(0, "", host_name(), memory_name(0)),), 0)

    def all_reduce(
        self,
        name: str,
        arrays: Sequence[np.ndarray],
        merge: str = "Add",
        average: bool = False,
        background: bool = False,
        in_place: bool = False,
    ) -> list[np.ndarray]:
        return [np.array(a) for a in arrays]

    def all_gather(self, name: str, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def broadcast(self, name: str, array: np.ndarray, root: int) -> np.ndarray:
        if root:
            raise errors.InvalidArgumentError(
                None, None, f"rank {root} cannot broadcast: there is 1 rank"
            )
        return np.array(array)

    def close(self) -> None:
        """There is nothing to leave."""
