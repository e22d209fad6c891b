"""Simulate data-parallel training. In: what a step of one worker takes, a cluster, a way to train.
Out: the seconds of each step, and how busy processors and network ports are.

Each worker repeats: read the parameters from all parameter servers, compute, send the gradients to
all of them. A processor does one thing at a time on each of its cores, a port carries one transfer
at a time in each direction, and both serve in the order of arrival. Everything is a pure function
of its arguments; random times come from a seed.

Ways to train (`Way`):
- asynchronous: workers do not wait for each other;
- synchronous: as tf.train.SyncReplicasOptimizer (OSDI'16 §4.4). An update takes the first
  `workers - backups` gradients of the current step and adds a token for every worker. A worker that
  has sent its gradients takes the oldest token, or waits for one, and computes the next batch for
  the token's step. Gradients of an earlier step are dropped: those of a worker that was late, and
  those of a worker that took a token which a late one had left behind;
- all-reduce: there are no parameter servers; workers exchange gradients in a ring.
"""

from __future__ import annotations

import enum
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from headrace._src.devices.device import LinkCost
from headrace._src.place.cost_graph import CostGraph

__all__ = [
    "TEN_GIGABIT",
    "ReplicaCluster",
    "ReplicaStep",
    "Scaling",
    "Way",
    "replica_step",
    "simulate_replicas",
]

TEN_GIGABIT = LinkCost(50e-6, 1.25e9)  # Ethernet
_MESSAGES = 50_000  # of one step of all workers; with more, servers are simulated in bundles


class Way(enum.Enum):
    """How replicas are kept in step."""

    ASYNCHRONOUS = "async"
    SYNCHRONOUS = "sync"
    ALL_REDUCE = "allreduce"


@dataclass(frozen=True)
class ReplicaStep:
    """A step of one worker.

    seconds: what the worker computes; several values are drawn from at random. A sequence of such
    sequences: one for each worker. pulled, pushed: bytes that it reads from all parameter servers
    together, and sends to them. overhead: processor time of the worker for a step besides that.
    request, per_byte: processor time of a parameter server for each request, and for each byte that
    it sends or applies. update: seconds from the last gradient of a synchronous update to its
    tokens.
    """

    seconds: Sequence[float] | Sequence[Sequence[float]]
    pulled: float = 0.0
    pushed: float = 0.0
    overhead: float = 0.0
    request: float = 0.0
    per_byte: float = 0.0
    update: float = 0.0

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ValueError("a step takes at least 0 seconds, by at least one measurement")
        for times in self.of_workers(1):
            if not times or min(times) < 0:
                raise ValueError("a step takes at least 0 seconds, by at least one measurement")

    def of_workers(self, count: int) -> list[Sequence[float]]:
        """Return the seconds that each worker draws from."""
        if isinstance(self.seconds[0], Sequence):
            return list(cast("Sequence[Sequence[float]]", self.seconds))
        return [cast("Sequence[float]", self.seconds)] * count


@dataclass(frozen=True)
class ReplicaCluster:
    """Workers and parameter servers, and the network between them.

    cores: of one host that all of them share; None: each has a host with a core and a port of its
    own. network: the cost of a message between two of them; None: a step's seconds were measured
    with its messages, and nothing else takes time.
    """

    workers: int
    servers: int = 1
    network: LinkCost | None = TEN_GIGABIT
    cores: int | None = None

    def __post_init__(self) -> None:
        if self.workers < 1 or self.servers < 0:
            raise ValueError(f"{self.workers} workers and {self.servers} parameter servers")


@dataclass(frozen=True)
class Scaling:
    """What training on a cluster would be like.

    steps: the seconds of each step; of an asynchronous one, from its worker's last one. rate: steps
    of all workers per second; synchronous workers make one together. busy: shares of time, by kinds
    of resource; of the busiest one of its kind. dropped: the share of batches computed in vain.
    """

    steps: tuple[float, ...]
    rate: float
    busy: dict[str, float]
    dropped: float = 0.0

    @property
    def median(self) -> float:
        """The median of the steps' seconds."""
        return median(self.steps)

    @property
    def bottleneck(self) -> str:
        """The kind of the busiest resource."""
        return max(self.busy, key=lambda kind: self.busy[kind])


def replica_step(
    graph: CostGraph, type: str = "CPU", slow: float = 0.0, by: float = 1.0
) -> ReplicaStep:
    """Return the step of one worker whose variables, with what updates them, are on parameter
    servers, and all else on the worker (tf.train.replica_device_setter).

    slow, by: the probability that a step is slow, and how many times as long it takes then.
    """
    stateful = {item.group for item in graph.items if item.state}
    kept = [item.group in stateful for item in graph.items]
    there = math.fsum(item.seconds[type] for item, own in zip(graph.items, kept) if own)
    here = math.fsum(item.seconds[type] for item, own in zip(graph.items, kept) if not own)
    pulled = pushed = 0
    for output in graph.outputs:
        from_server = kept[output.producer]
        if from_server and not all(kept[reader] for reader in output.readers):
            pulled += output.size
        if not from_server and any(kept[reader] for reader in output.readers):
            pushed += output.size
    moved = pulled + pushed
    slowed = round(100 * slow)
    seconds = [here] * (100 - slowed) + [here * by] * slowed
    return ReplicaStep(seconds, pulled, pushed, per_byte=there / moved if moved else 0.0)


def simulate_replicas(
    step: ReplicaStep,
    cluster: ReplicaCluster,
    way: Way = Way.ASYNCHRONOUS,
    backups: int = 0,
    steps: int = 30,
    seed: int = 1,
) -> Scaling:
    """Simulate `steps` steps of each worker; the first fifth of them, when queues are empty, does
    not count.

    backups: how many gradients a synchronous update does not wait for.
    """
    if not 0 <= backups < cluster.workers:
        raise ValueError(f"{backups} of {cluster.workers} workers can't all be backups")
    if backups and way is not Way.SYNCHRONOUS:
        raise ValueError("only synchronous training has backup workers")
    if len(step.of_workers(cluster.workers)) != cluster.workers:
        raise ValueError(f"{len(step.seconds)} lists of seconds for {cluster.workers} workers")
    if way is Way.ALL_REDUCE:
        return _ring(step, cluster, steps, random.Random(seed))
    if not cluster.servers:
        raise ValueError("without parameter servers, replicas exchange gradients by all-reduce")
    return _Replicas(step, cluster, way, backups, steps, seed).run()


def _ring(step: ReplicaStep, cluster: ReplicaCluster, steps: int, draw: random.Random) -> Scaling:
    """All workers compute, then reduce: 2 (n - 1) messages of 1/n of the gradients each."""
    n, times = cluster.workers, step.of_workers(cluster.workers)
    reduce = 0.0
    if n > 1 and cluster.network is not None:
        reduce = 2 * (n - 1) * cluster.network.cost(round(step.pushed / n))
    share = 1.0 if cluster.cores is None else max(1.0, n / cluster.cores)
    made = [max(draw.choice(own) for own in times) * share for _ in range(steps)]
    took = [seconds + step.overhead + reduce for seconds in made]
    total = math.fsum(took)
    busy = {"workers' processors": math.fsum(made) / total, "network": steps * reduce / total}
    return Scaling(tuple(took), steps / total, busy)


class _Resource:
    """Something that serves requests in the order of arrival, `slots` at a time."""

    def __init__(self, slots: int = 1) -> None:
        self._free = [0.0] * slots
        self._slots = slots
        self.busy = 0.0

    def take(self, now: float, seconds: float) -> float:
        """Serve a request that comes at `now`; return when it is done."""
        start = max(now, self._free[0])
        heapq.heapreplace(self._free, start + seconds)
        self.busy += seconds / self._slots
        return start + seconds


class _Host:
    """A task's processor, and the two directions of its port."""

    def __init__(self, processor: _Resource, has_port: bool, is_server: bool) -> None:
        self.processor = processor
        self.is_server = is_server
        self.thread = _Resource()  # a task's own work is done one after the other
        self.sends = _Resource() if has_port else None
        self.receives = _Resource() if has_port else None

    def work(self, now: float, seconds: float) -> float:
        """Compute; return when it is done."""
        if self.processor is self.thread:
            return self.thread.take(now, seconds)
        start = max(now, self.thread._free[0])
        end = self.processor.take(start, seconds)
        self.thread.take(end - seconds, seconds)
        return end


class _Replicas:
    """A simulation. State: what happens when, the hosts, and for synchronous training the update
    that is gathered, tokens (a step, and when the token is there) and the workers that wait for
    one.
    """

    def __init__(
        self,
        step: ReplicaStep,
        cluster: ReplicaCluster,
        way: Way,
        backups: int,
        steps: int,
        seed: int,
    ) -> None:
        self._step, self._cluster, self._way = step, cluster, way
        self._seconds = step.of_workers(cluster.workers)
        self._network = cluster.network or LinkCost(0.0, math.inf)
        self._needed = cluster.workers - backups
        self._count = steps
        self._draw = random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._order = 0
        shared = None if cluster.cores is None else _Resource(cluster.cores)

        def host(is_server: bool = False) -> _Host:
            made = _Host(shared or _Resource(), shared is None, is_server)
            if shared is None:
                made.thread = made.processor
            return made

        # All servers have the same work, so a few can stand for many: each for as many as a bundle
        # has, which work side by side.
        simulated = max(1, min(cluster.servers, _MESSAGES // cluster.workers))
        self._bundle = cluster.servers / simulated
        self._workers = [host() for _ in range(cluster.workers)]
        self._servers = [host(is_server=True) for _ in range(simulated)]
        self._shared = shared
        self._version = 0  # of the parameters
        self._gradients = 0  # of this version
        self._tokens: deque[tuple[int, float]] = deque()
        self._waiting: deque[int] = deque()
        self._batches = self._dropped = 0  # that ended, and in vain, in the steps that count
        self._began = [0.0] * cluster.workers
        self._left = [steps] * cluster.workers
        self._ended: list[tuple[float, float]] = []  # when each step ended, and its seconds
        self._last = 0.0

    def run(self) -> Scaling:
        for worker in range(len(self._workers)):
            self._at(0.0, self._begin, worker, 0)
        now = 0.0
        while self._events and not self._is_over():
            now, _, call, arguments = heapq.heappop(self._events)
            call(now, *arguments)
        start = len(self._ended) // 5
        since = self._ended[start - 1][0] if start else 0.0
        kept = self._ended[start:]
        rate = len(kept) / max(kept[-1][0] - since, 1e-12)
        took = tuple(seconds for _, seconds in kept)
        return Scaling(took, rate, self._busy(now), self._dropped / max(self._batches, 1))

    def _is_over(self) -> bool:
        return self._way is Way.SYNCHRONOUS and len(self._ended) >= self._count

    def _busy(self, now: float) -> dict[str, float]:
        whole = max(now, 1e-12)

        def most(resources: list[_Resource]) -> float:
            return min(1.0, max(each.busy for each in resources) / whole)

        if self._shared is not None:
            tasks = [each.thread for each in self._servers]
            return {"the host's cores": most([self._shared]), "parameter servers": most(tasks)}
        ports = [p for h in self._servers for p in (h.sends, h.receives) if p is not None]
        return {
            "workers' processors": most([host.processor for host in self._workers]),
            "parameter servers' processors": most([host.processor for host in self._servers]),
            "parameter servers' ports": most(ports),
        }

    def _at(self, when: float, call: Callable[..., Any], *arguments: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, call, arguments))

    # -- One worker --------------------------------------------------------------------------------

    def _begin(self, now: float, worker: int, version: int) -> None:
        """Ask all servers for the parameters. version: for which the worker computes a batch."""
        self._began[worker] = now
        if self._cluster.network is None:
            self._pulled(now, worker, [1], version)
            return
        missing = [len(self._servers)]
        for server in range(len(self._servers)):
            self._at(now + self._network.seconds, self._serve, server, worker, missing, version)

    def _serve(
        self, now: float, server: int, worker: int, missing: list[int], version: int
    ) -> None:
        size = self._step.pulled / len(self._servers)
        host = self._servers[server]
        ready = host.work(now, self._server_work(size))
        self._at(
            ready,
            self._pass_on,
            host,
            self._workers[worker],
            size,
            self._pulled,
            (worker, missing, version),
        )

    def _server_work(self, size: float) -> float:
        """Return the processor time of a server for a request of so many bytes."""
        return self._step.request + size / self._bundle * self._step.per_byte

    def _pass_on(
        self,
        now: float,
        source: _Host,
        target: _Host,
        size: float,
        then: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> None:
        """Send bytes from one host to another; both ports are occupied, as they become free."""
        network = self._network
        seconds = size / network.bytes_per_second
        end = now + seconds
        if source.sends is not None and target.receives is not None:
            out, into = (seconds / self._ports(host) for host in (source, target))
            end = source.sends.take(now, out)
            end = max(end, target.receives.take(end - out, into))
        self._at(end + network.seconds, then, *arguments)

    def _ports(self, host: _Host) -> float:
        """Return how many ports a host stands for."""
        return self._bundle if host.is_server else 1.0

    def _pulled(self, now: float, worker: int, missing: list[int], version: int) -> None:
        missing[0] -= 1
        if missing[0]:
            return
        own = self._seconds[worker]
        seconds = own[int(self._draw.random() * len(own))] + self._step.overhead
        ended = self._workers[worker].work(now, seconds)
        then = self._done if self._cluster.network is None else self._push
        self._at(ended, then, worker, version)

    def _push(self, now: float, worker: int, version: int) -> None:
        size = self._step.pushed / len(self._servers)
        missing = [len(self._servers)]
        for server in self._servers:
            self._pass_on(
                now,
                self._workers[worker],
                server,
                size,
                self._apply,
                (server, worker, missing, version),
            )

    def _apply(
        self, now: float, server: _Host, worker: int, missing: list[int], version: int
    ) -> None:
        size = self._step.pushed / len(self._servers)
        late = self._way is Way.SYNCHRONOUS and version != self._version
        work = self._server_work(0.0 if late else size)
        self._at(server.work(now, work), self._applied, worker, missing, version)

    def _applied(self, now: float, worker: int, missing: list[int], version: int) -> None:
        missing[0] -= 1
        if not missing[0]:
            self._at(now + self._network.seconds, self._done, worker, version)

    def _done(self, now: float, worker: int, version: int) -> None:
        """A worker has ended its step."""
        if self._way is Way.ASYNCHRONOUS:
            self._ended.append((now, now - self._began[worker]))
            self._left[worker] -= 1
            if self._left[worker]:
                self._begin(now, worker, self._version)
            return
        late = version != self._version
        if len(self._ended) >= self._count // 5:
            self._batches += 1
            self._dropped += late
        self._gradients += not late
        if self._gradients == self._needed:
            self._version, self._gradients = self._version + 1, 0
            self._ended.append((now, now - self._last))
            self._last = now
            ready = now + self._step.update
            self._tokens.extend([(self._version, ready)] * len(self._workers))
        self._waiting.append(worker)
        while self._waiting and self._tokens:
            version, ready = self._tokens.popleft()
            taker = self._waiting.popleft()
            if ready > now:
                self._at(ready, self._begin, taker, version)
            else:
                self._begin(now, taker, version)
