"""Groups of operations that must be on one device. In: operations (or nodes of a step), one by one.
Out: the group of each, as it is now.

Operations are together if one names another in `_class` (`loc:@other`), or takes a reference or a
handle that another one makes or passes on: a variable, a queue, a table, a tensor array, a list. An
operation that only reads a variable through its reference may be elsewhere.

State: `Groups.of` has the group of every name, also of names that only a `loc:@` mentions;
`Groups.users` the operations that use an operation without inputs, by data or by control.
"""

from __future__ import annotations

from functools import lru_cache

from headrace._src.core import dtypes
from headrace._src.devices.device import Device
from headrace._src.graph.dataflow import Feed, Node, origin_of
from headrace._src.graph.definition import Definition, Effect, unfolded
from headrace._src.graph.operation import Operation

__all__ = ["Groups", "Item", "Members", "handle_makers", "is_generator", "links", "measured"]

Item = Operation | Node

# Who asks for a device, in the order in which their requests are merged: an operation that makes a
# reference or a handle, one that takes one, or any other.
MAKER, USER, OTHER = 0, 1, 2


class Members:
    """The operations of one group.

    items: in any order. kinds and asks: the op types, and the device requests by role and text,
    each with the position and the operation of its first occurrence. leader: the first operation
    that is not a generator; first: the first one of all. pins: devices where operations of the
    group keep state, each with one of them. feasible: the devices that the group may be on,
    once they were determined. choice: the device that was chosen among them.
    """

    __slots__ = (
        "asks",
        "choice",
        "feasible",
        "first",
        "items",
        "kinds",
        "leader",
        "names",
        "pins",
    )

    def __init__(self, name: str) -> None:
        self.names = [name]
        self.items: list[Item] = []
        self.kinds: dict[Definition, tuple[int, Item]] = {}
        self.asks: dict[tuple[int, str], tuple[int, Item]] = {}
        self.first: tuple[int, Item] | None = None
        self.leader: tuple[int, Item] | None = None
        self.pins: dict[Device, Item] = {}
        self.feasible: tuple[Device, ...] | None = None
        self.choice: Device | None = None

    def take(self, item: Item, position: int, role: int, generator: bool) -> None:
        """Add an operation at a position of the order."""
        self.items.append(item)
        here = (position, item)
        self.kinds.setdefault(item.definition, here)
        if item.device:
            self.asks.setdefault((role, item.device), here)
        if self.first is None:
            self.first = here
        if self.leader is None and not generator:
            self.leader = here
        self.feasible = self.choice = None

    def absorb(self, other: Members) -> None:
        """Add all operations of another group."""
        self.names += other.names
        self.items += other.items
        for definition, here in other.kinds.items():
            self.kinds[definition] = min(self.kinds.get(definition, here), here, key=_position)
        for key, here in other.asks.items():
            self.asks[key] = min(self.asks.get(key, here), here, key=_position)
        self.first = _earlier(self.first, other.first)
        self.leader = _earlier(self.leader, other.leader)
        for device, item in other.pins.items():
            self.pins.setdefault(device, item)
        self.feasible = self.choice = None


class Groups:
    """The groups of some operations."""

    def __init__(self) -> None:
        self.of: dict[str, Members] = {}
        self.users: dict[str, list[Item]] = {}
        self._count = 0

    def add(self, item: Item) -> None:
        """Add an operation after all others."""
        name = item.name
        group = self.of.get(name)
        if group is None:
            group = self.of[name] = Members(name)
        inputs = item._inputs
        makers = handle_makers(item) if inputs else ()
        role = USER if makers else OTHER
        generator = False
        if not makers and item._outputs:
            produced = item._outputs[0].dtype
            if produced._is_ref_dtype or produced is dtypes.resource:
                role = MAKER
            generator = not inputs and is_generator(item)
        group.take(item, self._count, role, generator)
        self._count += 1
        for tensor in inputs:
            if not tensor.op._inputs:
                self.users.setdefault(tensor.op.name, []).append(item)
        for control in item._control_inputs:
            if not control._inputs:
                self.users.setdefault(control.name, []).append(item)
        for maker in makers:
            self.join(name, maker)
        if "_class" in item._attrs:
            for other in _classes(item):
                self.join(name, other)

    def join(self, a: str, b: str) -> None:
        """Make one group of two. The larger one takes the other's operations."""
        large, small = self.of[a], self.of.get(b)
        if small is None:
            small = Members(b)
            self.of[b] = small
        if large is small:
            return
        if len(large.names) < len(small.names):
            large, small = small, large
        large.absorb(small)
        for name in small.names:
            self.of[name] = large


def is_generator(item: Item) -> bool:
    """Whether an operation has no inputs and one output that is not a reference: such an operation
    may follow those that use it.
    """
    outputs = item._outputs
    return not item._inputs and len(outputs) == 1 and not outputs[0].dtype._is_ref_dtype


@lru_cache(maxsize=1024)
def measured(definition: Definition) -> bool:
    """Whether an op only asks for the shape, rank or size of its one input: such an operation may
    follow the one that makes the input.
    """
    schema = definition.schema
    known = definition.fold is not None and definition.fold is not unfolded
    pure = definition.effect is Effect.PURE
    return known and pure and len(schema.inputs) == 1 and not schema.has_list_inputs


def handle_makers(item: Item) -> list[str]:
    """Return the names of the operations whose references or handles an operation takes."""
    schema = item.definition.schema
    if schema.has_ref_inputs:
        wanted = schema.references(item._attrs)
    else:
        wanted = None
    found = []
    for i, tensor in enumerate(item._inputs):
        dtype = tensor.dtype
        is_handle = dtype is dtypes.resource or dtype is dtypes.variant
        if (is_handle or (wanted is not None and wanted[i])) and not isinstance(tensor.op, Feed):
            found.append(tensor.op.name)
    return found


def _classes(item: Item) -> list[str]:
    groups = origin_of(item).colocation_groups()
    return [group.decode().removeprefix("loc:@") for group in groups]


def links(item: Item) -> list[tuple[str, str]]:
    """Return the names of the operations that an operation must be with, each with the reason."""
    found = [(name, f"takes a reference or a handle from '{name}'") for name in handle_makers(item)]
    if "_class" in item._attrs:
        found += [(name, f"is colocated with '{name}' (loc:@{name})") for name in _classes(item)]
    return found


def _position(here: tuple[int, Item]) -> int:
    return here[0]


def _earlier(
    one: tuple[int, Item] | None, other: tuple[int, Item] | None
) -> tuple[int, Item] | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=_position)
