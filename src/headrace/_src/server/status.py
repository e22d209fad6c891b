"""What a server tells the process that has started it. In: the steps that have ended and those that
run. Out: lines of JSON on a pipe, one at the start and then two per second.

The file descriptor of the pipe is HEADRACE_STATUS_FD; a process without one reports nothing. A
report never blocks: if nobody reads, it is dropped. Nothing but reports depends on them.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from headrace._src.core.config import settings

__all__ = ["StatusReport", "parse", "start_reporting"]

INTERVAL = 0.5  # seconds between two reports


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What a server says: its task, how many steps have ended there, and how many run."""

    task: str
    steps: int
    running: int = 0

    def line(self) -> bytes:
        """Return the report as it travels."""
        return json.dumps(asdict(self)).encode() + b"\n"


def parse(line: bytes) -> StatusReport | None:
    """Return the report in a line, None if there is none."""
    try:
        found = json.loads(line)
        return StatusReport(str(found["task"]), int(found["steps"]), int(found["running"]))
    except (ValueError, TypeError, KeyError):
        return None


def start_reporting(task: str, counts: Callable[[], tuple[int, int]]) -> Callable[[], None]:
    """Report until the function that is returned is called. counts: returns how many steps have
    ended, and how many run.
    """
    ended = threading.Event()
    pipe = settings().status_fd
    if pipe is not None:
        with contextlib.suppress(OSError):
            os.set_inheritable(pipe, False)
            os.set_blocking(pipe, False)
            write = threading.Thread(
                target=_report,
                args=(pipe, task, counts, ended),
                name="headrace status",
                daemon=True,
            )
            write.start()
    return ended.set


def _report(
    pipe: int, task: str, counts: Callable[[], tuple[int, int]], ended: threading.Event
) -> None:
    while True:
        try:
            os.write(pipe, StatusReport(task, *counts()).line())
        except BlockingIOError:
            pass  # nobody reads
        except OSError:
            return  # nobody ever will
        if ended.wait(INTERVAL):
            return
