"""headrace.cluster.local: a cluster of server processes on this host, from Python. In: how many
tasks. Out: a LocalCluster, which ends with its block.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any

from headrace._src.core import errors
from headrace._src.core.export import export
from headrace._src.core.proto import ServerDef
from headrace._src.devices.target import usable_cores
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.server.processes import TaskProcess, TaskStarter, stop_all
from headrace._src.server.running_cluster import RunningCluster
from headrace._src.transport.reserve import Reservation, reserve

__all__ = ["LocalCluster", "local"]

_START = 60.0  # seconds that a server may take to start
_LADDER = ((0.0, signal.SIGTERM), (3.0, signal.SIGKILL))


@export("cluster.LocalCluster")
class LocalCluster(RunningCluster):
    """Server processes on this host: a context manager, which stops them at its end. They also end
    when this process dies.

    spec: the ClusterSpec. targets: the targets of sessions, by job and task. target: that of the
    first worker. pids: the ids of the processes, by job and task.
    """

    def __init__(self, jobs: dict[str, int], config: Any = None) -> None:
        self._config = config
        self._starter = TaskStarter()
        self._tasks: dict[tuple[str, int], TaskProcess] = {}
        self._reserved: list[Reservation] = reserve(sum(jobs.values()))
        addresses = iter([each.address for each in self._reserved])
        self.spec = ClusterSpec({j: [next(addresses) for _ in range(n)] for j, n in jobs.items()})
        try:
            for job, count in jobs.items():
                for index in range(count):
                    self._tasks[job, index] = self._start(job, index)
            for job, index in self._tasks:
                self._await(job, index)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[str, list[int]]:
        """The process ids of the tasks of each job, in order."""
        jobs = self.spec.jobs
        return {job: [t.pid for (j, _), t in self._tasks.items() if j == job] for job in jobs}

    def kill(self, job: str, index: int, signal_number: int = signal.SIGKILL) -> None:
        """Kill a server without warning, as a failing host would, and wait until it is dead; or
        send another signal, such as SIGSTOP, and do not wait.
        """
        task = self._tasks[job, index]
        task.send_signal(signal_number)
        while signal_number == signal.SIGKILL and task.exit_code() is None:
            time.sleep(0.001)

    def restart(self, job: str, index: int) -> None:
        """Start a server again at its old address, after killing it if it still runs."""
        self._tasks[job, index].close()
        self._tasks[job, index] = self._start(job, index)
        self._await(job, index)

    def close(self) -> None:
        """Stop all servers; return when the processes have ended."""
        stop_all(self._tasks.values(), _LADDER)
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()
        self._starter.close()
        for each in self._reserved:
            each.close()

    def _start(self, job: str, index: int) -> TaskProcess:
        cluster = self.spec.as_cluster_def()
        made = ServerDef(cluster=cluster, job_name=job, task_index=index, protocol="grpc")
        if self._config is not None:
            made.default_session_config.CopyFrom(self._config)
        threads = max(1, usable_cores() // max(1, len(self._reserved)))
        return self._starter.start(
            ["-m", "headrace._src.server.serve", made.SerializeToString().hex()],
            {"HEADRACE_SERVERS_STAY": "1"},
            {"HEADRACE_NUM_THREADS": str(threads)},
            forward=False,
        )

    def _await(self, job: str, index: int) -> None:
        """Wait for the first report of a server."""
        task = self._tasks[job, index]
        ready, _, _ = select.select([task.status], [], [], _START)
        if not ready or not os.read(task.status, 4096):
            code = None
            with contextlib.suppress(OSError):
                code = task.exit_code()
            reason = "has not started" if not ready else f"ended at once (exit code {code})"
            message = f"the server of task {index} of job {job!r} {reason}"
            raise errors.UnavailableError(None, None, message)


@export("cluster.local")
def local(ps: int = 1, workers: int = 2, config: Any = None) -> LocalCluster:
    """Start the servers of a cluster on this host, each in a process of its own; return when they
    serve.

    ps, workers: how many tasks the jobs "ps" and "worker" have. config: a ConfigProto for the
    servers' devices. Each process gets its share of the cores, unless HEADRACE_NUM_THREADS is set.

        with headrace.cluster.local(ps=1, workers=2) as cluster:
            with tf.Session(cluster.target) as session:
                ...
    """
    if ps < 0 or workers < 1:
        raise ValueError(f"a cluster has at least one worker: ps={ps}, workers={workers}")
    return LocalCluster({"ps": ps, "worker": workers} if ps else {"worker": workers}, config)
