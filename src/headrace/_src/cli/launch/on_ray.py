"""Run the tasks of a launch on Ray. In: a script, numbers of tasks, what each needs. Out: what the
tasks print, one line for each task on a terminal, and an exit code.

Ray starts the processes, and starts them again when they or their hosts die; it also passes on what
they print, each line with the task's name. A script that fails is another matter: it is run again
`--restarts` times, in a new process.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.live import Live

from headrace._src.cli.launch.plan import PlannedTask
from headrace._src.cli.launch.signals import caught_signals
from headrace._src.cli.launch.view import TaskView, how_it_ended, table
from headrace._src.server.ray_tasks import Event, RayTasks, TaskWork
from headrace._src.server.status import StatusReport

__all__ = ["RayLaunch", "say"]

_TURN = 0.25  # seconds
_LEAVE = 5.0  # seconds that parameter servers have to end by themselves after the others


class RayLaunch:
    """Tasks of a launch on Ray. State: what is known of each task, the code of the first that
    failed, and when the tasks were asked to end.

    restarts: how often a script that fails is run again. grace: seconds that tasks have to end.
    """

    def __init__(
        self,
        tasks: RayTasks,
        plans: Sequence[PlannedTask],
        restarts: int = 0,
        grace: float = 10.0,
        console: Console | None = None,
    ) -> None:
        self._tasks = tasks
        self._plans = {plan.name: plan for plan in plans}
        self._restarts = restarts
        self._grace = grace
        self._console = console or Console(highlight=False, soft_wrap=True)
        now = time.monotonic()
        self._views = {name: TaskView(name, now) for name in self._plans}
        self._failures = dict.fromkeys(self._plans, 0)
        self._first: int | None = None
        self._stopping: float | None = None
        self._left: float | None = None  # when the last task that is no server ended

    def run(self) -> int:
        """Run all tasks to their end; return the exit code: that of the first that failed."""
        for name, plan in self._plans.items():
            work = TaskWork("run", (plan.arguments, plan.environment["TF_CONFIG"]))
            self._tasks.begin(name, work)
            say(f"{name} started")
        live = Live(console=self._console, auto_refresh=False)  # which prints above its lines
        with caught_signals() as signals:
            if not self._console.is_terminal:
                self._follow(signals, None)
            else:
                with live:
                    self._follow(signals, live)
        if signals:
            return 128 + signals[0]
        return self._first or 0

    def _follow(self, signals: Sequence[int], live: Live | None) -> None:
        """Handle events until all tasks have ended."""
        while any(view.code is None for view in self._views.values()):
            for event in self._tasks.poll(_TURN):
                self._handle(event)
            now = time.monotonic()
            self._count(self._tasks.steps(), now)
            if signals and self._stopping is None:
                self._stop(f"{signal.Signals(signals[0]).name}: stopping all tasks", now)
            self._let_servers_end(now)
            overdue = self._stopping is not None and now - self._stopping > self._grace
            if overdue or len(signals) > 1:
                for name, view in self._views.items():
                    if view.code is None:
                        self._tasks.kill(name)
                        self._views[name] = replace(view, code=-signal.SIGKILL)
            if live is not None:
                live.update(table(list(self._views.values()), now), refresh=True)

    def _handle(self, event: Event) -> None:
        view = self._views[event.task]
        if event.kind != "ended":
            restarts = view.restarts + (event.kind == "restarted")
            self._views[event.task] = replace(view, restarts=restarts)
            said = "is lost; Ray starts it again" if event.kind == "lost" else "started again"
            say(f"{event.task} {said}: {event.reason}")
            return
        code = event.code or 0
        if code and self._stopping is None and self._failures[event.task] < self._restarts:
            self._failures[event.task] += 1
            count = self._failures[event.task]
            say(
                f"{event.task}: {how_it_ended(code)}; starting it again ({count} of "
                f"{self._restarts})"
            )
            self._tasks.restart(event.task)
            return
        self._views[event.task] = replace(view, code=code)
        say(f"{event.task} {'stopped' if view.ending else how_it_ended(code)}")
        if code and self._stopping is None:
            self._first = code
            self._stop(f"{event.task} has failed; stopping the others", time.monotonic())

    def _count(self, steps: Mapping[str, int], now: float) -> None:
        """Note how many steps have ended on the tasks that run."""
        for name, count in steps.items():
            if self._views[name].code is None:
                self._views[name] = self._views[name].reported(StatusReport(name, count), now)

    def _let_servers_end(self, now: float) -> None:
        """Once all others have ended well, end parameter servers that do not end by themselves."""
        others = [self._views[name].code for name, p in self._plans.items() if not p.is_server]
        if self._stopping is not None or None in others:
            return
        self._left = self._left or now
        if now - self._left > _LEAVE:
            for name, view in self._views.items():
                if view.code is None:
                    self._tasks.kill(name)
                    self._views[name] = replace(view, code=0, ending=True)

    def _stop(self, reason: str, now: float) -> None:
        say(reason)
        self._stopping = now
        self._views = {name: replace(view, ending=True) for name, view in self._views.items()}
        self._tasks.end()


def say(text: str) -> None:
    """Tell users something about the launch."""
    sys.stdout.write(f"[launch] {text}\n")
    sys.stdout.flush()
