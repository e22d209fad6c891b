"""A clock that several processes share, and that goes on only when all of them have nothing to do.

In: processes that sleep by `Clock.sleep`. Out: the same order of events as on a host that computes
in no time, however busy this one is.

The server of the clock lets time jump to the first sleeper's end once the processes are quiet: no
thread of theirs runs or could run, and nothing is under way on their connections. What they compute
and send takes no time on this clock. It reads /proc, so it needs Linux.
"""

from __future__ import annotations

import contextlib
import heapq
import multiprocessing.connection
import os
import time
from pathlib import Path
from typing import Any

_QUIET = 2  # looks in a row that find nothing
_PAUSE = 0.001  # real seconds between two looks


class Clock:
    """The clock as a process uses it, by one connection for each thread that sleeps at a time."""

    def __init__(self, now: Any, connections: list[Any]) -> None:
        self._now, self._free = now, list(connections)

    def monotonic(self) -> float:
        """The seconds since the clock was made."""
        return self._now.value

    def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds of this clock."""
        connection = self._free.pop()
        try:
            connection.send(seconds)
            connection.recv()
        finally:
            self._free.append(connection)


class ClockServer:
    """Makes clocks, and lets time pass.

    State: who sleeps until when; the processes to look at, and their ports.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._now = context.Value("d", 0.0, lock=False)
        self._ends: list[Any] = []
        self._asleep: list[tuple[float, int, Any]] = []
        self._order = 0

    def clock(self, threads: int) -> Clock:
        """Return a clock for a process with so many threads that sleep."""
        pairs = [self._context.Pipe() for _ in range(threads)]
        self._ends += [end for end, _ in pairs]
        return Clock(self._now, [own for _, own in pairs])

    def advance(self, processes: list[Any], ports: set[int]) -> bool:
        """Take what sleepers ask for; if all is quiet, wake the first. Call it again and again.
        Return False if all is quiet and nobody sleeps.
        """
        if self._listen(_PAUSE):
            return True
        for _ in range(_QUIET):
            if not _is_quiet([p.pid for p in processes if p.is_alive()], ports):
                return True
            if self._listen(_PAUSE):
                return True
        if not self._asleep:
            return False
        until, _, end = heapq.heappop(self._asleep)
        self._now.value = max(self._now.value, until)
        with contextlib.suppress(OSError):  # its process has died
            end.send(None)
        return True

    def _listen(self, seconds: float) -> bool:
        """Take what was asked for; return whether there was anything."""
        ready = multiprocessing.connection.wait(self._ends, seconds)
        for end in ready:
            try:
                asked = end.recv()
            except (EOFError, OSError):
                self._ends.remove(end)
                continue
            self._order += 1
            heapq.heappush(self._asleep, (self._now.value + asked, self._order, end))
        return bool(ready)


def _is_quiet(pids: list[int], ports: set[int]) -> bool:
    for pid in pids:
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                text = Path(f"/proc/{pid}/task/{task}/stat").read_text()
            except OSError:
                continue
            if text.rpartition(")")[2].split()[0] in "RD":
                return False
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues = line.split()[:5]
        if queues != "00000000:00000000" and (
            int(local.rpartition(":")[2], 16) in ports
            or int(remote.rpartition(":")[2], 16) in ports
        ):
            listening = remote.endswith(":0000")
            if not listening:
                return False
    return True


class RealClock:
    """The host's clock, with the same interface."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
