"""Requests and answers without a thread of ours. In: a connection. Out: answers by number.

Several threads may have requests under way: one of those that wait reads for all of them, and hands
the reading to another when it has its own answer.

State, under `_lock`: `_answers` frames that nobody has taken; `_waiting` by number a lock that
wakes the thread which waits for it; `_abandoned` numbers whose answers nobody wants any more;
`_reading` whether a thread reads.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import time
from collections.abc import Callable
from threading import Lock as Signal
from typing import Any

from headrace._src.core import errors
from headrace._src.core.locks import Lock
from headrace._src.transport.connect import Connection
from headrace._src.transport.frame import Frame, ProtocolError
from headrace._src.transport.handshake import Hello
from headrace._src.transport.probe import Probe
from headrace._src.transport.stream import FrameStream, large_bytes

__all__ = ["Channel"]


class Channel:
    """One connection whose user waits for answers.

    on_notice: called with frames whose number is 0, by the thread that reads
    probe: whether the other process lives, for a thread that waits longer than an interval; None:
        only the end of the connection tells
    """

    def __init__(
        self,
        connection: Connection,
        on_notice: Callable[[Frame], Any] | None = None,
        probe: Probe | None = None,
    ) -> None:
        self._probe = probe
        self.on_notice = on_notice
        self.unix = connection.unix
        # No budget: a loop reads at the other end, and nobody here would read its requests.
        self._stream = FrameStream(connection, None, self._release)
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._answers: dict[int, Frame] = {}
        self._waiting: dict[int, Signal] = {}
        self._abandoned: set[int] = set()
        self._reading = False
        fd = connection.socket.fileno()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(fd, select.POLLIN)
        self._writable.register(fd, select.POLLOUT)
        self._writing = Lock()
        if connection.rest:
            self._take(self._stream.feed(connection.rest))

    @property
    def peer(self) -> Hello:
        return self._stream.peer

    @property
    def address(self) -> str:
        return self._stream.address

    @property
    def closed(self) -> bool:
        return self._stream.error is not None

    def next_number(self) -> int:
        """Return a number that no request of this channel had."""
        return next(self._numbers)

    def request(self, frame: Frame, timeout: float | None = None) -> Frame:
        """Send a frame and return the answer: the frame with the same number. A frame whose number
        is 0 gets a fresh one.

        Raises UnavailableError if the connection ends, DeadlineExceededError after `timeout`
        seconds; the answer to such a request is dropped when it comes.
        """
        if not frame.number:
            frame = frame._replace(number=next(self._numbers))
        self.send(frame)
        return self.wait(frame.number, timeout)

    def send(self, frame: Frame) -> None:
        """Send a frame; returns when the system has all of it."""
        try:
            if not self._stream.write(frame):
                self._flush()
        except errors.UnavailableError as error:
            self._end(error)
            raise

    def wait(self, number: int, timeout: float | None = None) -> Frame:
        """Return the frame with this number."""
        deadline = None if timeout is None else time.monotonic() + timeout
        answer: Frame | None = None
        lead = False
        try:
            while True:
                with self._lock:
                    answer = self._answers.pop(number, None)
                    if answer is not None:
                        break
                    if self._stream.error is not None:
                        raise self._stream.unavailable()
                    lead = not self._reading
                    if lead:
                        self._reading = True
                    else:
                        signal = self._waiting[number] = Signal()
                        signal.acquire()
                if lead:
                    answer = self._read_until(number, deadline)
                    if answer is not None:
                        break
                    in_time = False
                else:
                    left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
                    in_time = signal.acquire(timeout=left)
                if not in_time:
                    raise errors.DeadlineExceededError(
                        None,
                        None,
                        f"{self.address} did not answer request {number} in {timeout:g} s",
                    )
        finally:
            if lead:
                self._hand_over()
            if answer is None:
                self._abandon(number)
        assert answer is not None
        if answer.tensors:
            self._consume(answer)
        return answer

    def _abandon(self, number: int) -> None:
        """Drop the answer with this number, now or when it comes. If this thread was just told to
        read, tell another one.
        """
        with self._lock:
            waiting = self._waiting.pop(number, None)
            if self._answers.pop(number, None) is None:
                self._abandoned.add(number)
            if waiting is None and not self._reading and self._waiting:
                self._waiting.popitem()[1].release()

    def close(self) -> None:
        """Close the connection; threads that wait get an UnavailableError."""
        self._end(
            errors.UnavailableError(None, None, f"the connection with {self.address} was closed")
        )

    def _flush(self) -> None:
        with self._writing:
            while not self._stream.flush():
                self._writable.poll()

    def _release(self) -> None:
        self._stream.send_releases_if_free()

    # -- Reading for all ---------------------------------------------------------------------------

    def _read_until(self, number: int, deadline: float | None) -> Frame | None:
        """Read until the answer is there; returns None at the deadline."""
        stream = self._stream
        while True:
            # Ctrl-C interrupts here, where nothing is lost, and not in the middle of a frame.
            if not self._poll(deadline):
                return None
            whole = False
            try:
                frames = stream.read()
                mine = self._take(frames, number)
                if stream.queued:
                    self._flush()
                whole = True
            except (errors.UnavailableError, ProtocolError) as error:
                self._end(error)
                raise stream.unavailable() from None
            finally:
                if not whole and stream.error is None:  # interrupted: bytes may be lost
                    self._end(RuntimeError("it was interrupted in the middle of an answer"))
            if mine is not None:
                return mine

    def _poll(self, deadline: float | None) -> bool:
        """Wait for bytes; return False at the deadline. Raises UnavailableError if the other
        process is dead.
        """
        probe = self._probe
        longest = None if probe is None else probe.interval
        while True:
            pause = longest
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                pause = left if longest is None else min(left, longest)
            if self._readable.poll(None if pause is None else pause * 1000):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            reason = None if probe is None else probe.ask()
            if reason is not None and not self._readable.poll(0):
                gone = f"the process at {self.address} is gone: {reason}"
                self._end(errors.UnavailableError(None, None, gone))
                raise self._stream.unavailable()

    def _take(self, frames: list[Frame], number: int = 0) -> Frame | None:
        """Keep answers and call on_notice; returns the answer with that number."""
        mine = None
        decoder = self._stream.decoder
        bulky, decoder.bulky = decoder.bulky, False
        for frame in frames:
            if bulky:
                self._stream.received(frame)
            if frame.number == number and number:
                mine = frame
            elif not frame.number:
                if self.on_notice is not None:
                    self.on_notice(frame)
                self._consume(frame)
            else:
                with self._lock:
                    abandoned = frame.number in self._abandoned
                    self._abandoned.discard(frame.number)
                    if not abandoned:
                        self._answers[frame.number] = frame
                    signal = self._waiting.pop(frame.number, None)
                if signal is not None:
                    signal.release()
                if abandoned:
                    self._consume(frame)
        return mine

    def _consume(self, frame: Frame) -> None:
        """Count a frame's large tensors as read."""
        size = large_bytes(frame)
        if size:
            with contextlib.suppress(errors.UnavailableError):  # the next request reports it
                if not self._stream.consumed(size):
                    self._flush()

    def _hand_over(self) -> None:
        """Stop reading; wake one of the threads that wait, so that it reads."""
        with self._lock:
            self._reading = False
            if self._waiting:
                self._waiting.popitem()[1].release()
        if self._stream.error is not None:
            self._close_socket()

    def _end(self, error: Exception) -> None:
        self._stream.end(error)
        if self._probe is not None:
            self._probe.close()
        with self._lock:
            for signal in self._waiting.values():
                signal.release()
            self._waiting.clear()
        self._close_socket()

    def _close_socket(self) -> None:
        """Close the socket, unless a thread still polls it: its number could be reused. That thread
        wakes up since the connection has ended, and closes the socket itself.
        """
        with self._writing, self._lock:
            if not self._reading:
                self._stream.socket.close()
