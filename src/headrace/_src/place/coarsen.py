"""Join the items that would be compiled together. In: a CostGraph and an assignment. Out: the same
step with one item per cluster.

A compiled cluster waits for all its inputs and gives all its outputs at its end, so a step that is
split into clusters overlaps less than its single operations could. Items are in one cluster if they
are on one device and behind equally many transfers: then no cluster waits for itself, whatever goes
back and forth between devices. Sources that cost nothing (feeds, variables and their values) are
there before any cluster runs, and stay apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace._src.place.cost_graph import Assignment, CostGraph, Item, Output

__all__ = ["Coarse", "coarsen"]


@dataclass(frozen=True)
class Coarse:
    """A step in clusters: its graph, the device of each cluster, the items in each cluster, and for
    each output the number that it had before.
    """

    graph: CostGraph
    assignment: Assignment
    members: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]


def coarsen(graph: CostGraph, assignment: Assignment) -> Coarse:
    """Return the step in clusters, each in a group of its own and named by its first item."""
    where = [assignment[item.group] for item in graph.items]
    depth = [0] * len(where)
    for output in sorted(graph.outputs, key=lambda o: o.producer):
        a, before = where[output.producer], depth[output.producer]
        for reader in output.readers:
            least = before + (where[reader] != a)
            if least > depth[reader]:
                depth[reader] = least
    free = _free_sources(graph)
    key = [(depth[i], not free[i], where[i], i if free[i] else 0) for i in range(len(graph.items))]
    keys = sorted(set(key))
    number = {each: n for n, each in enumerate(keys)}
    cluster = [number[each] for each in key]
    members: list[list[int]] = [[] for _ in keys]
    for item, n in enumerate(cluster):
        members[n].append(item)
    items = [_joined(n, [graph.items[i] for i in inside]) for n, inside in enumerate(members)]
    outputs, numbers = [], []
    for n, output in enumerate(graph.outputs):
        producer = cluster[output.producer]
        readers = {cluster[r] for r in output.readers} - {producer}
        if readers:
            outputs.append(Output(output.name, producer, output.size, tuple(sorted(readers))))
            numbers.append(n)
    return Coarse(
        CostGraph.apart(items, outputs),
        tuple(device for _, _, device, _ in keys),
        tuple(map(tuple, members)),
        tuple(numbers),
    )


def _free_sources(graph: CostGraph) -> list[bool]:
    """Return for each item whether neither it nor anything that it reads costs anything."""
    free = [not any(item.seconds.values()) for item in graph.items]
    for output in sorted(graph.outputs, key=lambda o: o.producer):
        if not free[output.producer]:
            for reader in output.readers:
                free[reader] = False
    return free


def _joined(number: int, members: list[Item]) -> Item:
    types = set.intersection(*(set(item.seconds) for item in members))
    seconds = {t: math.fsum(item.seconds[t] for item in members) for t in sorted(types)}
    kinds: dict[str, float] = {}
    for item in members:
        kinds[item.kind] = kinds.get(item.kind, 0.0) + max(item.seconds.values(), default=0.0)
    kind = max(kinds, key=lambda k: kinds[k])
    return Item(members[0].name, seconds, number, sum(item.state for item in members), kind)
