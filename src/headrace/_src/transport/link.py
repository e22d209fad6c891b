"""A connection that a loop serves. In: frames from any thread. Out: frames to a callback.

Invariants: frames that are sent by one thread arrive in that order, except that frames with large
tensors may wait for the peer's request, and others overtake them then; `send` never blocks;
`on_frame` and `on_closed` are called in the loop's thread, `on_closed` once and last.
"""

from __future__ import annotations

import contextlib
import logging
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace._src.core import errors
from headrace._src.core.config import settings
from headrace._src.transport.connect import Connection
from headrace._src.transport.frame import Frame, ProtocolError
from headrace._src.transport.handshake import Hello
from headrace._src.transport.slabs import Slabs
from headrace._src.transport.stream import FrameStream, large_bytes

if TYPE_CHECKING:
    from headrace._src.transport.loop import Loop

__all__ = ["Link", "OnClosed", "OnFrame"]

_OUT: Final = select.EPOLLOUT

_log = logging.getLogger("headrace")

OnFrame = Callable[["Link", Frame], Any]
OnClosed = Callable[["Link", Exception | None], Any]


class Link:
    """One connection to another process.

    peer: who the other process says it is
    address: the address that was connected to, or the peer's
    context: whatever the user wants to find here
    on_flushed: called in the loop's thread when the socket has taken all that was queued
    slabs: memory that this process and the peer both write to; None: each only reads the other's
    """

    def __init__(
        self,
        connection: Connection,
        loop: Loop,
        on_frame: OnFrame,
        on_closed: OnClosed | None = None,
        budget: int | None = None,
        slabs: Slabs | None = None,
    ) -> None:
        budget = settings().link_mb << 20 if budget is None else budget
        self.on_frame = on_frame
        self.on_closed = on_closed
        self.context: Any = None
        self.on_flushed: Callable[[], Any] | None = None
        self.unix = connection.unix
        self.fd = connection.socket.fileno()
        self._loop = loop
        self._stream = FrameStream(
            connection, budget, self._release_soon, slabs, writable=slabs is not None
        )
        self._closing = False
        self._closed = False
        self._held = False
        self._releasing = False

    @property
    def peer(self) -> Hello:
        return self._stream.peer

    @property
    def address(self) -> str:
        return self._stream.address

    @property
    def queued_bytes(self) -> int:
        """How many bytes are not on their way yet: the socket does not take more, or the peer has
        not asked for them.
        """
        return self._stream.queued + self._stream.waiting

    @property
    def unread_bytes(self) -> int:
        """How many bytes of large tensors have been received and not been used: see `hold`."""
        return self._stream.unread

    @property
    def closed(self) -> bool:
        return self._stream.error is not None

    def send(self, frame: Frame, more: bool = False) -> None:
        """Send a frame, from any thread. Large arrays are not copied: they must not change until
        `queued_bytes` is 0. Raises UnavailableError if the link is closed.

        more: another frame follows at once; this one may wait for it
        """
        try:
            if not self._stream.write(frame, more):
                self._watch_writing()
        except errors.UnavailableError as error:
            self._stream.end(error)  # the loop sees the end and calls on_closed
            raise

    def hold(self, frame: Frame) -> None:
        """Count the frame that `on_frame` is called with as unread until `let_go(frame)`. Without
        it, a frame is read when `on_frame` returns. The peer sends large tensors only as long as
        the unread ones fit into its budget.
        """
        self._held = True

    def let_go(self, frame: Frame) -> None:
        """Count a frame that was held as read, from any thread."""
        size = large_bytes(frame)
        if size and not self.closed:
            try:
                if not self._stream.consumed(size):
                    self._watch_writing()
            except errors.UnavailableError as error:
                self._stream.end(error)

    def close(self, error: Exception | None = None) -> None:
        """Close the connection, from any thread; frames that are still queued are lost, and no more
        frames are delivered.
        """
        self._closing = True
        self._stream.end(error or _ClosedHere())

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Link {'unix' if self.unix else 'tcp'} {self.address} {state}>"

    # -- In the loop's thread ----------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """React to the socket's events."""
        try:
            if self._closing:
                self.finish()
                return
            if events != _OUT:
                stream = self._stream
                decoder = stream.decoder
                frames = stream.read()
                bulky, decoder.bulky = decoder.bulky, False
                for frame in frames:
                    if self._closing:
                        return
                    if bulky:
                        self._deliver(frame)
                    else:
                        self.on_frame(self, frame)
                if stream.queued:
                    self._watch_writing()
            if events & _OUT and self._stream.flush():
                self._loop.watch(self.fd, select.EPOLLIN)
                if self._stream.queued:  # another thread was quicker than this change
                    self._watch_writing()
                elif self.on_flushed is not None:
                    self.on_flushed()
        except (errors.UnavailableError, ProtocolError) as error:
            self._stream.end(error)
            self.finish()
        except Exception as error:
            _log.exception("%s: the link is closed after an error in its callback", self)
            self._stream.end(error)
            self.finish()

    def _deliver(self, frame: Frame) -> None:
        """Call back, and count large tensors as read afterwards."""
        size = self._stream.received(frame)
        self._held = False
        self.on_frame(self, frame)
        if size and not self._held:
            self._stream.consumed(size)

    def _watch_writing(self) -> None:
        self._loop.watch(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def _release_soon(self) -> None:
        if not self._releasing:
            self._releasing = True
            self._loop.call_soon(self._send_releases)

    def _send_releases(self) -> None:
        self._releasing = False
        with contextlib.suppress(errors.UnavailableError):
            if not self._stream.send_releases():
                self._watch_writing()

    def begin(self, data: bytes) -> None:
        """Receive bytes that came with the end of the handshake."""
        try:
            for frame in self._stream.feed(data):
                self._deliver(frame)
        except Exception as error:
            _log.exception("%s: the link is closed after an error in its callback", self)
            self.close(error)

    def finish(self) -> None:
        """Close the socket and tell the user, once."""
        if self._closed:
            return
        self._closed = True
        error = self._stream.error
        self._loop.forget(self.fd)
        self._stream.end(_ClosedHere())
        self._stream.socket.close()
        if self.on_closed is not None:
            self.on_closed(self, None if isinstance(error, _ClosedHere) else error)


class _ClosedHere(Exception):
    """This process closed the connection."""

    def __str__(self) -> str:
        return "this process closed it"
