"""Report what a step would take with many workers. In: its costs, a cluster and ways to train. Out:
a table, a sentence on what limits each way, and the same as plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace._src.cli.place.placed_step import StepCosts
from headrace._src.cli.place.report import bytes_text, seconds_text, table_of
from headrace._src.devices.device import LinkCost
from headrace._src.place.replicas import (
    ReplicaCluster,
    ReplicaStep,
    Scaling,
    Way,
    replica_step,
    simulate_replicas,
)

__all__ = ["ScalingReport", "worker_counts"]

_TITLES = {
    Way.ASYNCHRONOUS: "asynchronous",
    Way.SYNCHRONOUS: "synchronous",
    Way.ALL_REDUCE: "all-reduce",
}


def worker_counts(most: int) -> list[int]:
    """Return the numbers of workers to report: 1, 2, 4, ... and the largest."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts if most == 1 else [*counts, most]


@dataclass(frozen=True)
class ScalingReport:
    """Predictions for numbers of workers, in each way to train. The rates count the steps that one
    worker makes: n workers that train synchronously make n steps together.
    """

    step: StepCosts
    replica: ReplicaStep
    servers: int
    network: LinkCost
    backups: int
    found: dict[Way, dict[int, Scaling]]

    @staticmethod
    def of(
        step: StepCosts,
        most: int,
        servers: int,
        network: LinkCost,
        backups: int = 0,
        slow: float = 0.0,
        by: float = 1.0,
    ) -> ScalingReport:
        """Simulate a step with up to `most` workers."""
        replica = replica_step(step.graph, slow=slow, by=by)
        found: dict[Way, dict[int, Scaling]] = {}
        for way in Way:
            found[way] = {}
            for count in worker_counts(most):
                spare = min(backups, count - 1) if way is Way.SYNCHRONOUS else 0
                cluster = ReplicaCluster(count, servers, network)
                found[way][count] = simulate_replicas(replica, cluster, way, spare)
        return ScalingReport(step, replica, servers, network, backups, found)

    def rate(self, way: Way, count: int) -> float:
        """Return how many steps of single workers end per second."""
        rate = self.found[way][count].rate
        if way is Way.ASYNCHRONOUS:
            return rate
        return rate * (count - (min(self.backups, count - 1) if way is Way.SYNCHRONOUS else 0))

    def parts(self) -> Iterator[Any]:
        """Yield what is printed."""
        pulled, pushed = (bytes_text(round(n)) for n in (self.replica.pulled, self.replica.pushed))
        yield f"step {self.step.title}: a worker reads {pulled} and sends {pushed}"
        yield f"costs: {self.step.origin}"
        yield from (f"note: {note}" for note in self.step.notes)
        rate = bytes_text(round(self.network.bytes_per_second))
        servers = "1 parameter server" if self.servers == 1 else f"{self.servers} parameter servers"
        spare = f"; {self.backups} of the synchronous workers are backups" if self.backups else ""
        latency = seconds_text(self.network.seconds)
        yield f"{servers}; each task has a host; {latency} and {rate}/s between them{spare}"
        yield ""
        titles = [t for name in _TITLES.values() for t in (name, "steps/s", "gain")]
        table = table_of("workers", *titles)
        for count in self.found[Way.SYNCHRONOUS]:
            cells = []
            for way in Way:
                rate_here, alone = self.rate(way, count), self.rate(way, 1)
                step = seconds_text(self.found[way][count].median)
                cells += [step, f"{rate_here:.3g}", f"{rate_here / alone:.1f}x"]
            table.add_row(f"{count:,}", *cells)
        yield table
        yield ""
        most = max(self.found[Way.SYNCHRONOUS])
        for way, title in _TITLES.items():
            last = self.found[way][most]
            busy = last.busy[last.bottleneck]
            yield f"With {most:,} workers, {title}: {last.bottleneck} are busy for {busy:.0%}."

    def content(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "step": self.step.title,
            "costs": self.step.origin,
            "pulled": self.replica.pulled,
            "pushed": self.replica.pushed,
            "servers": self.servers,
            "backups": self.backups,
            "ways": {
                way.value: {
                    count: {
                        "seconds": each.median,
                        "rate": self.rate(way, count),
                        "busy": each.busy,
                    }
                    for count, each in counts.items()
                }
                for way, counts in self.found.items()
            },
        }
