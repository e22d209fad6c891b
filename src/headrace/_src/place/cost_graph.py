"""The costs of a step, and of the devices that could run it.

A CostGraph is a step as the placer sees it: items (nodes, or clusters of them) with seconds, the
outputs that pass between them with bytes, and groups of items that must be on one device. A
ClusterModel describes devices: which of them share the cores of one process, what they can hold,
and what it costs to send a tensor from one to another. A Problem joins the two; an *assignment* of
a Problem is a tuple with the number of a device for each group.

All of them are frozen and printable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import BY_REFERENCE, LinkCost

__all__ = [
    "Assignment",
    "ClusterModel",
    "CostGraph",
    "DeviceModel",
    "CostItem",
    "Output",
    "Problem",
]

Assignment = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CostItem:
    """Work that runs without interruption on one device.

    seconds: by the type of device, on one of speed 1; it can't run on other types. group: the
    number of its group. state: bytes that it holds on its device from step to step, a variable's.
    kind: what it computes, for reports.
    """

    name: str
    seconds: Mapping[str, float]
    group: int
    state: int = 0
    kind: str = ""

    def __str__(self) -> str:
        costs = ", ".join(f"{t} {s * 1e6:.3g} us" for t, s in self.seconds.items())
        held = f", holds {self.state} B" if self.state else ""
        return f"{self.name}: {costs}{held}, group {self.group}"


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that an item makes for others. A control edge is an output of no bytes."""

    name: str
    producer: int
    size: int
    readers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.size} B to {', '.join(map(str, self.readers))}"


@dataclass(frozen=True)
class CostGraph:
    """A step's items, each after those that it reads, and their outputs. `groups` names the groups
    of items that are placed together.
    """

    items: tuple[CostItem, ...]
    outputs: tuple[Output, ...]
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        for output in self.outputs:
            if any(reader <= output.producer for reader in output.readers):
                late = self.items[output.producer].name
                raise ValueError(f"item {late} must come before the items that read {output.name}")
        if any(not 0 <= item.group < len(self.groups) for item in self.items):
            raise ValueError(f"the groups of items must be numbers below {len(self.groups)}")

    @staticmethod
    def apart(items: Sequence[CostItem], outputs: Sequence[Output]) -> CostGraph:
        """Return a graph whose groups are named by their first items."""
        names = ["" for _ in range(1 + max((item.group for item in items), default=-1))]
        for item in reversed(items):
            names[item.group] = item.name
        return CostGraph(tuple(items), tuple(outputs), tuple(names))

    def faster(self, times: float) -> CostGraph:
        """Return the graph for devices that are so many times as fast."""
        items = (
            replace(item, seconds={kind: s / times for kind, s in item.seconds.items()})
            for item in self.items
        )
        return replace(self, items=tuple(items))

    @property
    def seconds(self) -> dict[str, float]:
        """The sum of all items' seconds, by type of device; those that can run them all only."""
        types = set.intersection(*(set(i.seconds) for i in self.items)) if self.items else set()
        return {t: math.fsum(i.seconds[t] for i in self.items) for t in sorted(types)}

    def __str__(self) -> str:
        lines = [f"{i}: {item}" for i, item in enumerate(self.items)]
        return "\n".join([*lines, *(f"{self.items[o.producer].name} -> {o}" for o in self.outputs)])


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A device: its full name and type, the processor that it uses, its speed and its memory.

    processor: a name. Devices of one process share its cores, so that at any time one of them
    computes; devices of different processors compute at once. speed: relative to the device that
    seconds were estimated or measured for. memory: bytes, None if there is no limit. port: the
    network interface that it sends and receives by; its processor has one by default.
    """

    name: str
    type: str = "CPU"
    processor: str = ""
    speed: float = 1.0
    memory: int | None = None
    port: str = ""

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise ValueError(f"device {self.name}: the speed must be positive, not {self.speed}")
        if not self.processor:
            object.__setattr__(self, "processor", self.name)
        if not self.port:
            object.__setattr__(self, "port", self.processor)


@dataclass(frozen=True)
class ClusterModel:
    """Devices and the links between them.

    links: by pairs of names, of devices or of ports; the more specific one counts. network: the
    link between ports that have none of their own; None: they can't communicate. Devices of one
    port pass tensors by reference unless a link says otherwise.

    A transfer between ports occupies the sender's port for sending and the receiver's for
    receiving; one between devices of a port occupies the link of these two devices.
    """

    devices: tuple[DeviceModel, ...]
    links: Mapping[tuple[str, str], LinkCost] = field(default_factory=dict)
    network: LinkCost | None = None

    def __post_init__(self) -> None:
        if not self.devices:
            raise ValueError("a cluster needs at least one device")
        names = [d.name for d in self.devices]
        if len(set(names)) < len(names):
            raise ValueError(f"devices of a cluster need different names, but got {names}")

    def link(self, source: int, target: int) -> LinkCost:
        """Return the cost of sending from one device to another, by their numbers."""
        a, b = self.devices[source], self.devices[target]
        for pair in ((a.name, b.name), (a.port, b.port)):
            if pair in self.links:
                return self.links[pair]
        if source == target or a.port == b.port:
            return BY_REFERENCE
        if self.network is None:
            raise InvalidArgumentError(
                None, None, f"there is no link from {a.name} to {b.name}, and no network"
            )
        return self.network

    def lanes(self, source: int, target: int) -> tuple[str, ...]:
        """Return the names of the resources that a transfer occupies while it lasts."""
        a, b = self.devices[source], self.devices[target]
        if a.port != b.port:
            return (f"{a.port} sends", f"{b.port} receives")
        if self.link(source, target) == BY_REFERENCE:
            return ()
        return (f"{a.name} to {b.name}",)


class Problem:
    """A step to be placed: a CostGraph, a ClusterModel, and the devices that each group may be on.

    feasible: numbers of devices for each group (all devices by default); those that can't run one
    of its items are left out. The further attributes repeat the costs as tables by number, which is
    what the simulator reads.
    """

    def __init__(
        self,
        graph: CostGraph,
        cluster: ClusterModel,
        feasible: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.graph = graph
        self.cluster = cluster
        devices = cluster.devices
        everywhere = tuple(range(len(devices)))
        given = [everywhere] * len(graph.groups) if feasible is None else feasible
        if len(given) != len(graph.groups):
            raise ValueError(f"{len(graph.groups)} groups have devices for {len(given)} groups")
        self.members: list[list[int]] = [[] for _ in graph.groups]
        self.state = [0] * len(graph.groups)
        for i, item in enumerate(graph.items):
            self.members[item.group].append(i)
            self.state[item.group] += item.state
        self.group = [item.group for item in graph.items]
        speeds = [(d.type, 1 / d.speed) for d in devices]
        self.seconds = [
            [item.seconds.get(t, math.inf) * factor for t, factor in speeds] for item in graph.items
        ]
        self.feasible = tuple(self._able(g, given[g]) for g in range(len(graph.groups)))
        processors = list(dict.fromkeys(d.processor for d in devices))
        self.processors = tuple(processors)
        self.processor = [processors.index(d.processor) for d in devices]
        self._read_edges()

    def _able(self, group: int, given: Sequence[int]) -> tuple[int, ...]:
        members = self.members[group]
        able = tuple(d for d in given if all(self.seconds[i][d] < math.inf for i in members))
        if not able:
            names = [self.cluster.devices[d].name for d in given]
            raise InvalidArgumentError(
                None,
                None,
                f"Cannot place {self.graph.groups[group]}: none of the devices that it may be on "
                f"({', '.join(names) or 'none'}) can run all of its {len(members)} operations.",
            )
        return able

    def _read_edges(self) -> None:
        count = len(self.graph.items)
        self.makes: list[list[int]] = [[] for _ in range(count)]  # outputs by producer
        self.reads: list[list[int]] = [[] for _ in range(count)]  # outputs by reader
        self.producer = [o.producer for o in self.graph.outputs]
        self.size = [o.size for o in self.graph.outputs]
        self.readers = [tuple(dict.fromkeys(o.readers)) for o in self.graph.outputs]
        for number, readers in enumerate(self.readers):
            self.makes[self.producer[number]].append(number)
            for reader in readers:
                self.reads[reader].append(number)

    @cached_property
    def links(self) -> list[list[tuple[float, float]]]:
        """For each pair of devices, the seconds per tensor and per byte."""
        numbers = range(len(self.cluster.devices))
        found = [[self.cluster.link(a, b) for b in numbers] for a in numbers]
        return [[(k.seconds, 1 / k.bytes_per_second) for k in row] for row in found]

    @cached_property
    def lane_names(self) -> tuple[str, ...]:
        """The names of all resources that transfers may occupy."""
        numbers = range(len(self.cluster.devices))
        names = [n for a in numbers for b in numbers for n in self.cluster.lanes(a, b) if a != b]
        return tuple(dict.fromkeys(names))

    @cached_property
    def lanes(self) -> list[list[tuple[int, ...]]]:
        """For each pair of devices, the numbers of the resources that a transfer occupies."""
        number = {name: i for i, name in enumerate(self.lane_names)}
        all_ = range(len(self.cluster.devices))
        return [
            [tuple(number[n] for n in self.cluster.lanes(a, b)) if a != b else () for b in all_]
            for a in all_
        ]

    @cached_property
    def limited(self) -> bool:
        """Whether a device has a limit of memory."""
        return any(d.memory is not None for d in self.cluster.devices)

    def allows(self, assignment: Assignment) -> bool:
        """Return whether every group is on a device that it may be on."""
        return len(assignment) == len(self.feasible) and all(
            d in able for d, able in zip(assignment, self.feasible, strict=True)
        )

    def everything_on(self, device: int) -> Assignment | None:
        """Return the assignment of all groups to one device; None if it isn't feasible."""
        return (device,) * len(self.feasible) if all(device in f for f in self.feasible) else None
