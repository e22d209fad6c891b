"""Find out that another process is dead or stopped. In: answers to heartbeats. Out: a verdict.

Each pair of processes has one connection for heartbeats. Both sides send pings on it, from a loop's
timer, and judge the answers (`Monitor`). A `Responder` answers the other side's pings and notes the
answers to ours, without Python's global lock: a process whose Python code holds that lock for
seconds still answers, and a stopped one doesn't.

A process that was held up itself does not declare others dead for it: only heartbeats that were
sent count as missed, and they are sent one per interval.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.transport import beats
from headrace._src.transport.beats import COMMAND, MESSAGE, PING, Word
from headrace._src.transport.connect import Connection
from headrace._src.transport.loop import Loop

__all__ = ["Answers", "Health", "Heartbeat", "Monitor", "Responder"]

_SUSPECT: Final = 2  # missed heartbeats
_FAULTS: Final = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class Health(enum.Enum):
    """What is known of the other process."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Monitor:
    """What is known from heartbeats: a machine without clocks and sockets.

    limit: how many heartbeats in a row are missed by a dead process
    sent, answered: the number of the last heartbeat sent, and of the last one answered
    closed: the connection has ended
    at: when the last heartbeat was sent; since: when the first unanswered one was, None: all are
        answered
    """

    limit: int
    sent: int = 0
    answered: int = 0
    closed: bool = False
    at: float = 0.0
    since: float | None = None

    def beat(self, now: float) -> Monitor:
        """A heartbeat with number `sent + 1` is sent."""
        since = now if self.since is None else self.since
        return replace(self, sent=self.sent + 1, at=now, since=since)

    def hear(self, number: int) -> Monitor:
        """The last answer that came has this number."""
        if number == beats.CLOSED:
            return replace(self, closed=True)
        if not self.answered < number <= self.sent:  # nothing new, or nothing that we asked
            return self
        return replace(self, answered=number, since=None if number == self.sent else self.at)

    @property
    def missed(self) -> int:
        """How many heartbeats are unanswered; asked an interval after the last one was sent."""
        return self.sent - self.answered

    @property
    def health(self) -> Health:
        if self.closed or self.missed >= self.limit:
            return Health.DEAD
        return Health.SUSPECT if self.missed >= _SUSPECT else Health.ALIVE


class Responder:
    """Answers pings, and keeps the numbers of the last pongs, for any number of sockets.

    native: the address of a function that does so without Python (compile/native/heartbeat.py),
        which a thread of ours calls; None: a small process of our own does it
    """

    def __init__(self, native: int | None = None) -> None:
        self._lock = Lock()
        self._native = native
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen | None = None
        if native is None:
            self._start_sidecar()
        else:
            self._start_native(native)

    def add(self, sock: socket.socket) -> None:
        """Serve a connected socket. It stays the caller's, who does not read it any more."""
        fd = sock.fileno()
        if fd >= beats.TABLE:
            raise OSError(f"too many open files: descriptor {fd}")
        if sock.family != socket.AF_UNIX:  # whole messages only; Unix sockets do not divide them
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MESSAGE.size)
        with self._lock:
            self._table[fd] = 0
            if self._native is not None:
                self._epoll.register(fd, select.EPOLLIN)
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))
                self._control.sendmsg((COMMAND.pack(fd, 1),), (rights,))

    def remove(self, sock: socket.socket) -> None:
        """Serve a socket no longer; to be called before it's closed."""
        fd = sock.fileno()
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._native is not None:
                self._epoll.unregister(fd)
            else:
                self._control.send(COMMAND.pack(fd, 0))

    def answered(self, sock: socket.socket) -> int:
        """Return the number of the last pong on a socket; `beats.CLOSED` after its end."""
        return self._table[sock.fileno()]

    def stop(self) -> None:
        """Answer no more."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            self._epoll.close()
            os.close(self._stop)
        if self._process is not None:
            self._control.close()
            self._process.wait()

    # -- Native ------------------------------------------------------------------------------------

    def _start_native(self, native: int) -> None:
        memory = (ctypes.c_uint64 * beats.TABLE)()
        self._table: Any = memory
        self._epoll = select.epoll()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._stop, select.EPOLLIN)
        library = ctypes.CDLL(None)
        words = (ctypes.c_uint64 * len(Word))()
        words[Word.EPOLL], words[Word.STOP] = self._epoll.fileno(), self._stop
        words[Word.TABLE] = ctypes.addressof(memory)
        for word in (Word.EPOLL_WAIT, Word.EPOLL_CTL, Word.RECV, Word.SEND):
            function = getattr(library, word.name.lower())
            words[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
        respond = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native)

        # The arguments live as long as the thread, also if the Responder does not.
        self._thread = threading.Thread(
            target=_run_native,
            args=(respond, words, memory, self._epoll),
            name="headrace-heartbeats",
            daemon=True,
        )
        self._thread.start()

    # -- In a process of its own -------------------------------------------------------------------

    def _start_sidecar(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = os.memfd_create("headrace", os.MFD_CLOEXEC)
        try:
            os.truncate(fd, 8 * beats.TABLE)
            self._table = memoryview(mmap.mmap(fd, 8 * beats.TABLE)).cast("Q")
            numbers = map(str, (theirs.fileno(), fd, os.getpid()))
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", beats.__file__, *numbers],
                pass_fds=(theirs.fileno(), fd),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
        finally:
            theirs.close()
            os.close(fd)


def _run_native(respond: Callable[[int], int], words: Any, *_: Any) -> None:
    # Signals are for Python's own threads; faults belong to the thread that made them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    respond(ctypes.addressof(words))


class Answers:
    """Answers the heartbeats of a process until it closes the connection or the loop ends; sends it
    none. To be used in the loop's thread.
    """

    def __init__(self, connection: Connection, responder: Responder, loop: Loop) -> None:
        self._socket, self._responder, self._loop = connection.socket, responder, loop
        self._socket.setblocking(False)
        responder.add(self._socket)
        loop.register(self._socket.fileno(), select.EPOLLRDHUP, lambda events: self.end())
        loop.at_end(self.end)

    def end(self) -> None:
        """Close the connection."""
        self._loop.not_at_end(self.end)
        if self._socket.fileno() >= 0:
            self._responder.remove(self._socket)
            self._loop.forget(self._socket.fileno())
            self._socket.close()


class Heartbeat:
    """Heartbeats on one connection: sends them, and calls `on_dead(peer, reason)` once, in the
    loop's thread, if they are not answered or the connection ends. The loop's end is theirs.
    """

    def __init__(
        self,
        connection: Connection,
        responder: Responder,
        loop: Loop,
        on_dead: Callable[[Any, str], Any],
        interval: float | None = None,
        limit: int | None = None,
    ) -> None:
        self.peer = connection.peer
        self.address = connection.address
        self._socket, self._responder, self._loop = connection.socket, responder, loop
        self._on_dead = on_dead
        self._interval = settings().heartbeat_ms / 1000 if interval is None else interval
        self.monitor = Monitor(settings().heartbeats_missed if limit is None else limit)
        self._ended = False
        self._timer: Any = None
        self._socket.setblocking(False)
        responder.add(self._socket)
        loop.at_end(self.end)
        loop.call_soon(self._begin)

    def stop(self) -> None:
        """Stop sending, without a verdict; from any thread."""
        self._loop.call_soon(self.end)

    # -- In the loop's thread ----------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._ended:
            # The responder reads; here only the end of the connection counts.
            self._loop.register(self._socket.fileno(), select.EPOLLRDHUP, self._hung_up)
            self._tick()

    def _hung_up(self, events: int) -> None:
        self.monitor = replace(self.monitor, closed=True)
        self._judge("its connection for heartbeats ended")

    def _tick(self) -> None:
        if self._ended:
            return
        self.monitor = self.monitor.hear(self._responder.answered(self._socket))
        if self.monitor.health is Health.DEAD:
            seconds = self.monitor.missed * self._interval
            self._judge(
                f"it did not answer {self.monitor.missed} heartbeats in {seconds:.1f} s"
                if not self.monitor.closed
                else "its connection for heartbeats ended"
            )
            return
        self.monitor = self.monitor.beat(self._loop.now())
        try:
            self._socket.send(MESSAGE.pack(PING, self.monitor.sent))
        except BlockingIOError:
            pass  # nobody reads: it counts as missed
        except OSError as error:
            self.monitor = replace(self.monitor, closed=True)
            self._judge(f"its connection for heartbeats ended: {error.strerror}")
            return
        self._timer = self._loop.call_later(self._interval, self._tick)

    def _judge(self, reason: str) -> None:
        if not self._ended:
            self.end()
            self._on_dead(self.peer, reason)

    def end(self) -> None:
        """Stop sending, in the loop's thread."""
        if self._ended:
            return
        self._ended = True
        self._loop.not_at_end(self.end)
        if self._timer is not None:
            self._timer.cancel()
        self._responder.remove(self._socket)
        self._loop.forget(self._socket.fileno())
        self._socket.close()
