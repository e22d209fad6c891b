"""What a launch shows of its tasks. In: reports, output and ends of processes. Out: one line each.
Everything here is a pure function of times and reports.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.table import Table
from rich.text import Text

from headrace._src.server.status import INTERVAL, StatusReport

__all__ = ["TaskView", "exit_status", "how_it_ended", "split_lines", "table"]

_SAMPLES = 8  # reports over which the steps per second are averaged
_SILENT = 6 * INTERVAL  # seconds without a report after which a server counts as silent
_STYLES = {
    "running": "green",
    "in a step": "green",
    "ready": "cyan",
    "starting": "dim",
    "stopping": "yellow",
    "silent": "bold yellow",
    "stopped": "dim",
    "ended": "dim",
}


@dataclass(frozen=True, slots=True)
class TaskView:
    """What is known of a task.

    started: when its process started. samples: the latest reports, as (time, steps). heard: when
    it last reported or printed something. ending: whether it was asked to end. code: how it ended.
    restarts: how often it was started again. busy: whether steps ran at the last report.
    """

    name: str
    started: float
    samples: tuple[tuple[float, int], ...] = ()
    heard: float | None = None
    ending: bool = False
    code: int | None = None
    restarts: int = 0
    busy: bool = False

    def reported(self, report: StatusReport, now: float) -> TaskView:
        """Return the view after a report."""
        samples = (*self.samples, (now, report.steps))[-_SAMPLES:]
        return replace(self, samples=samples, busy=report.running > 0, heard=now)

    @property
    def steps(self) -> int:
        """How many steps have ended on the task."""
        return self.samples[-1][1] if self.samples else 0

    @property
    def rate(self) -> float:
        """Steps per second, over the latest reports."""
        if len(self.samples) < 2:
            return 0.0
        (start, before), (end, after) = self.samples[0], self.samples[-1]
        return (after - before) / (end - start) if end > start else 0.0

    def state(self, now: float) -> str:
        """Return one word, or how the process ended."""
        if self.ending:
            return "stopping" if self.code is None else "stopped"
        if self.code is not None:
            return how_it_ended(self.code)
        if not self.samples:
            return "starting" if self.heard is None else "running"
        if now - self.samples[-1][0] > _SILENT:
            return "silent"
        return "running" if self.rate else "in a step" if self.busy else "ready"


def how_it_ended(code: int) -> str:
    """Return what an exit code means; a negative one is a signal."""
    if code == 0:
        return "ended"
    if code > 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def exit_status(code: int) -> int:
    """Return the exit code of a command that ended as its task did; as a shell's, for a signal."""
    return code if code >= 0 else 128 - code


def table(views: Sequence[TaskView], now: float) -> Table:
    """Return one line for each task."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right", "right"):
        made.add_column(justify=justify, no_wrap=True)
    for view in views:
        state = view.state(now)
        restarts = f" (restarted {view.restarts}x)" if view.restarts else ""
        made.add_row(
            Text(view.name, "bold"),
            Text(state + restarts, _STYLES.get(state, "bold red")),
            f"{view.steps:,} steps" if view.samples else "",
            f"{view.rate:.1f} steps/s" if view.samples and view.code is None else "",
            _heard(view, now),
        )
    return made


def _heard(view: TaskView, now: float) -> str:
    if view.code is not None or view.heard is None:
        return ""
    return f"heard {now - view.heard:.1f} s ago"


def split_lines(rest: bytes, data: bytes) -> tuple[list[str], bytes]:
    """Return the whole lines of what a process printed, and the rest.

    rest: what was left over last time. A carriage return ends a line too, as progress bars use it;
    empty ones are left out then.
    """
    *whole, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n")
    lines = []
    for line in whole:
        parts = [part for part in line.split(b"\r") if part] if b"\r" in line else [line]
        lines += [part.decode(errors="replace") for part in parts]
    if b"\r" in rest[:-1]:  # the last byte may be half of \r\n
        *parts, rest = rest.split(b"\r")
        lines += [part.decode(errors="replace") for part in parts if part]
    return lines, rest
