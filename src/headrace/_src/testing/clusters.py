"""Clusters in the process of a test."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.server.server import Server
from headrace._src.transport.reserve import reserve

__all__ = ["create_local_cluster"]


@export("test.create_local_cluster")
def create_local_cluster(
    num_workers: int,
    num_ps: int,
    protocol: str = "grpc",
    worker_config: Any = None,
    ps_config: Any = None,
) -> tuple[list[Server], list[Server]]:
    """Start servers of the jobs "worker" and "ps" in this process; return both lists.

    worker_config, ps_config: the ConfigProtos of the servers. Each server has its own devices and
    variables. For servers in processes of their own, see `headrace.cluster.local`.
    """
    held = reserve(num_workers + num_ps)
    try:
        found = [each.address for each in held]
        cluster = {"worker": found[:num_workers], "ps": found[num_workers:]}
        workers = [
            Server(cluster, "worker", i, protocol, worker_config) for i in range(num_workers)
        ]
        return workers, [Server(cluster, "ps", i, protocol, ps_config) for i in range(num_ps)]
    finally:
        for each in held:
            each.close()
