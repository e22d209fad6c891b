"""Start the processes of a cluster on this host, and end them. In: a command and an environment.
Out: a TaskProcess.

Processes are made by exec of a Python interpreter, never by a fork that goes on in this program.
Each has a process group of its own, so a Ctrl-C of the terminal reaches only this process, and
whatever a task starts ends with it. If this process dies, however it dies, the kernel kills its
tasks (server/tether.py). The kernel watches the thread that started them, so all are started by one
thread, which lives as long as its TaskStarter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace._src.core.config import child_environment

__all__ = ["LADDER", "TaskProcess", "TaskStarter", "stop_all"]

# Seconds after which a process that is to end gets a signal. SIGINT lets a program close its
# sessions and save; SIGTERM ends one that ignores it; nothing survives SIGKILL.
LADDER: tuple[tuple[float, int], ...] = (
    (0.0, signal.SIGINT),
    (5.0, signal.SIGTERM),
    (8.0, signal.SIGKILL),
)
_TETHER = os.fspath(Path(__file__).with_name("tether.py"))


class TaskProcess:
    """A process that runs a task. State: whether it has ended, and how.

    status: a file descriptor that its server's reports come from. output: one for what it prints,
    None if that goes where this process's own output goes.
    """

    def __init__(self, process: subprocess.Popen[bytes], status: int, output: int | None) -> None:
        self.pid = process.pid
        self.status = status
        self.output = output
        self._process = process
        self._stopping: float | None = None
        self._sent = 0

    def exit_code(self) -> int | None:
        """Return how the process ended: its exit code, or minus the signal that killed it; None if
        it runs. What is left of its process group is killed.
        """
        if self._process.returncode is None:
            # Not reaped before its group is killed: the number can't belong to others until then.
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self.pid, options) is None:
                return None
            self._signal(signal.SIGKILL)
            self._process.wait()
        return self._process.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process and to those that it has started."""
        if self.exit_code() is None:
            self._signal(number)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def step_down(self, now: float, ladder: Sequence[tuple[float, int]] = LADDER) -> None:
        """Send the signals of `ladder` that are due, counting from the first call."""
        if self._stopping is None:
            self._stopping = now
        while self._sent < len(ladder) and now - self._stopping >= ladder[self._sent][0]:
            self.send_signal(ladder[self._sent][1])
            self._sent += 1

    @property
    def is_stopping(self) -> bool:
        """Whether the process was asked to end."""
        return self._stopping is not None

    def close(self) -> None:
        """Kill the process if it runs, and close the pipes."""
        self.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self.status, self.output):
            if pipe is not None:
                os.close(pipe)
        self.status, self.output = -1, None


class TaskStarter:
    """Starts processes in one thread. They are killed when that ends: with `close`, or when nothing
    refers to this object any more.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "headrace starter")

    def start(
        self,
        arguments: Sequence[str],
        given: Mapping[str, str],
        defaults: Mapping[str, str],
        forward: bool,
    ) -> TaskProcess:
        """Start Python with these arguments.

        given, defaults: environment variables to set, and to set if they are not. forward: whether
        this process reads its output.
        """
        return self._thread.submit(_start, arguments, given, defaults, forward).result()

    def close(self) -> None:
        """End the thread, and with it the processes that still run."""
        self._thread.shutdown()


def _start(
    arguments: Sequence[str],
    given: Mapping[str, str],
    defaults: Mapping[str, str],
    forward: bool,
) -> TaskProcess:
    tether = [sys.executable, "-I", "-S", _TETHER, str(os.getpid())]
    status, report = os.pipe()
    try:
        process = subprocess.Popen(
            [*tether, sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if forward else None,
            stderr=subprocess.STDOUT if forward else None,
            bufsize=0,
            env=child_environment({**given, "HEADRACE_STATUS_FD": str(report)}, defaults),
            pass_fds=[report],
            process_group=0,
        )
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(report)
    output = None
    if process.stdout is not None:
        output = os.dup(process.stdout.fileno())
        process.stdout.close()
    return TaskProcess(process, status, output)


def stop_all(
    processes: Iterable[TaskProcess], ladder: Sequence[tuple[float, int]] = LADDER
) -> None:
    """End processes, and wait until they have ended."""
    running = list(processes)
    while running := [each for each in running if each.exit_code() is None]:
        now = time.monotonic()
        for each in running:
            each.step_down(now, ladder)
        time.sleep(0.02)
