"""What a region keeps in memory, and when. In: a region. Out: its groups as steps, and for each
value that is stored the steps between which it lives.

Values that stay in registers inside of a group take no memory, nor do views, constants, inputs and
variables. Conversions between layouts and what kernels pack for themselves aren't foreseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from headrace.compile.fuse import fuse
from headrace.compile.groups import Group, is_again
from headrace.compile.layouts import blocked_values
from headrace.compile.memory import Lifetime, live_peak
from headrace.compile.region import Region, is_reference, writes_of
from headrace.devices.target import host
from headrace.graph.dataflow import Node, Value

__all__ = ["NARROW", "PRODUCTS", "SINGLE", "MemoryTimeline", "StoredValue", "size_of"]

NARROW = ("bfloat16", "float16")  # rounded where they are stored
# Groups that compute each element by itself, so that it doesn't matter what else is in them.
SINGLE = ("map", "join", "copy")
# Groups whose kernels don't depend on what their epilogues store, as long as that is several values
# (an epilogue with one result may be oneDNN's).
PRODUCTS = ("contraction", "convolution")


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value in memory: the step that makes it and those that read it, in order; `kept`: it leaves
    the region.
    """

    size: int
    made: int
    uses: tuple[int, ...]
    kept: bool


class MemoryTimeline:
    """The steps of a region: `step` of each node, what is `stored`, when variables are `written`
    first, and the `peak` of the bytes that live at once.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.groups = fuse(region, blocked_values(region, host().block))
        self.step: dict[Node, int] = {}
        for i, group in enumerate(self.groups):
            self.step.update(dict.fromkeys(_members(group), i))
        self.stored: dict[Value, StoredValue] = {}
        escaping = {region.sources[v].base for v in region.outputs}
        for i, group in enumerate(self.groups):
            for value in _made(group):
                readers = {self.step[n] for n in region.consumers[value]} - {i}
                if readers or value in escaping:
                    uses = tuple(sorted(readers))
                    self.stored[value] = StoredValue(size_of(value), i, uses, value in escaping)
        self.written: dict[int, int] = {}
        for node, i in self.step.items():
            for reference in writes_of(node):
                number = region.variable(reference)
                self.written[number] = min(i, self.written.get(number, i))

    def last(self, stored: StoredValue) -> int:
        """The last step at which a value must be there."""
        return len(self.groups) - 1 if stored.kept else max(stored.uses, default=stored.made)

    @property
    def peak(self) -> int:
        return live_peak([Lifetime(s.size, s.made, self.last(s)) for s in self.stored.values()])

    def exact(self) -> set[tuple[str, ...]]:
        """The groups whose results depend on what is in them, to the last bit: those that sum, and
        those that don't round all they compute. Each as its kind, its nodes and what it stores.
        """
        return {
            (group.kind, *(n.name for n in _members(group)), *self._stores(group))
            for group in self.groups
            if group.kind not in SINGLE or any(map(_is_narrow, _made(group)))
        }

    def _stores(self, group: Group) -> list[str]:
        stores = [v.name for v in _made(group) if v in self.stored]
        return ["several"] if group.kind in PRODUCTS and len(stores) > 1 else stores


def size_of(value: Value) -> int:
    """The bytes of a value."""
    return prod(value.type.sizes or ()) * value.dtype.base_dtype.size


def _is_narrow(value: Value) -> bool:
    return value.dtype.base_dtype.name in NARROW and not is_again(value.op)


def _members(group: Group) -> list[Node]:
    if group.copied is not None:
        return [group.copied.op]
    twins = group.twin.nodes if group.twin is not None else []
    return [*group.before, *group.nodes, *twins]


def _made(group: Group) -> list[Value]:
    """The values that a group computes."""
    if group.copied is not None:
        return [group.copied]
    return [v for n in _members(group) for v in n.outputs if not is_reference(v)]
