"""An event file. In: serialised Events. Out: events.out.tfevents.SECONDS.HOST, a file of records.

Invariants: an existing file is never written to. Bytes that couldn't be written are kept, and
writing resumes at the exact byte at which the system failed. If the file is removed, writing
continues in a new file.
"""

from __future__ import annotations

import logging
import os
import platform
import time

from headrace._src.core import proto
from headrace._src.core.records import frame

__all__ = ["EventFile"]

_log = logging.getLogger("headrace")

_VERSION = "brain.Event:2"
_FULL = 1 << 16  # bytes to buffer at most, until it's time to flush


class EventFile:
    """Writes records of Events in the calling thread; not thread-safe.

    State: the open file, None before the first event and after `close`; the buffered bytes.
    """

    def __init__(self, directory: str, suffix: str = "") -> None:
        self.directory = directory
        self.path: str | None = None
        self._suffix = suffix
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._pending = bytearray()

    def open(self) -> None:
        """Open a new file, if none is open."""
        if self._descriptor is not None:
            return
        os.makedirs(self.directory or os.curdir, exist_ok=True)
        now = time.time()
        seconds = int(now)
        while True:  # a file of the same second is not overwritten: TensorBoard reads both in order
            name = f"events.out.tfevents.{seconds:010d}.{platform.node()}{self._suffix}"
            self.path = os.path.join(self.directory, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            try:
                self._descriptor = os.open(self.path, flags, 0o666)
                break
            except FileExistsError:
                seconds += 1
        status = os.fstat(self._descriptor)
        self._identity = (status.st_dev, status.st_ino)
        first = proto.Event(wall_time=now, file_version=_VERSION)
        self._pending[:0] = frame(first.SerializeToString())

    def append(self, serialized: bytes) -> None:
        """Add an event; it may be written later."""
        self._pending += frame(serialized)

    @property
    def is_full(self) -> bool:
        """Return whether enough is buffered to be written now."""
        return len(self._pending) >= _FULL

    def flush(self) -> None:
        """Hand everything to the system. If that raises OSError, the next call retries the rest."""
        if not self._pending:
            return
        if self.is_removed:
            _log.warning("%s was removed while it was written: a new file goes on", self.path)
            self._drop()
        self.open()
        assert self._descriptor is not None
        while self._pending:
            written = os.write(self._descriptor, self._pending)
            del self._pending[:written]

    @property
    def is_removed(self) -> bool:
        """Return whether the open file was removed or replaced."""
        if self._descriptor is None:
            return False
        try:
            status = os.stat(self.path or "")
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (status.st_dev, status.st_ino) != self._identity

    @property
    def is_written(self) -> bool:
        """Return whether nothing is buffered."""
        return not self._pending

    def close(self) -> None:
        """Close the file and drop buffered bytes: call `flush` first."""
        self._pending.clear()
        self._drop()

    def _drop(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
