"""Measured costs of a graph. In: traces of steps, and times of transfers. Out: costs that replace
estimates, a table of them, and a file that keeps them.

A file is JSON: `format`, `version`, `graph` (the fingerprint of the graph, or ""), `nodes` (by type
of device and name: steps, mean and least seconds), `links` (by "source -> target": seconds per
tensor and bytes per second).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.errors import DataLossError, InvalidArgumentError
from headrace._src.devices.device import LinkCost
from headrace._src.place.cost_graph import CostGraph, CostItem

__all__ = ["Measured", "MeasuredCosts", "calibrate", "fingerprint", "fit_link"]

_FORMAT, _VERSION = "headrace costs", 1


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of a node or cluster in some steps."""

    steps: int
    mean: float
    least: float

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.least <= self.mean * (1 + 1e-9) < math.inf:
            raise ValueError(f"{self} can't be the times of a node")

    def joined(self, seconds: float) -> Measured:
        """Return the times with those of one more step."""
        steps = self.steps + 1
        mean = self.mean + (seconds - self.mean) / steps
        return Measured(steps, mean, min(self.least, seconds))


@dataclass(frozen=True)
class MeasuredCosts:
    """The times of a graph's nodes and clusters, by type of device and name, and measured links by
    the names of devices (or ports).
    """

    nodes: Mapping[tuple[str, str], Measured] = field(default_factory=dict)
    links: Mapping[tuple[str, str], LinkCost] = field(default_factory=dict)
    graph: str = ""

    def with_times(self, times: Iterable[tuple[str, str, float]]) -> MeasuredCosts:
        """Return the costs with one more step: (type of device, name, seconds) of what ran. A name
        that ran several times, in a loop, counts with the sum.
        """
        sums: dict[tuple[str, str], float] = {}
        for device_type, name, seconds in times:
            sums[device_type, name] = sums.get((device_type, name), 0.0) + seconds
        nodes = dict(self.nodes)
        for key, seconds in sums.items():
            before = nodes.get(key)
            nodes[key] = Measured(1, seconds, seconds) if before is None else before.joined(seconds)
        return replace(self, nodes=nodes)

    def with_step(self, step_stats: Any) -> MeasuredCosts:
        """Return the costs with the times in a StepStats, as `RunMetadata.step_stats` of a run with
        FULL_TRACE has them.
        """
        return self.with_times(
            (str(DeviceSpec.from_string(device.device).device_type), node.node_name, _seconds(node))
            for device in step_stats.dev_stats
            for node in device.node_stats
        )

    def with_link(self, source: str, target: str, link: LinkCost) -> MeasuredCosts:
        """Return the costs with the costs of a link."""
        return replace(self, links={**self.links, (source, target): link})

    def seconds(self, device_type: str, name: str) -> float | None:
        """Return the least seconds of a node: other work on the machine can only slow it."""
        found = self.nodes.get((device_type, name))
        return None if found is None else found.least

    def applied(
        self, graph: CostGraph, clusters: Mapping[str, Sequence[str]] | None = None
    ) -> CostGraph:
        """Return a graph in which measured costs replace estimates.

        clusters: the names of the nodes inside each compiled cluster. The time of a cluster is
        shared by its nodes in proportion to their estimates.
        """
        inside = {name: c for c, names in (clusters or {}).items() for name in names}
        sums: dict[tuple[str, str], list[float]] = {}
        for item in graph.items:
            cluster = inside.get(item.name)
            if cluster is not None:
                for device_type, seconds in item.seconds.items():
                    sums.setdefault((device_type, cluster), []).append(seconds)

        def measured(item: CostItem, device_type: str, estimated: float) -> float:
            cluster = inside.get(item.name)
            found = self.seconds(device_type, item.name if cluster is None else cluster)
            if found is None or cluster is None:
                return estimated if found is None else found
            parts = sums[device_type, cluster]
            whole = math.fsum(parts)
            return found * estimated / whole if whole > 0 else found / len(parts)

        items = tuple(
            replace(item, seconds={t: measured(item, t, s) for t, s in item.seconds.items()})
            for item in graph.items
        )
        return replace(graph, items=items)

    def save(self, path: str | Path) -> None:
        """Write the costs to a file."""
        nodes: dict[str, dict[str, list[float]]] = {}
        for (device_type, name), m in sorted(self.nodes.items()):
            nodes.setdefault(device_type, {})[name] = [m.steps, m.mean, m.least]
        links = {f"{a} -> {b}": list(link) for (a, b), link in sorted(self.links.items())}
        content = {"format": _FORMAT, "version": _VERSION, "graph": self.graph}
        text = json.dumps({**content, "nodes": nodes, "links": links}, indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> MeasuredCosts:
        """Read the costs from a file; DataLossError if it is damaged, InvalidArgumentError if it
        isn't a file of costs or has another version.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataLossError(None, None, f"{path} is not JSON: {error}") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise InvalidArgumentError(None, None, f"{path} is not a file of measured costs")
        if content.get("version") != _VERSION:
            raise InvalidArgumentError(
                None,
                None,
                f"{path} has version {content.get('version')!r} of measured costs; this program "
                f"reads version {_VERSION}. Measure again.",
            )
        try:
            nodes = {
                (device_type, name): Measured(int(steps), float(mean), float(least))
                for device_type, named in content["nodes"].items()
                for name, (steps, mean, least) in named.items()
            }
            links = {}
            for pair, (seconds, bytes_per_second) in content["links"].items():
                source, _, target = pair.partition(" -> ")
                links[source, target] = LinkCost(float(seconds), float(bytes_per_second))
            return MeasuredCosts(nodes, links, str(content["graph"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataLossError(None, None, f"{path} is damaged: {error!r}") from None

    def __str__(self) -> str:
        """The costs as a table, the most expensive ones first."""
        width = max((len(name) for _, name in self.nodes), default=4)
        lines = [f"{'name':{width}}  device  steps   mean (us)  least (us)"]
        for (device_type, name), m in sorted(self.nodes.items(), key=lambda e: -e[1].mean):
            times = f"{m.mean * 1e6:10.1f}  {m.least * 1e6:10.1f}"
            lines.append(f"{name:{width}}  {device_type:6}  {m.steps:5}  {times}")
        for (a, b), link in sorted(self.links.items()):
            rate = f"{link.bytes_per_second / 1e6:.0f} MB/s"
            lines.append(f"{a} -> {b}: {link.seconds * 1e6:.1f} us per tensor, {rate}")
        return "\n".join(lines)


def _seconds(node: Any) -> float:
    if node.op_end_rel_nanos:
        return node.op_end_rel_nanos * 1e-9
    # Whole microseconds are rounded down: half of one is missing in the mean.
    return (node.op_end_rel_micros + 0.5) * 1e-6


def fingerprint(operations: Iterable[Any]) -> str:
    """Return a name for a graph, by which its costs are kept: equal for equal operations."""
    known = hashlib.sha256()
    for op in operations:
        inputs = ",".join(t.name for t in op._inputs)
        known.update(f"{op.name}={op.type}({inputs})\n".encode())
    return known.hexdigest()[:16]


def fit_link(samples: Sequence[tuple[int, float]]) -> LinkCost:
    """Return the link that fits samples of (bytes, seconds) best, by least squares.

    Samples are weighted by the inverse of their seconds, so that small transfers, of which there
    are many, count as much as large ones. With one size only, all of its time is the latency.
    """
    if not samples:
        raise ValueError("a link can't be fitted to no samples")
    if any(size < 0 or not 0 <= seconds < math.inf for size, seconds in samples):
        raise ValueError("samples of a link must be bytes and seconds, both at least 0")
    weights = [1 / max(seconds, 1e-9) ** 2 for _, seconds in samples]
    total = math.fsum(weights)
    mean_size = math.fsum(w * b for w, (b, _) in zip(weights, samples, strict=True)) / total
    mean_seconds = math.fsum(w * s for w, (_, s) in zip(weights, samples, strict=True)) / total
    spread = math.fsum(w * (b - mean_size) ** 2 for w, (b, _) in zip(weights, samples, strict=True))
    common = math.fsum(
        w * (b - mean_size) * (s - mean_seconds) for w, (b, s) in zip(weights, samples, strict=True)
    )
    per_byte = max(0.0, common / spread) if spread > 0 else 0.0
    seconds = mean_seconds - per_byte * mean_size
    if seconds < 0:  # the line through the origin
        seconds = 0.0
        per_byte = math.fsum(w * b * s for w, (b, s) in zip(weights, samples, strict=True)) / (
            math.fsum(w * b * b for w, (b, _) in zip(weights, samples, strict=True))
        )
    return LinkCost(seconds, 1 / per_byte if per_byte > 0 else math.inf)


def calibrate(graph: CostGraph, seconds: float, device_type: str = "CPU") -> CostGraph:
    """Return the graph with all costs multiplied by one number, so that on one device of this type
    the step takes as long as it was measured to take.
    """
    whole = graph.seconds.get(device_type, 0.0)
    if not whole > 0:
        raise ValueError(f"the step costs nothing on {device_type}, or can't run there")
    factor = seconds / whole
    items = tuple(
        replace(i, seconds={t: s * factor for t, s in i.seconds.items()}) for i in graph.items
    )
    return replace(graph, items=items)
