"""Place operations by their constraints. In: a graph, or a Dataflow, and devices. Out: a device for
every operation or node.

`groups` finds the operations that must be together, `requests` the devices that a group may be on.
Which of them it gets is TensorFlow 1.15's rule: the first one, with two exceptions. A group whose
first operation asks for the shape, rank or size of a tensor goes where the tensor is made; a group
of operations without inputs (constants, placeholders) goes where all its users are. Another rule
may be given (`Placement`'s `choose`); it can only choose feasible devices.

A session places its whole graph, as it grows (`Placement`), so that a variable is on the same
device in every step; a group that keeps state stays where it was first used. If operations that no
step runs need no device, each step is placed by itself, but state stays too (`StepPlacement`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace._src.core.device_names import matches
from headrace._src.devices.device import Device
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, origin_of, rebuild
from headrace._src.graph.definition import HOST
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation
from headrace._src.place import refusals
from headrace._src.place.groups import Groups, Members, is_generator, measured
from headrace._src.place.requests import feasible

__all__ = ["Choose", "ColocationGroup", "Placement", "StepPlacement", "place"]


@dataclass(frozen=True, slots=True)
class ColocationGroup:
    """Operations that must be on one device.

    name: the name of the first one. feasible: the devices that satisfy all constraints, the
    preferred one first; just one, if the group keeps state already.
    """

    name: str
    operations: tuple[Operation, ...]
    feasible: tuple[Device, ...]


# Given all groups of a graph, returns the devices of some of them, by the groups' names.
Choose = Callable[[Sequence[ColocationGroup]], Mapping[str, Device]]


def place(
    flow: Dataflow,
    devices: Sequence[Device],
    soft: bool = False,
    placement: Placement | None = None,
) -> Dataflow:
    """Assign every node of `flow` to one of `devices` (the preferred one first): by the placement
    of its graph, or by the constraints of these nodes.
    """
    others = [node for node in flow.nodes if placement is None or not placement.has(node)]
    chosen: _Chosen | None = None
    requests = {node.device for node in others if node.device}
    plain = _is_plain(devices) and (placement is None or not placement.keeps_state)
    if not plain or not all(_suits(devices[0], request) for request in requests):
        chosen = _Chosen(devices, soft)
        for node in others:
            chosen.groups.add(node)
        if placement is not None:
            placement.hold(chosen.groups)

    def placed(node: Node, inputs: tuple[Value, ...], controls: tuple[Node, ...]) -> Node:
        if placement is not None and placement.has(node):
            device = placement.device_of(node)
        else:
            device = devices[0].name if chosen is None else chosen.device(node.name)
        return node.moved(inputs, controls, device)

    return rebuild(flow, placed)


class _Chosen:
    """The devices of groups of operations.

    State: the groups; the devices that were decided since the groups last changed.
    """

    def __init__(self, devices: Sequence[Device], soft: bool) -> None:
        self._devices: tuple[Device, ...] = tuple(devices)
        self._soft = soft
        self.groups = Groups()
        self._decided: dict[Members, Device] = {}

    def device(self, name: str) -> str:
        """Return the full name of an operation's device."""
        return self._decide(self.groups.of[name]).name

    def _feasible(self, group: Members) -> Sequence[Device]:
        found = group.feasible
        if found is None:
            found = group.feasible = feasible(group, self._devices, self._soft)
        return found

    def _decide(self, group: Members) -> Device:
        """Return the device of a group. A chain of groups that follow each other is decided from
        its end.
        """
        decided = self._decided
        chain: list[Members] = []
        while True:
            device = decided.get(group) or group.choice
            if device is not None:
                break
            candidates = self._feasible(group)
            followed = self._followed(group) if len(candidates) > 1 else None
            if followed is None or followed in chain or followed is group:
                device = candidates[0]
                if len(candidates) > 1 and group.leader is None:
                    device = self._with_users(group, candidates)
                break
            chain.append(group)
            group = followed
        decided[group] = device
        for group in reversed(chain):
            candidates = self._feasible(group)
            device = device if device in candidates else candidates[0]
            decided[group] = device
        return device

    def _followed(self, group: Members) -> Members | None:
        """Return the group that a group follows: that of the operation whose shape, rank or size
        its first operation asks for.
        """
        if group.leader is None or not measured(group.leader[1].definition):
            return None
        producer = group.leader[1]._inputs[0].op
        if isinstance(producer, Feed) or is_generator(producer):
            return None
        return self.groups.of.get(producer.name)

    def _with_users(self, group: Members, candidates: Sequence[Device]) -> Device:
        """Return the device of a group of generators: that of all users of its first operation."""
        assert group.first is not None
        users = self.groups.users.get(group.first[1].name, ())
        shared: Device | None = None
        for user in users:
            if is_generator(user):  # TensorFlow decides its device after this one's
                return candidates[0]
            device = self._decide(self.groups.of[user.name])
            if shared is not None and device is not shared:
                return candidates[0]
            shared = device
        return shared if shared is not None and shared in candidates else candidates[0]


class Placement(_Chosen):
    """The devices of a graph's operations, for one session.

    choose: chooses among the feasible devices of groups; those that it leaves out, and all without
    it, are placed by TensorFlow's rule.

    While there is a single CPU and all requests suit it, no groups are formed. Further state: how
    much of the graph was processed, and how much of it has a device; the operations whose groups
    have not been checked yet; where operations keep state, which never moves.
    """

    whole = True  # whether operations that no step runs are placed too

    def __init__(
        self,
        graph: Graph,
        devices: Sequence[Device],
        soft: bool = False,
        choose: Choose | None = None,
    ) -> None:
        super().__init__(devices, soft)
        self._graph = graph
        self._choose = choose
        self._pinned: dict[str, tuple[Device, Operation]] = {}  # operations with state by name
        self._grouped = choose is not None or not _is_plain(self._devices)
        self._suits: set[str] = set()  # requests that the single device satisfies
        self._begin()

    def _begin(self) -> None:
        self._mutations = self._graph.mutations
        self._seen = self._placed = 0
        self._restarted = True
        self._open: list[str] = []
        self._stale = False  # whether groups have changed since devices were last chosen

    def has(self, node: Node) -> bool:
        """Whether the device of a node is known: of one that represents an operation of the
        graph.
        """
        return self._represents(node)

    def _represents(self, node: Node) -> bool:
        return node.origin is not None and node.origin.graph is self._graph

    def device_of(self, node: Node) -> str:
        """Return the full name of the device of a node of the graph."""
        if not self._grouped:
            return self._devices[0].name
        return self._decide(self.groups.of[self._key(node)]).name

    def device(self, name: str) -> str:
        """Return the full name of the device of an operation of the graph."""
        return super().device(name) if self._grouped else self._devices[0].name

    def extend(self) -> list[Operation]:
        """Place the new operations, and return them; InvalidArgumentError if one can't be
        placed.
        """
        graph = self._graph
        if self._mutations != graph.mutations:
            self._begin()
        if not self._grouped and not self._suit():
            self._grouped = True
            self._begin()
        if self._grouped:
            self._group()
        placed = graph._operations[self._placed : self._seen]
        self._placed = self._seen
        return placed

    def _suit(self) -> bool:
        """Pass over new operations that may be on the single device; False if one may not."""
        operations = self._graph._operations
        for position in range(self._seen, len(operations)):
            request = operations[position]._device
            if request and request not in self._suits:
                if not _suits(self._devices[0], request):
                    return False
                self._suits.add(request)
            self._seen = position + 1
        return True

    def _group(self) -> None:
        """Add the new operations to groups, and check that all groups have a device."""
        # Another thread may be placing a step: it sees the old groups or the new ones.
        groups = Groups() if self._restarted else self.groups
        operations = self._graph._operations
        for position in range(self._seen, len(operations)):
            op = operations[position]
            groups.add(op)
            self._open.append(op.name)
            self._seen = position + 1
        if self._restarted:
            self.hold(groups)
            self.groups, self._restarted = groups, False
            self._decided = {}
        if self._open:
            self._decided = {}
            self._stale = True
            for name in self._open:
                self._feasible(self.groups.of[name])
            self._open = []
        if self._stale and self._choose is not None:
            self.reconsider()
        self._stale = False

    def list_groups(self) -> list[ColocationGroup]:
        """Return the groups of the graph as it was last extended, in order of their first
        operations.
        """
        if not self._grouped:
            self._grouped = True
            self._begin()
            self._group()
        found = {id(group): group for group in self.groups.of.values() if group.first is not None}
        return sorted(
            (self._shown(group) for group in found.values()), key=lambda g: g.operations[0]._id
        )

    def _shown(self, group: Members) -> ColocationGroup:
        items = [op for op in group.items if isinstance(op, Operation)]
        items.sort(key=lambda op: op._id)
        return ColocationGroup(items[0].name, tuple(items), tuple(self._feasible(group)))

    def reconsider(self) -> None:
        """Choose the devices of all groups again; InvalidArgumentError if one is not feasible."""
        if self._choose is None:
            return
        groups = {group.name: group for group in self.list_groups()}
        chosen = self._choose(list(groups.values()))
        for name, device in chosen.items():
            allowed = groups[name].feasible if name in groups else ()
            if device not in allowed:
                raise refusals.not_feasible(name, device.name, allowed)
        for name in groups:
            self.groups.of[name].choice = chosen.get(name)
        self._decided = {}

    def pin(self, flow: Dataflow) -> None:
        """Record where the state of a step that is about to run lives."""
        if len(self._devices) == 1:
            return
        by_name = {device.name: device for device in self._devices}
        for node in flow.nodes:
            if node.definition.keeps_state and self._represents(node):
                name = self._key(node)
                if name not in self._pinned:
                    self._pinned[name] = by_name[node.device], origin_of(node)
                    if self._grouped:
                        _hold(self.groups, name, *self._pinned[name])

    @property
    def keeps_state(self) -> bool:
        """Whether steps that have run keep state, on one of several devices."""
        return bool(self._pinned)

    def hold(self, groups: Groups) -> None:
        """Keep groups where operations of them have state."""
        for name, (device, op) in self._pinned.copy().items():  # other threads may pin meanwhile
            _hold(groups, name, device, op)

    def _key(self, node: Node) -> str:
        """Return the name of an operation of the node's group: of its origin, if a pass made it."""
        if node.name in self.groups.of or node.origin is None:
            return node.name
        return node.origin.name


class StepPlacement(Placement):
    """Where operations of a graph keep state, for a session that places each step by itself: only
    the operations that a step runs must have a device.
    """

    whole = False

    def has(self, node: Node) -> bool:
        return False

    def extend(self) -> list[Operation]:
        return []


def _hold(groups: Groups, name: str, device: Device, op: Operation) -> None:
    """Keep the group of an operation on a device."""
    group = groups.of.get(name)
    if group is not None and device not in group.pins:
        group.pins[device] = op
        group.feasible = group.choice = None


def _is_plain(devices: Sequence[Device]) -> bool:
    """Whether the preferred device is a CPU, which has kernels for all operations: then only
    requests for other devices need attention.
    """
    return devices[0].type == HOST


def _suits(device: Device, request: str) -> bool:
    """Whether a device satisfies a request; not one that is malformed."""
    try:
        return matches(request, device.name)
    except ValueError:
        return False
