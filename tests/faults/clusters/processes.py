"""Tasks of a cluster as processes of their own, which tests start, watch, kill and start again.

Each process runs `training.py`. It reads commands from its stdin and ends with it, so it never
outlives the test. It prints events as lines of JSON, which threads of the test collect.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

PROGRAM = "tests.faults.clusters.training"
_FAULT = re.compile(r"headrace: fault (\S+) at (\S+)")


@dataclass
class Task:
    """A process. events: what it printed; errors: the lines of its stderr."""

    job: str
    index: int
    process: subprocess.Popen
    events: list[dict] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self):
        return self.process.pid

    @property
    def name(self):
        return f"{self.job}{self.index}"

    def of(self, kind):
        """The events of one kind."""
        return [e for e in list(self.events) if e["event"] == kind]

    def struck(self):
        """The faults that have happened: (fault, time)."""
        found = [_FAULT.search(line) for line in list(self.errors)]
        return [(m[1], float(m[2])) for m in found if m]

    def tell(self, command):
        with contextlib.suppress(OSError):  # it has just died
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """ps and workers, of which worker 0 is the chief; a context manager that ends them all."""

    def __init__(self, directory, ps=1, workers=2, options=None, **environment):
        ports = free_ports(ps + workers)
        self.spec = {
            "ps": [f"127.0.0.1:{p}" for p in ports[:ps]],
            "worker": [f"127.0.0.1:{p}" for p in ports[ps:]],
        }
        self.directory = directory
        self.options = {
            "save_steps": 20,
            "filters": True,
            "pause": 0.01,  # seconds between two steps
            "batches": 4000,  # room for the log of each worker
            **(options or {}),
        }
        self.mark = f"HEADRACE_TEST_MARK={secrets.token_hex(8)}"
        self.environment = environment
        self.tasks = {}  # the latest process of each task
        self.all = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for task in self.all:
            if task.process.poll() is None:
                task.process.kill()
            task.process.wait()
            task.process.stdin.close()
            for reader in task.readers:
                reader.join()
            task.process.stdout.close()
            task.process.stderr.close()

    def start(self, job, index, faults="", **options):
        """Start a task, or start it again."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_", "OMP_"))}
        name, value = self.mark.split("=")
        about = {
            "cluster": self.spec,
            "job": job,
            "index": index,
            "directory": str(self.directory),
            **self.options,
            **options,
        }
        if job == "worker":
            about["first"] = self.next_batch(index)
        environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join(p for p in [os.getcwd(), *sys.path] if p),
            "HEADRACE_FAULTS": faults,
            "HEADRACE_JIT": "always",
            "HEADRACE_NUM_THREADS": "1",
            name: value,
            **self.environment,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, json.dumps(about)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        task = Task(job, index, process)
        for read, stream in (
            (self._read_events, process.stdout),
            (self._read_errors, process.stderr),
        ):
            reader = threading.Thread(target=read, args=(task, stream), daemon=True)
            reader.start()
            task.readers.append(reader)
        self.tasks[job, index] = task
        self.all.append(task)
        return task

    def start_all(self):
        for job, addresses in self.spec.items():
            for index in range(len(addresses)):
                self.start(job, index)
        return self

    def _read_events(self, task, stream):
        for line in stream:
            if line.startswith("{"):
                task.events.append(json.loads(line))

    def _read_errors(self, task, stream):
        for line in stream:
            task.errors.append(line.rstrip())

    def next_batch(self, index):
        """The first batch that a worker has not begun."""
        begun = [
            e["batch"]
            for task in self.all
            if (task.job, task.index) == ("worker", index)
            for e in list(task.events)
            if e["event"] in ("begun", "applied")
        ]
        return max(begun, default=-1) + 1

    def events(self, kind=None):
        """All events of all processes that there were, with their tasks, by time."""
        found = [(e["t"], task, e) for task in self.all for e in list(task.events)]
        return sorted(
            [f for f in found if kind is None or f[2]["event"] == kind], key=lambda f: f[0]
        )

    def kill(self, job, index, how=signal.SIGKILL):
        """Send a signal to a task; returns the time before it."""
        task = self.tasks[job, index]
        before = time.monotonic()
        os.kill(task.pid, how)
        if how == signal.SIGKILL:
            task.process.wait()
        return before

    def wait(self, condition, what, limit=120.0):
        """Wait until a condition holds; returns its value."""
        until = time.monotonic() + limit
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > until:
                raise AssertionError(f"{what}: not within {limit:g} s\n{self.report()}")
            time.sleep(0.005)

    def wait_applied(self, count=5, since=None, indices=None, limit=120.0):
        """Wait until these workers have each applied `count` updates since a time."""
        since = time.monotonic() if since is None else since
        wanted = range(len(self.spec["worker"])) if indices is None else indices

        def enough():
            for index in wanted:
                latest = self.tasks["worker", index].of("applied")[-count:]
                if len(latest) < count or latest[0]["t"] <= since:
                    return False
            return True

        self.wait(enough, f"{count} updates of the workers {list(wanted)}", limit)

    def report(self):
        """What the processes did last, for messages."""
        lines = []
        for task in self.all:
            lines.append(f"-- {task.name} pid {task.pid} status {task.process.poll()}")
            lines += [f"   {e}" for e in task.events[-4:]]
            lines += [f"   {e}" for e in task.errors[-12:]]
        return "\n".join(lines)

    def left_over(self):
        """The processes that carry this cluster's mark and are still there."""
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if self.mark.encode() in file.read():
                    found.append(int(name))
        return found


def segments(pid):
    """How many files of shared memory a process has open."""
    count = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            count += "memfd:" in os.readlink(f"/proc/{pid}/fd/{fd}")
    return count
