"""Order groups. In: groups and their dependencies. Out: the groups in an order that keeps little
memory alive. Of the groups that are ready, the one that frees most memory (or takes least) is next;
of equal ones, the one that comes first in the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from headrace._src.compile.regions.dependencies import bits_of
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.regions.region import Region
from headrace._src.graph.dataflow import Node, Value

__all__ = ["in_order"]

_NOTHING = 4096  # bytes that don't count


def in_order(
    region: Region,
    groups: Sequence[Group],
    group_of: Mapping[Node, Group],
    waits: Mapping[int, int],
    escaping: set[Value],
) -> list[Group]:
    """Order the groups. `waits`: the groups that each depends on, as bits; `escaping`: the values
    that leave the region.
    """
    numbered = {g.number: g for g in groups}
    followers: dict[int, list[int]] = {number: [] for number in numbered}
    missing: dict[int, int] = {}
    for number in numbered:
        missing[number] = waits[number].bit_count()
        for other in bits_of(waits[number]):
            followers[other].append(number)
    memory = _Memory(region, groups, group_of, escaping)
    ready = [number for number in numbered if not missing[number]]
    order: list[Group] = []
    while ready:
        best = min(ready, key=lambda n: (memory.change(n), n))
        ready.remove(best)
        order.append(numbered[best])
        memory.run(best)
        for number in followers[best]:
            missing[number] -= 1
            if not missing[number]:
                ready.append(number)
    assert len(order) == len(groups), "groups depend on each other in a circle"
    return order


class _Memory:
    """Tells how many live bytes running a group would add.

    State: the values that each group computes and reads; for each value, the groups that have yet
    to read it.
    """

    def __init__(
        self,
        region: Region,
        groups: Sequence[Group],
        group_of: Mapping[Node, Group],
        escaping: set[Value],
    ) -> None:
        self._makes: dict[int, int] = {}
        self._reads: dict[int, set[Value]] = {}
        self._left: dict[Value, set[int]] = {}
        for group in groups:
            members = {*group.nodes, *group.before}
            if group.twin is not None:
                members |= set(group.twin.nodes)
            made = 0
            for node in members:
                for value in node.outputs:
                    outside = [n for n in region.consumers[value] if n not in members]
                    if outside or value in escaping:
                        made += _bytes(value)
                    if outside and value not in escaping:
                        self._left[value] = {group_of[n].number for n in outside}
            self._makes[group.number] = made
        for value, readers in self._left.items():
            for number in readers:
                self._reads.setdefault(number, set()).add(value)

    def change(self, number: int) -> int:
        freed = sum(_bytes(v) for v in self._reads.get(number, ()) if self._left[v] == {number})
        change = self._makes[number] - freed
        return change if abs(change) > _NOTHING else 0

    def run(self, number: int) -> None:
        for value in self._reads.get(number, ()):
            self._left[value].discard(number)


def _bytes(value: Value) -> int:
    return prod(value.type.sizes or ()) * value.dtype.base_dtype.size
