"""Estimate a region's memory over time. In: a region. Out: its groups as steps, and for each stored
value the steps between which it lives.

Values that stay in registers inside a group take no memory, nor do views, constants, inputs and
variables. Conversions between layouts and buffers that kernels pack for themselves are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from headrace._src.compile.plan.pack_arena import Lifetime, live_peak
from headrace._src.compile.regions.fuse import fuse
from headrace._src.compile.regions.groups import Group, is_again
from headrace._src.compile.regions.layouts import blocked_values
from headrace._src.compile.regions.region import Region, is_reference, writes_of
from headrace._src.devices.target import host
from headrace._src.graph.dataflow import Node, Value

__all__ = ["NARROW", "PRODUCTS", "SINGLE", "MemoryTimeline", "StoredValue", "size_of"]

NARROW = ("bfloat16", "float16")  # rounded where they are stored
# Groups that compute each element by itself, so that other nodes in them don't change results.
SINGLE = ("map", "join", "copy")
# Groups whose kernels don't depend on the values that their epilogues store, if these are several
# (an epilogue with one result may be oneDNN's).
PRODUCTS = ("contraction", "convolution")


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value in memory: the step that computes it and those that read it, in order; `kept`: it
    leaves the region.
    """

    size: int
    made: int
    uses: tuple[int, ...]
    kept: bool


class MemoryTimeline:
    """The steps of a region: the `step` of each node, the `stored` values, the steps at which
    variables are first `written`, and the `peak` of live bytes.
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
        """Return the last step at which a value must be in memory."""
        return len(self.groups) - 1 if stored.kept else max(stored.uses, default=stored.made)

    @property
    def peak(self) -> int:
        return live_peak([Lifetime(s.size, s.made, self.last(s)) for s in self.stored.values()])

    def exact(self) -> set[tuple[str, ...]]:
        """Return the groups whose results may change in the last bit with the nodes in them: those
        that sum, and those that don't round all values. Each as its kind, nodes and stored values.
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
