"""Place operations by their constraints. In: a graph, or a Dataflow, and devices. Out: a device for
every operation or node.

Operations that must be together (`loc:@` groups, and operations that take a reference, with the op
that it refers to) share the first device that satisfies all their requests and has kernels for
them. An operation that only reads a variable through its reference may be elsewhere. A request that
can't be satisfied is an error or, with soft placement, is ignored.

A session places its whole graph, as it grows (`Placement`), so that a variable is on the same
device in every step; a group that keeps state stays where it was first used.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.core.device_names import canonical_name, matches
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import Device
from headrace._src.graph.dataflow import Dataflow, Node, Value, origin_of, rebuild
from headrace._src.graph.definition import HOST
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation

__all__ = ["Placement", "place"]


def place(
    flow: Dataflow,
    devices: Sequence[Device],
    soft: bool = False,
    placement: Placement | None = None,
) -> Dataflow:
    """Assign every node of `flow` to one of `devices` (the preferred one first): by the placement
    of its graph, or by the constraints of these nodes.
    """
    chosen = _Chosen(devices, soft)
    for node in flow.nodes:
        if placement is None or not placement.has(node):
            chosen.add(node)

    def placed(node: Node, inputs: tuple[Value, ...], controls: tuple[Node, ...]) -> Node:
        found = placement if placement is not None and placement.has(node) else chosen
        return node.moved(inputs, controls, found.device(node.name))

    return rebuild(flow, placed)


class _Chosen:
    """Groups of operations that must be together, and the device of each.

    State, by the root of a group: the requests of its members, one operation for each; the members,
    if there are several devices; the device, once it was requested.
    """

    def __init__(self, devices: Sequence[Device], soft: bool) -> None:
        self._devices = devices
        self._soft = soft
        self._several = len(devices) > 1
        self._groups = _Groups()
        self._requests: dict[str, dict[str, Operation]] = {}
        self._members: dict[str, list[Operation]] = {}
        self._settled: dict[str, Device] = {}

    def add(self, op: Operation | Node) -> None:
        """Add an operation."""
        root = self._groups.find(op.name)
        if op.device:
            self._settled.pop(root, None)
            self._requests.setdefault(root, {}).setdefault(op.device, origin_of(op))
        if self._several:
            self._members.setdefault(root, []).append(origin_of(op))
        for name in _companions(op):
            self._join(op.name, name)

    def device(self, name: str) -> str:
        """Return the full name of an operation's device."""
        return self.settle(self._groups.find(name)).name

    def settle(self, root: str) -> Device:
        """Return the device of a group."""
        found = self._settled.get(root)
        if found is None:
            asked = self._requests.get(root)
            found = self._choose(root, asked) if asked else self._devices[0]
            self._settled[root] = found
        return found

    def _choose(self, root: str, asked: dict[str, Operation]) -> Device:
        suitable = self._candidates(root)
        for request, op in asked.items():
            left = [device for device in suitable if self._suits(device, request)]
            if not left and not self._soft:
                raise _misfit(op, asked, suitable, self._devices)
            suitable = left or suitable
        return self._runnable(root, suitable)

    def _candidates(self, root: str) -> Sequence[Device]:
        return self._devices

    def _runnable(self, root: str, suitable: Sequence[Device]) -> Device:
        """Return the first device that has kernels for all members of a group."""
        members = self._members.get(root, ())
        for device in suitable:
            if device.type == HOST or all(op.definition.table(device.type) for op in members):
                return device
        if self._soft:
            return self._devices[0]
        kind = suitable[0].type
        op = next(op for op in members if not op.definition.table(kind))
        raise InvalidArgumentError(
            None,
            op,
            f"Cannot assign a device for operation {op.name}: No OpKernel was registered to "
            f"support Op '{op.type}' on a device of type {kind}. Place it elsewhere, register one "
            "(headrace.register_kernel), or set allow_soft_placement in the session's ConfigProto.",
        )

    @staticmethod
    def _suits(device: Device, request: str) -> bool:
        return matches(canonical_name(request), device.name)

    def _join(self, a: str, b: str) -> None:
        a, b = self._groups.find(a), self._groups.find(b)
        if a == b:
            return
        self._groups.join(a, b)
        root = self._groups.find(a)
        if a in self._requests or b in self._requests:
            first, second = self._requests.pop(b, {}), self._requests.pop(a, {})
            self._requests[root] = {**first, **second}
        if self._several:
            self._members[root] = [*self._members.pop(b, ()), *self._members.pop(a, ())]
        self._settled.pop(a, None)
        self._settled.pop(b, None)


class Placement(_Chosen):
    """The devices of a graph's operations, for one session.

    Further state: how much of the graph was processed; the roots of groups that are not placed yet;
    the devices of groups that keep state, which never move.
    """

    def __init__(self, graph: Graph, devices: Sequence[Device], soft: bool = False) -> None:
        super().__init__(devices, soft)
        self._graph = graph
        self._pinned: dict[str, Device] = {}  # by the name of an operation with state
        self._begin()

    def _begin(self) -> None:
        self._mutations = self._graph.mutations
        self._seen = 0
        self._groups = _Groups()
        self._requests, self._members, self._settled = {}, {}, {}
        self._open: set[str] = set()
        self._pins: dict[str, Device] = {}  # `_pinned` by the roots of groups

    def has(self, node: Node) -> bool:
        """Whether a node represents an operation of the graph."""
        return node.origin is not None and node.origin.graph is self._graph

    def extend(self) -> None:
        """Place the new operations; InvalidArgumentError if one can't be placed."""
        graph = self._graph
        if self._mutations != graph.mutations:
            self._begin()
        operations = graph._operations
        for position in range(self._seen, len(operations)):
            op = operations[position]
            if self._several or op._device or _companions(op):
                self.add(op)
                self._open.add(op.name)
            self._seen = position + 1
        self._pins = {self._groups.find(name): device for name, device in self._pinned.items()}
        for name in list(self._open):
            self.settle(self._groups.find(name))
            self._open.discard(name)

    def pin(self, flow: Dataflow) -> None:
        """Record where the state of a step that is about to run lives."""
        if self._several:
            for node in flow.nodes:
                if node.definition.keeps_state and self.has(node):
                    self._pinned.setdefault(node.name, self.settle(self._groups.find(node.name)))

    def _candidates(self, root: str) -> Sequence[Device]:
        return [self._pins[root]] if root in self._pins else self._devices


def _companions(op: Operation | Node) -> list[str]:
    """Return the names of the operations that an operation or node must be together with."""
    found = []
    if op.definition.schema.has_ref_inputs:
        wanted = op.definition.schema.references(op._attrs)
        found += [t.op.name for t, is_ref in zip(op._inputs, wanted, strict=True) if is_ref]
    if "_class" in op._attrs:
        groups = origin_of(op).colocation_groups()
        found += [name.decode().removeprefix("loc:@") for name in groups]
    return found


def _misfit(
    op: Operation,
    asked: dict[str, Operation],
    suitable: Sequence[Device],
    devices: Sequence[Device],
) -> InvalidArgumentError:
    available = f"available devices are [ {', '.join(device.name for device in devices)} ]"
    if len(suitable) == len(devices):
        return InvalidArgumentError(
            None,
            op,
            f"Cannot assign a device for operation {op.name}: node {op.name} was explicitly "
            f"assigned to {op._device} but {available}. Make sure the device specification refers "
            "to a valid device, or set allow_soft_placement in the session's ConfigProto.",
        )
    others = " and ".join(f"{o.name} on {d}" for d, o in asked.items() if o is not op)
    return InvalidArgumentError(
        None,
        op,
        f"Cannot colocate {op.name} on {op._device} with {others}: they must be placed together, "
        f"but {available}.",
    )


class _Groups:
    """Union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        parent = self._parent
        root = name
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[name] != root:
            parent[name], name = root, parent[name]
        return root

    def join(self, a: str, b: str) -> None:
        self._parent[self.find(a)] = self.find(b)
