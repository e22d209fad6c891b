"""Join the items that would be compiled together. In: a CostGraph and an assignment. Out: the same
step with one item per cluster.

A compiled cluster waits for all its inputs and gives all its outputs at its end, so a step that is
split into clusters overlaps less than its single operations could. Items are in one cluster if they
are on one device, behind equally many transfers and before equally many: then no cluster waits for
itself, whatever goes back and forth between devices, and what others wait for is not in one cluster
with what they do not wait for. Sources that cost nothing (feeds, variables and their values) are
there before any cluster runs, and stay apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace._src.place.cost_graph import Assignment, CostGraph, CostItem, Output

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
    behind, before = [0] * len(where), [0] * len(where)  # the most transfers on a path
    edges = sorted(graph.outputs, key=lambda o: o.producer)
    for output in edges:
        a, passed = where[output.producer], behind[output.producer]
        for reader in output.readers:
            behind[reader] = max(behind[reader], passed + (where[reader] != a))
    for output in reversed(edges):
        i = output.producer
        for reader in output.readers:
            before[i] = max(before[i], before[reader] + (where[reader] != where[i]))
    free = _free_sources(graph)
    # Along an edge, `behind` never falls and `before` never rises: an order for the clusters.
    key = [
        (behind[i] - before[i], behind[i], not free[i], where[i], i if free[i] else 0)
        for i in range(len(graph.items))
    ]
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
        tuple(device for *_, device, _ in keys),
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


def _joined(number: int, members: list[CostItem]) -> CostItem:
    types = set.intersection(*(set(item.seconds) for item in members))
    seconds = {t: math.fsum(item.seconds[t] for item in members) for t in sorted(types)}
    kinds: dict[str, float] = {}
    for item in members:
        kinds[item.kind] = kinds.get(item.kind, 0.0) + max(item.seconds.values(), default=0.0)
    kind = max(kinds, key=lambda k: kinds[k])
    return CostItem(members[0].name, seconds, number, sum(item.state for item in members), kind)
