"""Rings of large all-reduces, as streams of bytes. In: two connections, what to add, where to put
it. Out: the sum of all members' values, in place.

A frame for every segment costs more than its bytes when these come from the cache. So an all-reduce
of many bytes has two connections of its own: it writes to the member behind, and reads from
the member before. What a member writes is its own chunk, followed by what it reads, with its own
values added; see ring.py for the order of chunks. No stream waits for another one, so members may
start theirs in different orders.

Where each member has a core, it writes at most WINDOW bytes more than it has read. More would be on
their way in buffers of the system, and leave the caches before they are read: on one host, an
all-reduce takes half the time with this limit. Members that share a core write as much as they can
before the other one has its turn.

Pages are sent in place (page_pipe.py), so they must not change before they have been read. A member
that has read everything says so to the member before (READ). That one then says that the pages were
right until then (RIGHT): it has not given the round up, and its memory to others, meanwhile.

`Streams` is one thread, which moves the bytes of all streams of an epoch. `RingStream` is one round
of one all-reduce. Both are used by that thread alone, except for `add` and `close`.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from headrace._src.collectives.page_pipe import PagePipe
from headrace._src.collectives.shared_reduce import Reduced, adder
from headrace._src.collectives.shares import TensorPiece, cut
from headrace._src.devices.buffers import address as address_of

__all__ = ["EndedError", "MismatchError", "RingStream", "StreamPair", "Streams", "WINDOW"]

SEGMENT: Final = 256 << 10  # bytes that are added at once: a part of the second cache
WINDOW: Final = 1 << 20
_READ, _RIGHT = b"r", b"R"
_HEAD: Final = struct.Struct("<QQ")  # round, signature


class MismatchError(Exception):
    """The member before has another round, or other types, shapes or operations."""


class EndedError(Exception):
    """A connection has ended; `behind`: the one to the member behind."""

    def __init__(self, behind: bool) -> None:
        super().__init__()
        self.behind = behind


class StreamPair(NamedTuple):
    """The connected sockets of an all-reduce."""

    before: Any
    behind: Any


class RingStream:
    """One member's part in one round.

    window: how many bytes it writes more than it has read. index: its place in the ring. chunks:
    the pieces of each member's chunk. summed: whether this member's values are in the results
    already, as the sum of its host. over: called with None or an error at the end. written: bytes,
    so far.
    """

    def __init__(
        self,
        pair: StreamPair,
        window: float,
        index: int,
        chunks: Sequence[Sequence[TensorPiece]],
        reduced: Reduced,
        summed: bool,
        round: int,
        over: Callable[[RingStream, Exception | None], Any],
    ) -> None:
        self.over = over
        self._window = window
        self._before, self._behind = pair
        self._reduced, self._plan = reduced, reduced.plan  # its arrays stay alive
        self._pipe = PagePipe(self._behind)
        self._room = np.empty(SEGMENT, np.uint8)
        self._made = [(_bytes_of(each), address_of(each)) for each in reduced.results]
        self._given = self._made
        if not summed:
            self._given = [(_bytes_of(each), address_of(each)) for each in reduced.arrays]
        head = _HEAD.pack(round, reduced.plan.signature)
        self._read = self.written = 0
        self._out: deque[tuple[memoryview, int]] = deque([(memoryview(head), 0)])
        self._out += [_part(self._given, piece) for piece in chunks[index]]
        following = [chunks[(index - hops) % len(chunks)] for hops in range(1, len(chunks))]
        self._targets = self._received(head, following, chunks[index])
        self._target = next(self._targets, None)
        self._was_read = False  # all that was written, by the member behind

    def _received(
        self, head: bytes, sums: list[Sequence[TensorPiece]], own: Sequence[TensorPiece]
    ) -> Iterator[memoryview]:
        """Yield where to put the bytes that come next, and use them when they are there."""
        found = bytearray(len(head))
        yield memoryview(found)
        if found != head:
            raise MismatchError
        plan, room, at = self._plan, _bytes_of(self._room), address_of(self._room)
        made, given, out = self._made, self._given, self._out
        for number, chunk in enumerate(sums, 1):
            add = adder(plan, plan.divisor if number == len(sums) else 1)
            for piece in cut(iter(chunk), SEGMENT):
                tensor, start, stop = piece
                yield room[: stop - start]
                total, address = part = _part(made, piece)
                add(len(total), at, given[tensor][1] + start, address)
                out.append(part)
        totals = [own, *sums[:-1]]
        for number, chunk in enumerate(totals, 1):
            for piece in cut(iter(chunk), SEGMENT):
                part = _part(made, piece)
                yield part[0]
                if number < len(totals):  # the member behind has completed the last one
                    out.append(part)
        with contextlib.suppress(OSError):  # the next read finds out that it has ended
            self._before.send(_READ)
        yield memoryview(found)[:1]

    @property
    def is_over(self) -> bool:
        """Whether everything has been read and written."""
        return self._target is None and self._was_read and not self._out

    @property
    def wants(self) -> Iterator[tuple[int, int]]:
        """The sockets and events that this stream waits for."""
        if self._target is not None:
            yield self._before.fileno(), select.POLLIN
        if self._may_write():
            yield self._behind.fileno(), select.POLLOUT
        elif not self._out and not self._was_read:
            yield self._behind.fileno(), select.POLLIN

    def _may_write(self) -> bool:
        return bool(self._out) and (
            self._target is None or self.written < self._read + self._window
        )

    def move(self) -> bool:
        """Read and write once; return whether any bytes were there or could leave."""
        moved = False
        target = self._target
        if target is not None:
            count = _moved(self._before.recv_into, False, target)
            if count:
                moved = True
                self._read += count
                whole = count == len(target)
                self._target = next(self._targets, None) if whole else target[count:]
        if self._may_write():
            data, address = self._out[0]
            count = _moved(self._pipe.send, True, data[:SEGMENT], address)
            if count:
                moved = True
                self.written += count
                if count == len(data):
                    self._out.popleft()
                else:
                    self._out[0] = data[count:], address + count
        elif not self._out and not self._was_read:
            self._was_read = _moved(self._behind.recv_into, True, bytearray(1)) > 0
            if self._was_read:
                moved = True
                self._out.append((memoryview(_RIGHT), 0))
        return moved


def _moved(call: Callable[..., int], behind: bool, *arguments: Any) -> int:
    """Return how many bytes a call has moved, 0 if it would have to wait."""
    try:
        count = call(*arguments)
    except BlockingIOError:
        return 0
    except OSError:
        count = 0
    if not count:
        raise EndedError(behind)
    return count


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _part(arrays: list[tuple[memoryview, int]], piece: TensorPiece) -> tuple[memoryview, int]:
    """Return a piece of an array's bytes, and its address."""
    tensor, start, stop = piece
    data, address = arrays[tensor]
    return data[start:stop], address + start


class Streams:
    """The thread that moves the bytes of all streams of an epoch.

    patience: seconds that it looks for bytes before it sleeps. sockets: those that it closes at the
    end.
    """

    _wake = -1

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._sockets: list[Any] = []
        self._new: deque[RingStream] = deque()
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def own(self, socket: Any) -> None:
        """Close a socket at the end."""
        socket.setblocking(False)
        with self._lock:
            if not self._closed:
                self._sockets.append(socket)
                return
        socket.close()

    def add(self, stream: RingStream) -> None:
        """Begin with a stream, from any thread."""
        with self._lock:
            if self._closed:
                return
            self._new.append(stream)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-streams", daemon=True
                )
                self._thread.start()
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End all streams as they are, from any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        os.eventfd_write(self._wake, 1)
        if self._thread is None:
            self._end()

    def _end(self) -> None:
        for each in self._sockets:
            each.close()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Not when the thread ends: others may still write to it. At Python's end there is no module
        # `os` any more.
        if self._wake >= 0:
            close(self._wake)

    # -- The thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        active: list[RingStream] = []
        busy = time.monotonic()
        while not self._closed:
            while self._new:
                active.append(self._new.popleft())
            moved = False
            for each in list(active):
                moved |= self._move(each, active)
            if moved:
                busy = time.monotonic()
            elif active and self._patience and time.monotonic() < busy + self._patience:
                os.sched_yield()
            elif not self._new:
                self._sleep(active)
                busy = time.monotonic()
        self._end()

    def _move(self, stream: RingStream, active: list[RingStream]) -> bool:
        error = None
        try:
            moved = stream.move()
            if not stream.is_over:
                return moved
        except Exception as found:
            error = found
        active.remove(stream)
        stream.over(stream, error)
        return True

    def _sleep(self, active: list[RingStream]) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        events: dict[int, int] = {}
        for each in active:
            for fd, event in each.wants:
                events[fd] = events.get(fd, 0) | event
        for fd, event in events.items():
            poll.register(fd, event)
        poll.poll()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
