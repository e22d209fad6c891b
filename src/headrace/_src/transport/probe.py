"""Ask a process whether it lives, without a thread of ours. In: a connection for heartbeats. Out: a
verdict.

A thread that waits for an answer calls `ask` once per interval. The other process answers without
Python's global lock (see heartbeat), so a busy one lives and a stopped one does not.
"""

from __future__ import annotations

import contextlib
import time

from headrace._src.core.config import settings
from headrace._src.transport.beats import MESSAGE, PING, PONG
from headrace._src.transport.connect import Connection
from headrace._src.transport.heartbeat import Health, Monitor

__all__ = ["Probe"]


class Probe:
    """Heartbeats to the process that a thread waits for."""

    def __init__(self, connection: Connection) -> None:
        self.interval = settings().heartbeat_ms / 1000  # seconds
        self._socket = connection.socket
        self._socket.setblocking(False)
        self._monitor = Monitor(settings().heartbeats_missed)
        self._data = b""

    def ask(self) -> str | None:
        """Send a heartbeat, an interval after the last one or later; return the reason if the
        process is to be given up.
        """
        try:
            self._hear()
            missed = self._monitor.missed
            if self._monitor.health is Health.DEAD:
                return f"it did not answer {missed} heartbeats in {missed * self.interval:.1f} s"
            self._monitor = self._monitor.beat(time.monotonic())
            with contextlib.suppress(BlockingIOError):  # nobody reads: it counts as missed
                self._socket.send(MESSAGE.pack(PING, self._monitor.sent))
        except OSError as error:
            return f"its connection for heartbeats ended: {error.strerror}"
        return None

    def _hear(self) -> None:
        """Read the answers that have come."""
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError(0, "the other process closed it or ended")
            self._data += data
        size = len(self._data) // MESSAGE.size * MESSAGE.size
        for kind, number in MESSAGE.iter_unpack(self._data[:size]):
            if kind == PONG:
                self._monitor = self._monitor.hear(number)
        self._data = self._data[size:]

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()
