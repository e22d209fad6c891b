"""tf.train.Server: one task of a cluster in this process."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core.config import settings
from headrace._src.core.export import export
from headrace._src.core.proto import ServerDef
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.server.status import start_reporting
from headrace._src.server.task import Task
from headrace._src.transport.moves import set_moves

__all__ = ["Server", "finished_steps", "learn_moves", "stop_all"]

_FAREWELL = 2.0  # seconds for the main thread of a fenced process
_running: set[Task] = set()  # a server serves until it is stopped, or the process ends


@export("train.Server")
class Server:
    """A task of a cluster, which sessions of any process can run steps on.

    server_or_cluster_def: a ServerDef, or the cluster: a ClusterSpec, a ClusterDef or a dictionary
    of jobs. job_name, task_index: which of its tasks this is; the only one, if there is no choice.
    protocol: "grpc" or None. config: the ConfigProto of the task's devices. start: whether to start
    at once.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        self._server_def = made = _server_def(
            server_or_cluster_def, job_name, task_index, protocol, config
        )
        spec = ClusterSpec(made.cluster)
        self._task = Task(spec, made.job_name, made.task_index, made.default_session_config)
        self._address = self._task.listen(spec.task_address(made.job_name, made.task_index))
        self._task.on_fenced = _exit_soon
        self._started = False
        self._end_reports: Callable[[], None] | None = None
        _running.add(self._task)
        if start:
            self.start()

    def start(self) -> None:
        """Begin to serve; a server serves once it is started."""
        if not self._started:
            self._started = True
            self._task.start()
            self._end_reports = start_reporting(self._task.name, self._task.counts)

    def join(self) -> None:
        """Block until the server ends.

        It ends when every task that has opened a session here has ended by itself, never because a
        connection broke. With HEADRACE_SERVERS_STAY=1 it stays, as TensorFlow's servers do.
        """
        self._task.join(settings().servers_stay)

    def stop(self) -> None:
        """End the server, and the steps that run on it."""
        self._task.stop()
        _running.discard(self._task)
        if self._end_reports is not None:
            self._end_reports()

    @property
    def server_def(self) -> Any:
        """The ServerDef of this server."""
        return self._server_def

    @property
    def target(self) -> bytes:
        """The target of sessions that use this server as their master."""
        return f"grpc://{self._address}".encode()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """Return a server of a cluster of its own, with one task."""
        cluster = {"local": ["127.0.0.1:0"]}
        return Server(cluster, job_name="local", task_index=0, config=config, start=start)


def _server_def(
    given: Any, job: str | None, index: int | None, protocol: str | None, config: Any
) -> Any:
    """Return the ServerDef that the arguments of a Server describe."""
    if isinstance(given, ServerDef):
        made = ServerDef()
        made.CopyFrom(given)
    else:
        made = ServerDef(cluster=ClusterSpec(given).as_cluster_def())
    if job is not None:
        made.job_name = job
    if index is not None:
        made.task_index = index
    if protocol is not None:
        made.protocol = protocol
    if config is not None:
        made.default_session_config.CopyFrom(config)
    jobs = {each.name: each for each in made.cluster.job}
    if not made.job_name:
        if len(jobs) != 1:
            raise ValueError(
                "Must specify an explicit `job_name` when the cluster has more than one job."
            )
        made.job_name = next(iter(jobs))
    if made.job_name not in jobs:
        raise ValueError(f"The job {made.job_name!r} is not in the cluster: {sorted(jobs)}")
    if index is None and not isinstance(given, ServerDef) and len(jobs[made.job_name].tasks) > 1:
        raise ValueError(
            "Must specify an explicit `task_index` when the job has more than one task."
        )
    made.protocol = made.protocol or "grpc"
    if made.protocol not in ("grpc", "headrace"):
        raise ValueError(f"there is one protocol, called 'grpc', and not {made.protocol!r}")
    return made


def _exit_soon() -> None:
    """End this process: another one has taken its task over, and has its place in the cluster. Its
    main thread may do so first: `Server.join` raises an AbortedError.
    """
    time.sleep(_FAREWELL)
    os._exit(os.EX_TEMPFAIL)


def stop_all(clean: bool) -> None:
    """End the servers of this process. clean: whether it ends by itself; otherwise it counts as
    lost, and the other tasks expect it to be started again.
    """
    for task in list(_running):
        task.stop(clean=clean)
    _running.clear()


def learn_moves(moves: Mapping[str, str]) -> None:
    """Learn where tasks are now that were started again elsewhere (transport/moves.py)."""
    new = set_moves(moves)
    for task in list(_running):
        task.leave(new)


def finished_steps() -> int:
    """Return how many steps have ended on the servers of this process."""
    return sum(task.finished for task in list(_running))


atexit.register(lambda: stop_all(clean=getattr(sys, "last_value", None) is None))
