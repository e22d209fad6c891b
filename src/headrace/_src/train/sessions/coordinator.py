"""Coordinator: stop threads together. In: requests to stop, errors. Out: a stop of all threads, and
the first error, raised where they are joined.

State, under one lock: the first reported error, the registered threads, whether they were joined;
and an event, set once a stop is requested.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace._src.core.errors import OutOfRangeError
from headrace._src.core.export import export
from headrace._src.core.locks import Lock

__all__ = ["Coordinator", "LooperThread"]

_log = logging.getLogger("headrace")

_GLANCE = 0.05  # seconds between checks of threads, whose end gives no signal


@export("train.Coordinator")
class Coordinator:
    """Stops a set of threads together.

    A thread asks `should_stop()` regularly, and calls `request_stop(error)` when it fails; the main
    thread calls `join(threads)`, which raises the first error that was reported.

    clean_stop_exception_types: errors that mean a clean end and are not raised; by default
    OutOfRangeError, the end of the input.
    """

    def __init__(
        self, clean_stop_exception_types: Sequence[type[BaseException]] | None = None
    ) -> None:
        clean = clean_stop_exception_types
        self._clean = (OutOfRangeError,) if clean is None else tuple(clean)
        self._lock = Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._threads: set[threading.Thread] = set()
        self._joined = False

    @property
    def error(self) -> BaseException | None:
        """The first reported error, None if the stop is clean."""
        return self._error

    @property
    def joined(self) -> bool:
        """Whether `join` has returned since the threads were started."""
        return self._joined

    def request_stop(self, ex: Any = None) -> None:
        """Ask all threads to stop. `ex` is an error for `join` to raise, or the result of
        sys.exc_info(); only the first one counts. After `join` it's raised here, since no later
        `join` would.
        """
        error = ex[1] if isinstance(ex, tuple) else ex
        if isinstance(error, self._clean):
            error = None
        with self._lock:
            joined = self._joined
            if not joined and not self._stop.is_set():
                if error is not None and self._error is None:
                    told = error if isinstance(ex, tuple) else f"{type(error)}, {error}"
                    _log.info("Error reported to Coordinator: %s", told)
                    self._error = error
                self._stop.set()
        if joined and error is not None:
            raise error

    def clear_stop(self) -> None:
        """Clear the stop and the error, so that threads can be started again."""
        with self._lock:
            self._joined = False
            self._error = None
            self._stop.clear()

    def should_stop(self) -> bool:
        """Return whether a stop was requested."""
        return self._stop.is_set()

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Report an error that the with-block raises, and continue after the block."""
        try:
            yield
        except BaseException:
            self.request_stop(sys.exc_info())

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a stop is requested, for at most `timeout` seconds; return whether it was."""
        return self._stop.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Register a thread for `join` to wait for."""
        with self._lock:
            self._threads.add(thread)

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait for the threads (and the registered ones) to end; raise the first reported error.
        After a stop they have `stop_grace_period_secs` seconds: if some still run then, raise
        RuntimeError, unless `ignore_live_threads`.
        """
        with self._lock:
            waited = list(self._threads | set(threads or ()))
        while not self._stop.is_set() and (alive := _alive(waited)):
            alive[0].join(_GLANCE)
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waited:
            thread.join(max(0.0, deadline - time.monotonic()))
        stragglers = _alive(waited)
        with self._lock:
            self._joined = True
            self._threads.clear()
            error = self._error
        if error is not None:
            raise error
        if stragglers:
            names = " ".join(t.name for t in stragglers)
            message = f"Coordinator stopped with threads still running: {names}"
            if not ignore_live_threads:
                raise RuntimeError(message)
            _log.info(message)

    def raise_requested_exception(self) -> None:
        """Raise the reported error, if there is one."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error


def _alive(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    return [t for t in threads if t.is_alive()]


@export("train.LooperThread")
class LooperThread(threading.Thread):
    """Calls a function repeatedly until its coordinator stops; errors stop the coordinator.

    timer_interval_secs: seconds from one call to the next, None for no pause. Without `target`,
    `run_loop` is called: override it.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")
        if target is None and (args or kwargs):
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        super().__init__()
        self.daemon = True
        self._coord = coord
        self._interval = timer_interval_secs
        self._call = target
        self._call_args = tuple(args or ())
        self._call_kwargs = dict(kwargs or {})
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Start a thread that calls `target(*args, **kwargs)` repeatedly."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        with self._coord.stop_on_exception():
            self.start_loop()
            due = time.monotonic()
            while not self._coord.should_stop():
                self.run_loop()
                if self._interval is None:
                    continue
                due += self._interval
                if self._coord.wait_for_stop(max(0.0, due - time.monotonic())):
                    break
            self.stop_loop()

    def start_loop(self) -> None:
        """Called before the first call."""

    def stop_loop(self) -> None:
        """Called after the last call."""

    def run_loop(self) -> None:
        """Called in each iteration."""
        if self._call is not None:
            self._call(*self._call_args, **self._call_kwargs)
