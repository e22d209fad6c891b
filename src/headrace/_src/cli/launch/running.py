"""Run the tasks of a launch. In: PlannedTasks. Out: what they print, one line for each task on a
terminal, and an exit code.

One thread does everything: it reads the pipes of all processes, looks ten times per second whether
one has ended, and starts, restarts and stops them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace._src.cli.launch.plan import PlannedTask
from headrace._src.cli.launch.signals import caught_signals
from headrace._src.cli.launch.view import TaskView, exit_status, how_it_ended, split_lines, table
from headrace._src.server.processes import TaskProcess, TaskStarter
from headrace._src.server.status import parse

__all__ = ["Launch", "ladder"]

_TICK = 0.1  # seconds
_REFRESH = 0.25  # seconds between two pictures on a terminal
_LEAVE = 5.0  # seconds that parameter servers have to end by themselves after the others
_PALETTE = ("cyan", "magenta", "blue", "green", "yellow", "bright_cyan", "bright_magenta")


def ladder(grace: float, is_server: bool = False) -> tuple[tuple[float, int], ...]:
    """Return the signals of a stop, with the seconds after which each is sent. Parameter servers
    have nothing to save, and SIGTERM ends Python without a traceback.
    """
    if is_server:
        return (0.0, signal.SIGTERM), (grace, signal.SIGKILL)
    return (0.0, signal.SIGINT), (grace, signal.SIGTERM), (1.5 * grace, signal.SIGKILL)


class _Launched:
    """A task with its process. `code` is None as long as it runs."""

    def __init__(self, plan: PlannedTask, process: TaskProcess, view: TaskView) -> None:
        self.plan = plan
        self.process = process
        self.view = view
        self.printed = b""  # of a line that has not ended
        self.last = ""  # the last line that is not empty
        self.spoke = 0.0  # when it came
        self.status = b""

    @property
    def code(self) -> int | None:
        return self.view.code


class Launch:
    """The processes of a launch. State: the tasks, whether they are being stopped and why, and the
    tasks that failed by themselves.

    restarts: how often a task that fails is started again. grace: seconds between SIGINT and
    SIGTERM. defaults: environment variables for all processes, unless they are set. least: as long
    as so many tasks run or have ended well, those that fail do not stop the others.
    """

    def __init__(
        self,
        plans: Sequence[PlannedTask],
        defaults: Mapping[str, str],
        restarts: int = 0,
        grace: float = 10.0,
        console: Console | None = None,
        least: int | None = None,
    ) -> None:
        self._plans = plans
        self._defaults = defaults
        self._restarts = restarts
        self._grace = grace
        self._least = len(plans) if least is None else least
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._starter = TaskStarter()
        self._selector = selectors.DefaultSelector()
        self._tasks: list[_Launched] = []
        self._signals: list[int] = []
        self._failed: list[_Launched] = []
        self._stopping = False
        self._stopped = 0.0  # when that began
        self._left: float | None = None  # when the last task that is no server ended
        self._drawn = 0.0
        self._width = max(len(plan.name) for plan in plans)

    def run(self) -> int:
        """Run all tasks to their end; return the exit code: that of the first that failed."""
        try:
            with caught_signals() as self._signals, self._shown():
                for plan in self._plans:
                    self._tasks.append(self._started(plan, 0))
                while any(task.code is None for task in self._tasks):
                    self._turn()
                self._say_why()
                self._draw(time.monotonic(), last=True)
        finally:
            for task in self._tasks:
                task.process.close()
            self._selector.close()
            self._starter.close()
        if self._signals:
            return 128 + self._signals[0]
        return exit_status(self._failed[0].code or 0) if self._failed else 0

    # -- Processes ---------------------------------------------------------------------------------

    def _started(self, plan: PlannedTask, restarts: int) -> _Launched:
        process = self._starter.start(
            plan.arguments, plan.environment, self._defaults, forward=True
        )
        view = TaskView(plan.name, time.monotonic(), restarts=restarts)
        task = _Launched(plan, process, view)
        for pipe in (process.output, process.status):
            assert pipe is not None
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, task)
        self._say(f"{plan.name} started: process {process.pid}")
        return task

    def _turn(self) -> None:
        """Read what there is, see who has ended, and act on it."""
        for key, _ in self._selector.select(_TICK):
            self._read(key.data, key.fd)
        now = time.monotonic()
        for place, task in enumerate(self._tasks):
            if task.code is None and (code := task.process.exit_code()) is not None:
                self._ended(place, task, code)
        if self._signals and not self._stopping:
            self._stop(f"{signal.Signals(self._signals[0]).name}: stopping all tasks")
        self._let_servers_end(now)
        for task in self._tasks:
            if task.code is None and task.view.ending:
                hurry = len(self._signals) > 1
                steps = ladder(self._grace, task.plan.is_server)
                task.process.step_down(now, [(0.0, signal.SIGKILL)] if hurry else steps)
        self._draw(now)

    def _ended(self, place: int, task: _Launched, code: int) -> None:
        """Handle the end of a process."""
        self._drain(task)
        task.view = replace(task.view, code=code)
        said = how_it_ended(code)
        if task.view.ending and code > 0 and 0 < task.spoke <= self._stopped:
            # It had failed before it was told to stop, but took longer to end than the one that
            # was noticed.
            task.view = replace(task.view, ending=False)
            self._failed.append(task)
            self._say(f"{task.plan.name}: {said}")
            return
        if task.view.ending or not code:
            self._say(f"{task.plan.name} {'stopped' if task.view.ending else said}")
            return
        done = task.view.restarts
        if done < self._restarts and not self._stopping:
            self._say(
                f"{task.plan.name}: {said}; starting it again ({done + 1} of {self._restarts})"
            )
            task.process.close()
            self._tasks[place] = self._started(task.plan, done + 1)
            return
        if sum(not each.code for each in self._tasks) >= self._least:
            self._say(f"{task.plan.name}: {said}; the others go on without it")
            return
        self._failed.append(task)
        self._stop(f"{task.plan.name}: {said}; stopping the others")

    def _say_why(self) -> None:
        """Say again, below the last lines of the others, which tasks failed."""
        for task in self._failed if not self._signals else ():
            said = f"{task.plan.name} failed: {how_it_ended(task.code or 0)}"
            self._say(f"{said}. It printed last: {task.last}" if task.last else said)

    def _let_servers_end(self, now: float) -> None:
        """Once all others have ended well, end parameter servers that do not end by themselves."""
        others = [t.code for t in self._tasks if not t.plan.is_server]
        if self._stopping or None in others:
            return
        if self._left is None:
            self._left = now
        elif now - self._left > _LEAVE:
            for task in self._tasks:
                if task.code is None and not task.view.ending:
                    task.view = replace(task.view, ending=True)
                    task.process.send_signal(signal.SIGTERM)

    def _stop(self, reason: str) -> None:
        if not self._stopping:
            self._stopping, self._stopped = True, time.monotonic()
            running = [task for task in self._tasks if task.code is None]
            self._say(reason)
            for task in running:
                task.view = replace(task.view, ending=True)

    # -- Output ------------------------------------------------------------------------------------

    def _read(self, task: _Launched, pipe: int) -> bool:
        """Read from a pipe; return whether there may be more."""
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(pipe)
            return False
        now = time.monotonic()
        if pipe == task.process.output:
            task.view = replace(task.view, heard=now)
            lines, task.printed = split_lines(task.printed, data)
            for line in lines:
                self._print(task.plan.name, line)
            task.last = next((line for line in reversed(lines) if line.strip()), task.last)
            task.spoke = now
            return True
        *lines, task.status = (task.status + data).split(b"\n")
        for line in lines:
            if (report := parse(line)) is not None:
                task.view = task.view.reported(report, now)
        return True

    def _drain(self, task: _Launched) -> None:
        """Read the last output of a process that has ended."""
        for pipe in (task.process.output, task.process.status):
            if pipe in self._selector.get_map():
                assert pipe is not None
                while self._read(task, pipe):
                    pass
                with contextlib.suppress(KeyError):  # _read has met the end of the pipe
                    self._selector.unregister(pipe)
        if task.printed:
            task.last = task.printed.rstrip(b"\r").decode(errors="replace")
            self._print(task.plan.name, task.last)
            task.printed = b""

    def _say(self, text: str) -> None:
        self._print("launch", text)

    def _print(self, name: str, line: str) -> None:
        if self._live is None:
            sys.stdout.write(f"[{name}] {line}\n")
            sys.stdout.flush()
            return
        names = [plan.name for plan in self._plans]
        style = _PALETTE[names.index(name) % len(_PALETTE)] if name in names else "bold"
        prefix = Text(f"[{name}] ".ljust(self._width + 3), style)
        self._live.console.print(prefix + Text.from_ansi(line), soft_wrap=True)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Keep one line for each task at the bottom, if this is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
        with live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def _draw(self, now: float, last: bool = False) -> None:
        if self._live is not None and (last or now - self._drawn > _REFRESH):
            self._drawn = now
            self._live.update(table([task.view for task in self._tasks], now), refresh=True)
