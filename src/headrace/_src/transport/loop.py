"""One thread for all connections of a process. In: sockets, functions, timers. Out: callbacks.

Invariants: callbacks run in the loop's thread, one at a time; an exception in a callback is logged
and ends at most the connection that it belongs to; the thread ends only by `stop`.

Between the messages of a brief step, a thread that sleeps is woken in about the time that the step
takes, and finds its processor's caches cold. So after a message the loop looks for the next one for
a moment before it sleeps, and lets others run between two looks. If none comes, it does so more and
more rarely.

State: `_handlers` by file descriptor; `_soon` functions to call; `_timers` a heap, under
`_timer_lock`; `_asleep` whether the thread is in (or about to enter) epoll, so that others have to
wake it; `_misses` how often in a row nothing came in that moment, `_rests` how often the loop will
now sleep at once.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.transport.connect import (
    Connection,
    Listener,
    connect,
    prepare,
    user_of,
    user_of_tcp,
)
from headrace._src.transport.frame import ProtocolError
from headrace._src.transport.handshake import DEADLINE, Handshake, Hello, RefusedError, Service
from headrace._src.transport.link import Link, OnClosed, OnFrame
from headrace._src.transport.slabs import Slabs

__all__ = ["Loop", "LoopTimer"]

_log = logging.getLogger("headrace")
_EVENTS: Final = 64
_PATIENCE: Final = 24  # misses in a row before the loop rests
_MOST_MISSES: Final = 29
_GREETINGS: Final = 512  # handshakes at the same time
_PAUSE: Final = 0.5  # seconds without accepting connections when the system has no room for more


class LoopTimer:
    """A function that will be called; `cancel` prevents it."""

    __slots__ = ("_function", "at")

    def __init__(self, at: float, function: Callable[[], Any]) -> None:
        self.at = at
        self._function: Callable[[], Any] | None = function

    def cancel(self) -> None:
        """Prevent the call, if it has not happened."""
        self._function = None

    def take(self) -> Callable[[], Any] | None:
        """The function, once; None after cancel."""
        function, self._function = self._function, None
        return function


class Loop:
    """Polls sockets and calls back, in a thread of its own."""

    _wake = -1

    def __init__(self, name: str = "headrace-loop") -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._handlers: dict[int, Callable[[int], None]] = {self._wake: self._woken}
        self._links: dict[int, Link] = {}
        self._listeners: list[Listener] = []
        self._greetings: set[_Greeting] = set()
        self._at_end: dict[Any, None] = {}  # functions
        self._soon: deque[Callable[[], Any]] = deque()
        self._timers: list[tuple[float, int, LoopTimer]] = []
        self._timer_lock = Lock()
        self._order = itertools.count()
        self._asleep = False
        self._spin = settings().spin_us / 1e6 if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._misses = self._rests = 0
        self._stopping = self._ended = False
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- From any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close all connections and end the thread; returns when it has ended."""
        self._stopping = True
        self._signal()
        if self._thread.ident is None:  # never started
            self._end()
        elif threading.current_thread() is not self._thread:
            self._thread.join()

    def call_soon(self, function: Callable[[], Any]) -> None:
        """Call a function in the loop's thread."""
        self._soon.append(function)
        if self._asleep:
            self._signal()

    def call_later(self, seconds: float, function: Callable[[], Any]) -> LoopTimer:
        """Call a function in the loop's thread after some time."""
        timer = LoopTimer(time.monotonic() + seconds, function)
        with self._timer_lock:
            heapq.heappush(self._timers, (timer.at, next(self._order), timer))
            first = self._timers[0][2] is timer
        if first and self._asleep:
            self._signal()
        return timer

    @staticmethod
    def now() -> float:
        """The time of the loop's timers, in seconds."""
        return time.monotonic()

    def add(
        self,
        connection: Connection,
        on_frame: OnFrame,
        on_closed: OnClosed | None = None,
        budget: int | None = None,
        slabs: Slabs | None = None,
    ) -> Link:
        """Serve a connection: call `on_frame(link, frame)` for each frame and, once and at last,
        `on_closed(link, error)`; error None: this process closed the link.

        budget: how many bytes of large tensors may be unread by the peer; None: HEADRACE_LINK_MB
        slabs: see Link
        """
        link = Link(connection, self, on_frame, on_closed, budget, slabs)

        def register() -> None:
            if connection.rest:
                link.begin(connection.rest)
            self._handlers[link.fd] = link.ready
            self._links[link.fd] = link
            self._epoll.register(link.fd, select.EPOLLIN)
            if link.queued_bytes:
                self.watch(link.fd, select.EPOLLIN | select.EPOLLOUT)

        self.call_soon(register)
        return link

    def listen(
        self, listener: Listener, hello: Hello, on_connection: Callable[[Connection], Any]
    ) -> None:
        """Accept connections, and call back with those whose handshake succeeds."""

        def register() -> None:
            self._listeners.append(listener)
            for sock in listener.sockets:
                self._handlers[sock.fileno()] = lambda events, sock=sock: self._accept(
                    sock, listener, hello, on_connection
                )
                self._epoll.register(sock.fileno(), select.EPOLLIN)

        self.call_soon(register)

    def connect(
        self,
        address: str,
        hello: Hello,
        key: bytes | None,
        timeout: float,
        then: Callable[[Connection | Exception], Any],
        service: Service = Service.FRAMES,
    ) -> None:
        """Connect in a short-lived thread; call back with the connection or the error."""

        def run() -> None:
            try:
                result = connect(address, hello, key, timeout, service)
            except Exception as error:
                result = error

            def call() -> None:
                then(result)

            self.call_soon(call)
            if self._ended and isinstance(result, Connection):
                with contextlib.suppress(ValueError):  # the loop has called it at its end
                    self._soon.remove(call)
                    result.socket.close()

        threading.Thread(target=run, name="headrace-connect", daemon=True).start()

    def watch(self, fd: int, events: int) -> None:
        """Change the events that a registered socket is polled for."""
        # Not registered yet, or not any more: whoever registers looks at the queue.
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(fd, events)

    def register(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Poll another file descriptor, from the loop's thread: `handler(events)`."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def at_end(self, function: Callable[[], Any]) -> None:
        """Call a function when the loop ends, which may have happened, unless `not_at_end` comes
        before. Whoever opens a socket that is not a link's closes it there.
        """
        self._at_end[function] = None
        if self._ended:
            self._call(function)

    def not_at_end(self, function: Callable[[], Any]) -> None:
        """Take back a call of `at_end`."""
        self._at_end.pop(function, None)

    def forget(self, fd: int) -> None:
        """Poll a file descriptor no longer; it's still open."""
        self._links.pop(fd, None)
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError, ValueError):  # ValueError: the loop has ended
                self._epoll.unregister(fd)

    # -- The thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        poll, handlers, soon = self._epoll.poll, self._handlers, self._soon
        events: list[tuple[int, int]] = []
        while not self._stopping:
            pause = self._pause()
            events = self._look(pause) if events and self._spin and not soon else []
            if not events:
                # Whoever adds something after this point sees that we are asleep.
                self._asleep = True
                pause = self._pause()  # again: timers may have been added before
                events = poll(0.0 if soon else pause, _EVENTS)
                self._asleep = False
            for fd, event in events:
                handler = handlers.get(fd)
                if handler is not None:
                    try:
                        handler(event)
                    except BaseException:
                        _log.exception("error in a callback of the transport")
            if soon:
                for _ in range(len(soon)):
                    self._call(soon.popleft())
            if not pause or not events:  # after the events, which may be what a timer waits for
                self._call_due()
        self._end()

    def _pause(self) -> float:
        """Return the seconds until the next timer, -1 if there is none."""
        timers = self._timers
        return max(0.0, timers[0][0] - time.monotonic()) if timers else -1.0

    def _look(self, pause: float) -> list[tuple[int, int]]:
        """Return the events of the next moment. pause: the seconds until the next timer."""
        if self._rests:
            self._rests -= 1
            return []
        poll, soon = self._epoll.poll, self._soon
        until = time.monotonic() + (min(self._spin, pause) if pause >= 0 else self._spin)
        while True:
            events = poll(0.0, _EVENTS)
            if events:
                self._misses = 0
                return events
            if soon or time.monotonic() >= until:
                break
            os.sched_yield()
        self._misses = min(self._misses + 1, _MOST_MISSES)
        if self._misses > _PATIENCE:
            self._rests = 1 << self._misses - _PATIENCE
        return events

    def _call_due(self) -> None:
        now = time.monotonic()
        while True:
            with self._timer_lock:
                if not self._timers or self._timers[0][0] > now:
                    return
                function = heapq.heappop(self._timers)[2].take()
            if function is not None:
                self._call(function)

    def _call(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException:
            _log.exception("error in a callback of the transport")

    def _signal(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake up; closed: it has ended
            os.eventfd_write(self._wake, 1)

    def _woken(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _end(self) -> None:
        self._ended = True  # from here on, nobody may call what is added
        while self._soon:
            self._call(self._soon.popleft())
        for function in list(self._at_end):
            self._call(function)
        for link in list(self._links.values()):
            link.close()
            self._call(link.finish)
        for greeting in list(self._greetings):
            greeting.close()
        for listener in self._listeners:
            listener.close()
        self._epoll.close()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Not when the thread ends: others may still signal, and the number may have been reused.
        # At Python's end there is no module `os` any more.
        if self._wake >= 0:
            close(self._wake)

    # -- Connections that come in ------------------------------------------------------------------

    def _accept(
        self,
        listening: socket.socket,
        listener: Listener,
        hello: Hello,
        on_connection: Callable[[Connection], Any],
    ) -> None:
        try:
            sock, where = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # The connection stays where it is, so polling on would find it again at once.
                _log.warning("cannot accept connections at %s: %s", listener.address, error)
                fd = listening.fileno()
                self.watch(fd, 0)
                self.call_later(_PAUSE, lambda: self.watch(fd, select.EPOLLIN))
            return
        unix = sock.family == socket.AF_UNIX
        if len(self._greetings) >= _GREETINGS or not _is_welcome(sock, unix, listener.key):
            _log.warning(
                "a connection to %s is refused: another user's, or too many", listener.address
            )
            sock.close()
            return
        prepare(sock)
        sock.setblocking(False)
        address = f"a process at {listener.address}" if unix else f"{where[0]}:{where[1]}"
        shake = Handshake(hello, listener.key, True, where=address)
        self._greetings.add(_Greeting(self, sock, shake, address, on_connection))

    def greeted(self, greeting: _Greeting) -> None:
        """Forget a handshake that has ended."""
        self._greetings.discard(greeting)


def _is_welcome(sock: socket.socket, unix: bool, key: bytes | None) -> bool:
    """Whether a process may begin a handshake; with a key, that decides."""
    if unix:
        return user_of(sock) == os.getuid()
    return key is not None or user_of_tcp(sock) in (None, os.getuid())


class _Greeting:
    """A handshake with a process that connected to us."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        shake: Handshake,
        address: str,
        on_connection: Callable[[Connection], Any],
    ) -> None:
        self._loop, self._socket, self._shake = loop, sock, shake
        self._address, self._on_connection = address, on_connection
        self._timer = loop.call_later(DEADLINE, self.close)
        loop.register(sock.fileno(), select.EPOLLIN, self._ready)

    def _ready(self, events: int) -> None:
        shake = self._shake
        try:
            data = self._socket.recv(4096)
            if not data:
                self.close()
                return
            answer = shake.feed(data)
            if answer and self._socket.send(answer) != len(answer):
                raise ProtocolError(f"{self._address} does not read the handshake")
        except BlockingIOError:
            return
        except (OSError, ProtocolError, RefusedError) as error:
            _log.warning("a connection is refused: %s", error)
            with contextlib.suppress(OSError):
                self._socket.send(shake.refusal)
            self.close()
            return
        if shake.peer is not None:
            self._leave()
            unix = self._socket.family == socket.AF_UNIX
            try:
                self._on_connection(
                    Connection(
                        self._socket, shake.peer, self._address, unix, shake.service, shake.rest
                    )
                )
            except BaseException:
                self._socket.close()
                raise

    def _leave(self) -> None:
        self._timer.cancel()
        self._loop.forget(self._socket.fileno())
        self._loop.greeted(self)

    def close(self) -> None:
        """End a handshake that takes too long or went wrong."""
        self._leave()
        self._socket.close()
