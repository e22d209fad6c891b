"""Write event files in the background. In: Events. Out: files, one after another.

A thread does the writing, so that a slow disk doesn't delay training steps.

Invariants: accepted events are written once and in order, or an error reports that they weren't.
The next call raises the thread's error; that call adds nothing, and the failed events are retried.
A killed process loses only events that weren't flushed. A forked child has its own file, and none
of its parent's events. If a file is removed, writing continues in a new one, except in `close`,
which does not recreate a deleted directory.
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

from headrace._src.core.errors import OpError
from headrace._src.core.file_errors import file_errors
from headrace._src.core.locks import RLock
from headrace._src.summary.event_file import EventFile

__all__ = ["EventFileWriter"]

_log = logging.getLogger("headrace")


class EventFileWriter:
    """Event files in a directory, written by a thread.

    max_queue: how many events may wait for the thread before `add_event` blocks; 0: any number.
    flush_secs: how long events may be buffered, in seconds.

    State, under `_lock`: the events that wait (`_queue`), whether the thread is busy with some,
    and the error that the next call raises. The thread owns the file while it is busy.
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
        if self._suffix:  # as in TensorFlow; otherwise the first event creates the file
            self._attempt(self._file.open)
        _writers.add(self)

    def _start(self) -> None:
        """Start with no events, no file, and no thread until there is work for it."""
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[bytes] = []
        self._busy = False
        self._closed = False
        self._error: Exception | None = None
        self._file = EventFile(self._logdir, self._suffix)
        self._thread: threading.Thread | None = None
        self._flush_at = 0.0  # the first events become visible at once

    def get_logdir(self) -> str:
        """Return the directory of the files."""
        return self._logdir

    @property
    def path(self) -> str | None:
        """The path of the current or last file; None if there is none yet."""
        return self._file.path

    def add_event(self, event: Any) -> None:
        """Let the thread write an event; do nothing after `close`."""
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
                _log.warning("%s was removed: the remaining events are lost", self._file.path)
            else:
                self._write_everything()
            self._closed = True
            self._changed.notify_all()  # the thread ends
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._attempt(self._file.close)

    def reopen(self) -> None:
        """Continue after `close`, with the next event in a new file."""
        if self._closed:
            self._start()

    def after_fork(self) -> None:
        """Start over in a forked child: the file, the thread and the events belong to the
        parent.
        """
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
            except Exception as error:  # any error: callers would wait forever for a dead thread
                with self._lock:
                    self._error = error

    def _take(self) -> list[bytes] | None:
        """Wait for events; return no events when it's time to flush, None when there will be no
        more.
        """
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
        """Return the seconds until buffered events must be flushed; None if there are none."""
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


# The writers of this process. A thread keeps its writer alive until it's closed.
_writers: weakref.WeakSet[EventFileWriter] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in _writers:
        writer.after_fork()


@atexit.register
def _flush_all() -> None:
    """Write the events of writers that a program leaves open at its end."""
    for writer in list(_writers):
        try:
            writer.close()
        except OpError as error:
            _log.error("Events are lost: %s", error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
