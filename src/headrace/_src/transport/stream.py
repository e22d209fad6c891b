"""Frames over one connected socket. In: frames to send, bytes received. Out: frames, bytes sent.

What links and channels have in common. Nothing here blocks: what the socket does not take at once
is queued, and `flush` goes on with it.

State: `_queue` the buffers that are not written yet, under `_lock`, which also makes each frame's
bytes adjacent; `error` why the stream is closed.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Any, Final

from headrace._src.core import errors
from headrace._src.core.locks import Lock
from headrace._src.transport.connect import Connection
from headrace._src.transport.decoder import Decoder
from headrace._src.transport.frame import Frame, encode

__all__ = ["Stream"]

_AT_ONCE: Final = 64  # buffers given to one sendmsg


class Stream:
    """Sends and receives frames on a connection's socket."""

    __slots__ = (
        "_decoder", "_lock", "_queue", "_recv", "_send", "address", "error", "peer", "queued",
        "socket",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.socket = connection.socket
        self.socket.setblocking(False)
        self.peer = connection.peer
        self.address = connection.address
        self.error: Exception | None = None
        self.queued = 0  # bytes
        self._lock = Lock()
        self._queue: deque[Any] = deque()
        self._decoder = Decoder()
        self._send = self.socket.send
        self._recv = self.socket.recv_into

    # -- Sending -----------------------------------------------------------------------------------

    def write(self, frame: Frame) -> bool:
        """Send a frame, or queue the rest of it; returns False if `flush` has to be called."""
        buffers = encode(frame)
        with self._lock:
            if self.error is not None:
                raise self.unavailable()
            if not self._queue:
                if len(buffers) == 1:
                    data = buffers[0]
                    try:
                        sent = self._send(data)
                    except BlockingIOError:
                        sent = 0
                    except OSError as error:
                        raise self._failed(error) from None
                    if sent == len(data):
                        return True
                    self._push(memoryview(data)[sent:])
                    return False
                for buffer in buffers:
                    self._push(buffer)
                return self._drain()
            for buffer in buffers:
                self._push(buffer)
            return False

    def flush(self) -> bool:
        """Write what is queued, as far as the socket takes it; returns whether that was all."""
        with self._lock:
            return self._drain()

    def _push(self, buffer: Any) -> None:
        self._queue.append(buffer)
        self.queued += len(buffer)

    def _drain(self) -> bool:
        queue = self._queue
        while queue:
            buffers = [queue[i] for i in range(min(len(queue), _AT_ONCE))]
            try:
                sent = self.socket.sendmsg(buffers)
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

    # -- Receiving ---------------------------------------------------------------------------------

    def read(self) -> list[Frame]:
        """Receive once; returns the frames that are complete now, possibly none.

        Raises UnavailableError at the end of the connection, ProtocolError for malformed bytes.
        """
        try:
            count = self._recv(self._decoder.target())
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._failed(error) from None
        if not count:
            raise self._failed(None)
        return self._decoder.received(count)

    def feed(self, data: bytes) -> list[Frame]:
        """Decode bytes that came with the end of the handshake."""
        return self._decoder.feed(data)

    @property
    def filling(self) -> bool:
        """True in the middle of a large frame."""
        return self._decoder.filling

    # -- The end -----------------------------------------------------------------------------------

    def end(self, error: Exception) -> None:
        """Refuse further frames and end the connection in both directions. The socket stays open:
        whoever polls it closes it.
        """
        with self._lock:
            if self.error is None:
                self.error = error
            self._queue.clear()
            self.queued = 0
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
