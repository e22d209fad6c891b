"""An event file. In: serialised Events. Out: events.out.tfevents.SECONDS.HOST, a file of records.

Invariants: an existing file is never written to; what couldn't be written stays, and is tried
again, from the very byte at which the system refused; if somebody removes the file, a new one goes
on after it.
"""

from __future__ import annotations

import logging
import os
import platform
import time

from headrace.core import proto
from headrace.core.records import frame

__all__ = ["EventFile"]

_log = logging.getLogger("headrace")

_VERSION = "brain.Event:2"
_FULL = 1 << 16  # bytes that are kept back at most, until the time to flush has come


class EventFile:
    """Records of Events, written by whoever calls; not for several threads at once.

    State: the open file, None before the first event and after `close`; the bytes that are still to
    be written.
    """

    def __init__(self, directory: str, suffix: str = "") -> None:
        self.directory = directory
        self.path: str | None = None
        self._suffix = suffix
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._pending = bytearray()

    def open(self) -> None:
        """Begin a new file, if none is open."""
        if self._descriptor is not None:
            return
        os.makedirs(self.directory or os.curdir, exist_ok=True)
        now = time.time()
        seconds = int(now)
        while True:  # a file of the same second stays what it is: TensorBoard reads both in order
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
        """Take an event; it may be written later."""
        self._pending += frame(serialized)

    @property
    def is_full(self) -> bool:
        """Whether enough is kept back to be written at once."""
        return len(self._pending) >= _FULL

    def flush(self) -> None:
        """Hand everything to the system. OSError if it refuses; what is left is tried again."""
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
        """Whether somebody has removed the file that is open, or put another in its place."""
        if self._descriptor is None:
            return False
        try:
            status = os.stat(self.path or "")
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (status.st_dev, status.st_ino) != self._identity

    @property
    def is_written(self) -> bool:
        """Whether nothing is kept back."""
        return not self._pending

    def close(self) -> None:
        """Close the file. What is kept back is forgotten: `flush` comes before."""
        self._pending.clear()
        self._drop()

    def _drop(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
