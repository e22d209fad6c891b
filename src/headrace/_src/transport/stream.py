"""Frames over one connected socket. In: frames to send, bytes received. Out: frames, bytes sent.

What links and channels have in common. Nothing here blocks: what the socket does not take at once
is queued, and `flush` goes on with it.

Over a Unix socket, large tensors travel in shared memory (`slabs`): internal frames announce a slab
(SLAB, with its descriptor) and end leases (RELEASE).

The byte budget: a frame with large tensors is sent at once only if the peer's unread bytes, with
its own, stay within the budget, or if nothing is unread. Otherwise it waits here, and the peer is
told so (OFFER); the peer asks for more (REQUEST, with all bytes that it has read so far) when it
has read some. Other frames overtake those that wait.

State, under `_lock`: `_queue` the buffers that are not written yet; `_held` those of frames that
go with the next one; `error` why the stream has
ended; `_leases` blocks that the peer may read; `_announced` slabs that the peer has; `_offers`
frames that wait; counts of large bytes: `_sent` and `_read_there` of what we sent, `unread` and
`_read_here`, `_reported` of what we received.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import weakref
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from headrace._src.core import errors, faults
from headrace._src.core.locks import Lock
from headrace._src.transport.connect import Connection
from headrace._src.transport.decoder import Decoder
from headrace._src.transport.frame import (
    INTERNAL,
    Frame,
    Placed,
    ProtocolError,
    encode,
    encode_small,
    joined,
)
from headrace._src.transport.slabs import SLAB_TENSOR, Block, MappedSlabs, Slabs, shared_slabs

__all__ = ["LARGE", "FrameStream", "large_bytes"]

LARGE: Final = 1 << 20  # bytes: smaller tensors are not counted
GATHERED: Final = 256 << 10  # bytes of a large tensor that TCP collects before it wakes the reader
REPORT: Final = 16 << 20  # bytes read before an unasked report
_AT_ONCE: Final = 64  # buffers given to one sendmsg
_SLAB, _RELEASE, _OFFER, _REQUEST = range(4)  # internal frames
_NUMBER: Final = struct.Struct("<Q")
_RELEASES: Final = 1024  # in one frame
_DESCRIPTORS: Final = socket.CMSG_SPACE(4)
_CLOEXEC: Final = socket.MSG_CMSG_CLOEXEC
_MAX_DESCRIPTORS: Final = 16  # received and not yet announced


class _Passing(NamedTuple):
    """A buffer that a descriptor travels with."""

    data: bytes
    fd: int


def large_bytes(frame: Frame) -> int:
    """Return the bytes of a frame's large tensors."""
    total = 0
    for tensor in frame.tensors:
        if type(tensor) is np.ndarray and tensor.nbytes >= LARGE and tensor.dtype.kind not in "OSU":
            total += tensor.nbytes
    return total


def _told_of_releases(stream: FrameStream) -> Callable[[int], None]:
    """Return a function that tells a stream that a lease has ended. The last use of an array calls
    it, which may be long after the connection has ended: it must not keep the stream.
    """
    known = weakref.ref(stream)

    def released(lease: int) -> None:
        found = known()
        if found is not None:
            found._lease_ended(lease)

    return released


class FrameStream:
    """Sends and receives frames on a connection's socket.

    budget: how many bytes of large tensors may be unread by the peer, None: any number
    on_release: called, in any thread and at any point of its program, when `send_releases` has
        something to do
    slabs: where tensors are put that the peer reads, None: the slabs of this process
    writable: native code of this process may write to the peer's slabs
    """

    def __init__(
        self,
        connection: Connection,
        budget: int | None = None,
        on_release: Callable[[], Any] | None = None,
        slabs: Slabs | None = None,
        writable: bool = False,
    ) -> None:
        self.socket = connection.socket
        self.socket.setblocking(False)
        self.unix = connection.unix
        self.peer = connection.peer
        self.address = connection.address
        self.error: Exception | None = None
        self.queued = 0  # bytes that the socket has not taken
        self.waiting = 0  # large bytes that the peer has not asked for
        self.unread = 0  # large bytes received and not consumed
        self._busy = False  # while the queue is changed
        self._lock = Lock()
        self._queue: deque[Any] = deque()
        self._held: list[Any] = []
        self._send, self._receive = self.socket.send, self.socket.recvmsg_into
        self._fds: deque[int] = deque()
        self._awaited = 1  # bytes that the socket waits for before it is readable
        self._budget = budget
        self._offers: deque[tuple[Frame, int]] = deque()
        self._sent = self._read_there = 0
        self._read_here = self._reported = 0
        self._peer_waits = False
        self._slabs = slabs
        self._large = SLAB_TENSOR
        self._leases: dict[int, Block] = {}
        self._lease_numbers = itertools.count(1)
        self._announced: set[int] = set()
        self._released: deque[int] = deque()
        self._on_release = on_release
        self._place_or_none = self._place if self.unix else None
        self._mapped = MappedSlabs(_told_of_releases(self), writable)
        resolve = self._mapped.resolve if self.unix else None
        self.decoder = Decoder(resolve, internal=self._internal)

    # -- Sending -----------------------------------------------------------------------------------

    def write(self, frame: Frame, more: bool = False) -> bool:
        """Send a frame, or queue the rest of it; returns False if `flush` has to be called.

        more: another frame follows at once, and this one may go with it
        """
        # A peer that uses its memory again finds it free when the frame comes.
        first = self._releases() if self._released else []
        data = encode_small(frame)
        if data is not None:
            return self._write([*first, data], more)
        if self._budget is not None and frame.tensors:
            size = large_bytes(frame)
            if size and not self._admit(frame, size):
                if first or self._held:  # they need not wait with this one
                    self._write(first)
                return not self._queue
        buffers = encode(frame, self._place_or_none, 0, self._large)
        return self._write([*first, *buffers], more)

    def flush(self) -> bool:
        """Write what is queued, as far as the socket takes it; returns whether that was all."""
        with self._lock:
            self._busy = True
            try:
                return self._drain()
            finally:
                self._busy = False

    def _write(self, buffers: list[Any], more: bool = False) -> bool:
        with self._lock:
            self._busy = True
            try:
                if more or self._held or len(buffers) > 1:
                    self._held += buffers
                    if more and self.error is None:
                        return True
                    buffers = joined(self._held)
                    self._held = []
                if faults.armed and (kind := faults.due("mid-frame")):
                    buffers = self._suffer(kind, buffers)
                if len(buffers) > 1 or self._queue or self.error is not None:
                    return self._put(buffers)
                data = buffers[0]
                try:
                    sent = self._send(data)
                except BlockingIOError:
                    sent = 0
                except OSError as error:
                    raise self._failed(error) from None
                return sent == len(data) or self._put([memoryview(data)[sent:]])
            finally:
                self._busy = False

    def _suffer(self, kind: str, buffers: list[Any]) -> list[Any]:
        """Send the first half of a frame, let a fault happen, and return the rest."""
        if kind == "close" or self._queue or self.error is not None:  # before the frame
            faults.strike("mid-frame", kind)
            return buffers
        data = b"".join(map(bytes, buffers))
        half = len(data) // 2
        self._put([data[:half]])
        faults.strike("mid-frame", kind)
        return [data[half:]]

    def _put(self, buffers: list[Any]) -> bool:
        if self.error is not None:
            raise self.unavailable()
        for buffer in buffers:
            self._queue.append(buffer)
            self.queued += len(buffer)
        return self._drain()

    def _drain(self) -> bool:
        queue: deque[Any] = self._queue
        while queue:
            first: Any = queue[0]
            try:
                if type(first) is _Passing:
                    data, fd = first
                    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))
                    sent = self.socket.sendmsg((data,), (rights,))
                    queue[0] = data
                else:
                    some = itertools.islice(queue, _AT_ONCE)
                    buffers = itertools.takewhile(lambda b: type(b) is not _Passing, some)
                    sent = self.socket.sendmsg(list(buffers))
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._failed(error) from None
            self.queued -= sent
            while sent:
                size = len(queue[0])
                if sent < size:
                    queue[0] = memoryview(queue[0])[sent:]
                    break
                queue.popleft()
                sent -= size
        return True

    # -- Shared memory -----------------------------------------------------------------------------

    def _place(self, tensor: np.ndarray, nbytes: int) -> Placed | None:
        """Lease a tensor's shared memory to the peer, or that of a copy."""
        slabs = self._slabs
        if slabs is None:
            slabs = self._slabs = shared_slabs()
        found = slabs.lease(tensor)
        if found is None:
            reserved = slabs.reserve(nbytes)
            if reserved is None:
                return None
            block, memory = reserved
            np.copyto(np.ndarray(tensor.shape, tensor.dtype, memory), tensor)
            found = block, block.start
        block, offset = found
        slab = block.slab
        with self._lock:
            if self.error is not None:
                slabs.release([block])
                raise self.unavailable()
            if slab.number not in self._announced:
                self._announced.add(slab.number)
                (data,) = encode(Frame(_SLAB, 0, _NUMBER.pack(slab.number)), None, INTERNAL)
                assert isinstance(data, bytes)
                self._queue.append(_Passing(data, slab.fd))
                self.queued += len(data)
            lease = next(self._lease_numbers)
            self._leases[lease] = block
        return Placed(slab.number, offset, lease)

    def _lease_ended(self, lease: int) -> None:
        """No array refers to a received tensor; this comes at any point of a thread's program."""
        self._released.append(lease)
        if self._on_release is not None:
            self._on_release()

    def send_releases_if_free(self) -> None:
        """Do `send_releases` now if that needs no waiting; callable at any point of a program."""
        if self._busy or not self._lock.acquire(blocking=False):
            return  # this thread or another one is writing; the next frame takes them along
        self._lock.release()
        with contextlib.suppress(errors.UnavailableError):
            self.send_releases()

    def send_releases(self) -> bool:
        """Tell the peer which tensors are not used any more; returns False if `flush` has to be
        called.
        """
        if not self._released or self.error is not None:
            return True
        found = self._releases()
        return not found or self._write(found)  # another thread may have taken all of them

    def _releases(self) -> list[Any]:
        """Return the frames that tell the peer which tensors are not used any more."""
        found: list[Any] = []
        while self._released:
            numbers = []
            with contextlib.suppress(IndexError):  # another thread has taken the last one
                while len(numbers) < _RELEASES:
                    numbers.append(_NUMBER.pack(self._released.popleft()))
            if numbers:
                found += encode(Frame(_RELEASE, 0, b"".join(numbers)), None, INTERNAL)
        return found

    # -- Receiving ---------------------------------------------------------------------------------

    def read(self) -> list[Frame]:
        """Receive once; returns the frames that are complete now, possibly none.

        Raises UnavailableError at the end of the connection, ProtocolError for malformed bytes.
        """
        decoder = self.decoder
        try:
            if self.unix:
                count, rights, _, _ = self._receive((decoder.target,), _DESCRIPTORS, _CLOEXEC)
                if rights:
                    self._keep_descriptors(rights)
            else:
                count = self.socket.recv_into(decoder.target)
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._failed(error) from None
        if not count:
            raise self._failed(None)
        frames = decoder.received(count)
        if not self.unix:
            self._gather()
        return frames

    def _gather(self) -> None:
        """Let the system collect some of a large tensor before it wakes the reader: waking it for
        each packet takes longer than the packet.
        """
        decoder = self.decoder
        large = decoder.large is not None and len(decoder.target) >= GATHERED
        awaited = GATHERED if large else 1
        if awaited != self._awaited:
            self._awaited = awaited
            with contextlib.suppress(OSError):  # if the connection has ended, the next read says so
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)

    def feed(self, data: bytes) -> list[Frame]:
        """Decode bytes that came with the end of the handshake."""
        return self.decoder.feed(data)

    def received(self, frame: Frame) -> int:
        """Count a frame as unread; returns its large bytes."""
        size = large_bytes(frame)
        if size:
            with self._lock:
                self.unread += size
        return size

    def consumed(self, size: int) -> bool:
        """Count large bytes as read, and tell the peer if it waits for that; returns False if
        `flush` has to be called.
        """
        with self._lock:
            self.unread -= size
            self._read_here += size
            tell = self._peer_waits or self._read_here - self._reported >= REPORT
        return self._report() if tell else True

    def _report(self) -> bool:
        with self._lock:
            self._reported = read = self._read_here
            if self.error is not None:
                return True
        return self._write_internal(_REQUEST, _NUMBER.pack(read))

    def _keep_descriptors(self, rights: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)
        if len(self._fds) > _MAX_DESCRIPTORS:
            raise ProtocolError("a peer passes descriptors that nobody asked for")

    # -- Frames of the stream itself ---------------------------------------------------------------

    def _write_internal(self, kind: int, head: bytes) -> bool:
        return self._write(encode(Frame(kind, 0, head), None, INTERNAL))

    def _internal(self, kind: int, head: bytes) -> None:
        if kind == _RELEASE and head and len(head) % _NUMBER.size == 0:
            self._end_leases([number for (number,) in _NUMBER.iter_unpack(head)])
            return
        if len(head) != _NUMBER.size:
            raise ProtocolError(f"an internal frame of kind {kind} has {len(head)} bytes")
        (number,) = _NUMBER.unpack(head)
        if kind == _SLAB and self._fds:
            self._mapped.add(number, self._fds.popleft())
        elif kind == _OFFER:
            self._peer_waits = number > 0
            if number and self._read_here > self._reported:
                self._report()
        elif kind == _REQUEST:
            self._send_offers(number)
        else:
            raise ProtocolError(f"an internal frame of kind {kind} was not expected")

    def _end_leases(self, numbers: list[int]) -> None:
        with self._lock:
            blocks = [self._leases.pop(number, None) for number in numbers]
        ended = [block for block in blocks if block is not None]
        if self._slabs is not None:
            self._slabs.release(ended)
        if len(ended) < len(blocks):
            raise ProtocolError("a peer releases a tensor that it does not have")

    # -- The budget --------------------------------------------------------------------------------

    def _admit(self, frame: Frame, size: int) -> bool:
        """True if a frame may be sent now; otherwise it waits until the peer asks for more."""
        with self._lock:
            if not self._offers and self._fits(size):
                self._sent += size
                return True
            if self.error is not None:
                raise self.unavailable()
            self._offers.append((frame, size))
            self.waiting += size
        self._tell_offers()
        return False

    def _fits(self, size: int) -> bool:
        assert self._budget is not None
        unread = self._sent - self._read_there
        return unread <= 0 or unread + size <= self._budget

    def _send_offers(self, read: int) -> None:
        with self._lock:
            self._read_there = max(self._read_there, read)
        sent = False
        while True:
            with self._lock:
                if not self._offers or not self._fits(self._offers[0][1]):
                    break
                frame, size = self._offers.popleft()
                self.waiting -= size
                self._sent += size
            sent = True
            self._write(encode(frame, self._place_or_none, 0, self._large))
        if sent:
            self._tell_offers()

    def _tell_offers(self) -> None:
        # Counted and written under one lock, so that the last count to arrive is the last one.
        with self._lock:
            self._busy = True
            try:
                head = _NUMBER.pack(len(self._offers))
                self._put(encode(Frame(_OFFER, 0, head), None, INTERNAL))
            finally:
                self._busy = False

    # -- The end -----------------------------------------------------------------------------------

    def end(self, error: Exception) -> None:
        """Refuse further frames and end the connection in both directions. The socket stays open:
        whoever polls it closes it.
        """
        with self._lock:
            if self.error is None:
                self.error = error
            self._queue.clear()
            self._held.clear()
            self._offers.clear()
            self.queued = self.waiting = 0
            blocks = list(self._leases.values())
            self._leases.clear()
            while self._fds:
                os.close(self._fds.popleft())
        if self._slabs is not None and blocks:
            self._slabs.release(blocks)
        with contextlib.suppress(OSError):  # the other side was quicker
            self.socket.shutdown(socket.SHUT_RDWR)

    def unavailable(self) -> errors.UnavailableError:
        """Return the error of somebody who uses a stream that has ended."""
        if isinstance(self.error, errors.UnavailableError):
            return errors.UnavailableError(None, None, self.error.message)
        reason = str(self.error) or type(self.error).__name__
        message = f"the connection with {self.address} was closed: {reason}"
        return errors.UnavailableError(None, None, message)

    def _failed(self, error: OSError | None) -> errors.UnavailableError:
        reason = "the other process closed it or ended" if error is None else error.strerror
        message = f"the connection with {self.address} was lost: {reason}"
        failure = errors.UnavailableError(None, None, message)
        if self.error is None:
            self.error = failure
        return failure
