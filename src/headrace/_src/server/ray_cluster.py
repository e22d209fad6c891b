"""headrace.cluster.ray: a cluster of servers that Ray starts, places and restarts. In: how many
tasks, and what each needs. Out: a RayCluster, which ends with its block.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.proto import ServerDef
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.server.ray_tasks import RayRequest, RayTasks, TaskWork
from headrace._src.server.running_cluster import RunningCluster

__all__ = ["RayCluster", "ray"]

_log = logging.getLogger("headrace")
_TURN = 0.2  # seconds


@export("cluster.RayCluster")
class RayCluster(RunningCluster):
    """Servers in processes of Ray: a context manager, which ends them.

    spec: the ClusterSpec. targets: the targets of sessions, by job and task. target: that of the
    first worker. A task that Ray has started again keeps its place in all of them.
    """

    def __init__(self, jobs: Mapping[str, int], request: RayRequest, config: Any = None) -> None:
        names = [(job, index) for job, count in jobs.items() for index in range(count)]
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._tasks = RayTasks([f"{job} {index}" for job, index in names], request)
        try:
            addresses = self._tasks.addresses([f"{job} {index}" for job, index in names])
            found: dict[str, list[str]] = {job: [] for job in jobs}
            for (job, _), address in zip(names, addresses, strict=True):
                found[job].append(address)
            self.spec = ClusterSpec(found)
            for job, index in names:
                made = ServerDef(
                    cluster=self.spec.as_cluster_def(),
                    job_name=job,
                    task_index=index,
                    protocol="grpc",
                    default_session_config=config,
                )
                self._tasks.begin(f"{job} {index}", TaskWork("serve", (made.SerializeToString(),)))
            self._thread = threading.Thread(target=self._watch, name="headrace ray", daemon=True)
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def restart(self, job: str, index: int) -> None:
        """Kill a server as a failing host would; Ray starts it again."""
        self._tasks.restart(f"{job} {index}")

    def _watch(self) -> None:
        """Give tasks that Ray has started again their work."""
        while not self._over.is_set():
            for event in self._tasks.poll(_TURN):
                _log.warning("%s: %s %s", event.task, event.kind, event.reason)

    def close(self) -> None:
        """End all servers, and give their resources back to Ray."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._tasks.close()


@export("cluster.ray")
def ray(
    ps: int = 1,
    workers: int = 2,
    address: str | None = None,
    cpus: float = 1.0,
    resources: Mapping[str, float] | None = None,
    strategy: str = "SPREAD",
    config: Any = None,
) -> RayCluster:
    """Start the servers of a cluster on Ray, each in a process of its own; return when Ray has
    started them.

    ps, workers: how many tasks the jobs "ps" and "worker" have. address: that of the Ray cluster,
    "auto" for the one that runs on this host; None uses the one that this process is connected to,
    or starts one on this host. cpus, resources: what Ray reserves for each task. strategy: how Ray
    spreads them over hosts: "SPREAD", "PACK", "STRICT_SPREAD" or "STRICT_PACK". config: a
    ConfigProto for the servers' devices.

        with headrace.cluster.ray(ps=1, workers=2, address="auto") as cluster:
            with tf.Session(cluster.target) as session:
                ...
    """
    if ps < 0 or workers < 1:
        raise ValueError(f"a cluster has at least one worker: ps={ps}, workers={workers}")
    jobs = {"ps": ps, "worker": workers} if ps else {"worker": workers}
    environment = {"HEADRACE_SERVERS_STAY": "1"}
    request = RayRequest(address, cpus, dict(resources or {}), strategy, environment)
    return RayCluster(jobs, request, config)
