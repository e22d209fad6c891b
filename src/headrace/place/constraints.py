"""Place a step by its constraints. In: a Dataflow and the devices there are. Out: the same, with a
device for every node. And check that all operations of a graph could be placed, as it grows.

Operations that must be together (`loc:@` groups, and those that take a reference, with what it
refers to) share the first device that suits the requests of them all. An operation that only reads
a variable through its reference may be elsewhere. A request that can't be met is an error, or, with
soft placement, has no say.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.device import canonical_name, matches
from headrace.core.errors import InvalidArgumentError
from headrace.graph.dataflow import Dataflow, Node, Value, origin_of, rebuild
from headrace.graph.graph import Graph
from headrace.graph.operation import Operation

__all__ = ["GraphPlacement", "place"]


def place(flow: Dataflow, devices: Sequence[str], soft: bool = False) -> Dataflow:
    """Give every node of `flow` one of `devices` (full names, the preferred one first)."""
    groups = _Groups()
    for node in flow.nodes:
        for name in _companions(node):
            groups.join(node.name, name)
    requests: dict[str, dict[str, Operation]] = {}
    for node in flow.nodes:
        if node.device and node.origin is not None:
            root = groups.find(node.name)
            requests.setdefault(root, {}).setdefault(node.device, node.origin)
    chosen = {root: _choose(asked, devices, soft) for root, asked in requests.items()}

    def placed(node: Node, inputs: tuple[Value, ...], controls: tuple[Node, ...]) -> Node:
        return node.moved(inputs, controls, chosen.get(groups.find(node.name), devices[0]))

    return rebuild(flow, placed)


class GraphPlacement:
    """Whether every operation of a graph can have one of `devices`.

    State: how much of the graph was looked at; its groups, what each asks for, by the root of the
    group, and the roots whose requests haven't been met yet.
    """

    def __init__(self, graph: Graph, devices: Sequence[str]) -> None:
        self._graph = graph
        self._devices = devices
        self._met: set[str] = set()  # what can be had: most operations ask for the same
        self._begin()

    def _begin(self) -> None:
        self._mutations = self._graph.mutations
        self._seen = 0
        self._groups = _Groups()
        self._requests: dict[str, dict[str, Operation]] = {}
        self._unmet: set[str] = set()

    def check(self) -> None:
        """Look at the operations that are new; InvalidArgumentError if one can't be placed."""
        graph = self._graph
        if self._mutations != graph.mutations:
            self._begin()
        operations = graph._operations
        for position in range(self._seen, len(operations)):
            op = operations[position]
            if op._device:
                self._ask(op)
            for name in _companions(op):
                self._join(op.name, name)
            self._seen = position + 1
        for root in list(self._unmet):
            asked = self._requests[root]
            (request, *others) = asked
            if others or request not in self._met:
                _choose(asked, self._devices, soft=False)
                if not others:
                    self._met.add(request)
            self._unmet.discard(root)

    def _ask(self, op: Operation) -> None:
        root = self._groups.find(op.name)
        asked = self._requests.setdefault(root, {})
        if op._device not in asked:
            asked[op._device] = op
            self._unmet.add(root)

    def _join(self, a: str, b: str) -> None:
        a, b = self._groups.find(a), self._groups.find(b)
        if a == b:
            return
        self._groups.join(a, b)
        root = self._groups.find(a)
        asked = {**self._requests.pop(b, {}), **self._requests.pop(a, {})}
        self._unmet -= {a, b}
        if asked:
            self._requests[root] = asked
            self._unmet.add(root)


def _companions(op: Operation | Node) -> list[str]:
    """The names of the operations that an operation or node must be together with."""
    found = []
    if op.definition.schema.has_ref_inputs:
        wanted = op.definition.schema.references(op._attrs)
        found += [t.op.name for t, is_ref in zip(op._inputs, wanted, strict=True) if is_ref]
    if "_class" in op._attrs:
        groups = origin_of(op).colocation_groups()
        found += [name.decode().removeprefix("loc:@") for name in groups]
    return found


def _choose(asked: dict[str, Operation], devices: Sequence[str], soft: bool) -> str:
    """The first device that suits the requests of a group; `asked` has one operation for each."""
    suitable = list(devices)
    for request, op in asked.items():
        pattern = canonical_name(request)
        left = [device for device in suitable if matches(pattern, device)]
        if not left and not soft:
            raise _misfit(op, asked, suitable, devices)
        suitable = left or suitable
    return suitable[0]


def _misfit(
    op: Operation, asked: dict[str, Operation], suitable: Sequence[str], devices: Sequence[str]
) -> InvalidArgumentError:
    available = f"available devices are [ {', '.join(devices)} ]"
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
