"""Event files that are written in the background. In: Events. Out: files, one after another.

A thread writes, so that a slow disk doesn't hold up the steps of a training program.

Invariants: what was accepted is written once and in order, or an error says that it wasn't. An
error of the thread is raised by the next call; the call that raises has added nothing, and what
couldn't be written is tried again. A process that is killed loses at most what wasn't flushed. A
forked child has a file of its own, and none of its parent's events. A file that somebody removed
is gone on with in a new one, but not by `close`: nobody finds a directory again that he removed.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headrace.core.errors import OpError
from headrace.core.file_errors import file_errors
from headrace.core.locks import RLock
from headrace.summary.event_file import EventFile

__all__ = ["EventFileWriter"]

_log = logging.getLogger("headrace")


class EventFileWriter:
    """Event files in a directory, written by a thread.

    max_queue: how many events may wait for the thread before `add_event` waits, too; 0: any number.
    flush_secs: how long events may be kept back, in seconds.

    State, under `_lock`: the events that wait (`_queue`), whether the thread is busy with some,
    and the error that the next call raises. The file is the thread's while that is busy.
    """

    def __init__(
        self,
        logdir: str | bytes | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str | None = None,
    ) -> None:
        self._logdir = os.fsdecode(logdir)
        self._max_queue = max_queue
        self._flush_seconds = flush_secs
        self._suffix = filename_suffix or ""
        with file_errors(self._logdir):
            os.makedirs(self._logdir or os.curdir, exist_ok=True)
        self._start()
        if self._suffix:  # as in TensorFlow; without one, the first event makes the file
            self._attempt(self._file.open)
        _writers.add(self)

    def _start(self) -> None:
        """Begin with nothing: no events, no file, and no thread before there is work for it."""
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[bytes] = []
        self._busy = False
        self._closed = False
        self._error: Exception | None = None
        self._file = EventFile(self._logdir, self._suffix)
        self._thread: threading.Thread | None = None
        self._flush_at = 0.0  # the first events are to be seen at once

    def get_logdir(self) -> str:
        """Return the directory of the files."""
        return self._logdir

    @property
    def path(self) -> str | None:
        """The file that is written, or was last; None if there is none yet."""
        return self._file.path

    def add_event(self, event: Any) -> None:
        """Let the thread write an event; nothing, after `close`."""
        serialized = event.SerializeToString()
        with self._lock:
            if self._closed:
                return
            self._raise_error()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="events", daemon=True)
                self._thread.start()
            while 0 < self._max_queue <= len(self._queue):
                self._changed.wait()
                self._raise_error()
            self._queue.append(serialized)
            self._changed.notify_all()

    def flush(self) -> None:
        """Return when all events so far are in the file."""
        with self._lock:
            if not self._closed:
                self._write_everything()

    def close(self) -> None:
        """Write all events so far and close the file. If that fails, it stays open."""
        with self._lock:
            if self._closed:
                return
            if self._is_removed():
                _log.warning("%s was removed: what would follow in it is lost", self._file.path)
            else:
                self._write_everything()
            self._closed = True
            self._changed.notify_all()  # the thread ends
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._attempt(self._file.close)

    def reopen(self) -> None:
        """Go on after `close`, with the next event in a new file."""
        if self._closed:
            self._start()

    def after_fork(self) -> None:
        """Begin anew in a child: the file, the thread and the events are the parent's."""
        closed = self._closed
        with suppress(OSError):
            self._file.close()
        self._start()
        self._closed = closed

    # -- Under the lock

    def _is_removed(self) -> bool:
        self._wait_for_thread()
        return self._file.is_removed

    def _wait_for_thread(self) -> None:
        while self._queue or self._busy:
            self._changed.wait()

    def _write_everything(self) -> None:
        self._wait_for_thread()
        self._raise_error()
        self._attempt(self._file.flush)

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            with file_errors(self._file.path or self._logdir):
                raise error

    def _attempt(self, action: Callable[[], None]) -> None:
        with file_errors(self._file.path or self._logdir):
            action()

    # -- The thread

    def _work(self) -> None:
        while (events := self._take()) is not None:
            try:
                self._write(events)
            except Exception as error:  # whatever it is: a thread that dies would be waited for
                with self._lock:
                    self._error = error

    def _take(self) -> list[bytes] | None:
        """Wait for events; none when it's time to flush, None when there will be no more."""
        with self._lock:
            self._busy = False
            self._changed.notify_all()
            while not self._queue:
                if self._closed:
                    return None
                if not self._changed.wait(self._patience()):
                    break
            events, self._queue = self._queue, []
            self._busy = True
            self._changed.notify_all()  # there is room in the queue
            return events

    def _patience(self) -> float | None:
        """How long what is kept back may still be; None if there is nothing."""
        if self._file.is_written:
            return None
        return max(0.0, self._flush_at - time.monotonic())

    def _write(self, events: list[bytes]) -> None:
        for event in events:
            self._file.append(event)
        now = time.monotonic()
        if self._file.is_full or now >= self._flush_at:
            self._flush_at = now + self._flush_seconds
            self._file.flush()


# Those of this process. A thread keeps its writer alive until it's closed.
_writers: weakref.WeakSet[EventFileWriter] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in _writers:
        writer.after_fork()


@atexit.register
def _flush_all() -> None:
    """Write what a program that ends without `close` has left behind."""
    for writer in list(_writers):
        try:
            writer.close()
        except OpError as error:
            _log.error("Events are lost: %s", error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
