"""Place a session's graph by cost. In: colocation groups, and the times of traced steps. Out: a
device for each group.

Costs are estimates at first. Traced steps measure operations and clusters; the choice is then made
again, after the first, second, fourth, eighth such step and so on. Groups that keep state stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace._src.devices.device import Device
from headrace._src.devices.openmp import thread_count
from headrace._src.graph.definition import HOST
from headrace._src.graph.graph import Graph
from headrace._src.pipeline.clusters import has_compiler
from headrace._src.place.choose import choose_by_cost
from headrace._src.place.constraints import ColocationGroup
from headrace._src.place.estimate import Roofs
from headrace._src.place.measured import MeasuredCosts, fingerprint

__all__ = ["CostPlacement"]


class CostPlacement:
    """The measured costs of one graph, and the choice of devices by them.

    State: the costs, the names of the nodes inside each cluster, and how many steps were measured.
    """

    def __init__(self, graph: Graph, devices: Sequence[Device]) -> None:
        self.costs = MeasuredCosts(graph=fingerprint(graph._operations))
        self._graph = graph
        self._devices = devices
        self._clusters: dict[str, Sequence[str]] = {}
        self._steps = 0
        self._roofs: dict[str, Roofs] | None = None

    def choose(self, groups: Sequence[ColocationGroup]) -> Mapping[str, Device]:
        """Return the devices of groups, by their names; see Placement."""
        grouped = {op for group in groups for op in group.operations}
        found = choose_by_cost(
            [op for op in self._graph._operations if op in grouped],
            [group.operations for group in groups],
            [group.feasible for group in groups],
            self._devices,
            self._measured_roofs(),
            self.costs if self._steps else None,
            clusters=self._clusters,
        )
        return {groups[number].name: device for number, device in found.items()}

    def add(self, events: Iterable[tuple[Any, float, float, Any]], program: Any) -> bool:
        """Add the times of a traced step: operation, start, end and outputs of each kernel. Return
        whether to choose again.
        """
        for instruction in program.instructions:
            nodes = getattr(instruction.op.definition.kernel, "nodes", None)
            if nodes:
                self._clusters[instruction.op.name] = [node.name for node in nodes]
        types = {device.name: device.type for device in self._devices}
        self.costs = self.costs.with_times(
            (types.get(op.device, HOST), op.name, end - start) for op, start, end, _ in events
        )
        self._steps += 1
        return self._steps & (self._steps - 1) == 0

    def _measured_roofs(self) -> dict[str, Roofs]:
        """Return this machine's speed, which is measured at the first call."""
        if self._roofs is None:
            self._roofs = {}
            if has_compiler():
                from headrace._src.compile.native import roofs  # for sessions that place by cost

                threads = thread_count()
                flops, bandwidth = roofs.peak_flops(threads), roofs.bandwidth(threads)
                self._roofs[HOST] = Roofs(flops=flops, bandwidth=bandwidth)
        return self._roofs
