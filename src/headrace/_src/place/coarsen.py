"""Join the items that would be compiled together. In: a Problem and an assignment. Out: the step on
its devices, with one item per cluster.

A compiled cluster waits for all its inputs and gives all its outputs at its end, so a step that is
split into clusters overlaps less than its single operations could. Items are in one cluster if they
are connected, on one device, behind equally many transfers and before equally many: then no cluster
waits for itself, whatever goes back and forth between devices, and what others wait for is not in
one cluster with what they do not wait for. Sources that cost nothing (feeds, variables and their
values) are there before any cluster runs, and stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace._src.place.cost_graph import Assignment, Problem

__all__ = ["PlacedStep", "coarsen", "one_by_one"]


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step on its devices, as the simulator runs it: tables by the number of an item or of an
    output.

    where, seconds: of each item. makes, reads: the outputs that it makes, those that it reads.
    producer, readers, size: of each output. members: the items of the CostGraph that each item
    stands for. outputs: the number that each output has there.
    """

    where: Sequence[int]
    seconds: Sequence[float]
    makes: Sequence[Sequence[int]]
    reads: Sequence[Sequence[int]]
    producer: Sequence[int]
    readers: Sequence[Sequence[int]]
    size: Sequence[int]
    members: Sequence[Sequence[int]]
    outputs: Sequence[int]


def one_by_one(problem: Problem, assignment: Assignment) -> PlacedStep:
    """Return the step with its items as they are."""
    where = [assignment[g] for g in problem.group]
    return PlacedStep(
        where,
        [seconds[device] for seconds, device in zip(problem.seconds, where, strict=True)],
        problem.makes,
        problem.reads,
        problem.producer,
        problem.readers,
        problem.size,
        [(i,) for i in range(len(where))],
        range(len(problem.size)),
    )


def coarsen(problem: Problem, assignment: Assignment) -> PlacedStep:
    """Return the step in clusters."""
    fine = one_by_one(problem, assignment)
    if len(set(assignment)) == 1:  # nothing waits for a transfer, so clusters change nothing
        return fine
    cluster, count = _clusters(fine)
    members: list[list[int]] = [[] for _ in range(count)]
    for item, n in enumerate(cluster):
        members[n].append(item)
    makes: list[list[int]] = [[] for _ in members]
    reads: list[list[int]] = [[] for _ in members]
    producers, readers, sizes, outputs = [], [], [], []
    for output, producer in enumerate(fine.producer):
        n = cluster[producer]
        reading = {cluster[r] for r in fine.readers[output]}
        reading.discard(n)
        if reading:
            number = len(outputs)
            makes[n].append(number)
            for reader in reading:
                reads[reader].append(number)
            producers.append(n)
            readers.append(sorted(reading))
            sizes.append(fine.size[output])
            outputs.append(output)
    where = [fine.where[inside[0]] for inside in members]
    seconds = [sum([fine.seconds[i] for i in inside]) for inside in members]
    return PlacedStep(where, seconds, makes, reads, producers, readers, sizes, members, outputs)


def _clusters(step: PlacedStep) -> tuple[list[int], int]:
    """Return the number of each item's cluster, each after those that it reads, and how many there
    are.
    """
    where, count = step.where, len(step.where)
    behind, before = [0] * count, [0] * count  # the most transfers on a path
    free = [seconds == 0.0 for seconds in step.seconds]  # so is all that it reads
    for i, outputs in enumerate(step.makes):
        a, passed = where[i], behind[i]
        for output in outputs:
            for reader in step.readers[output]:
                least = passed + (where[reader] != a)
                if least > behind[reader]:
                    behind[reader] = least
                if not free[i]:
                    free[reader] = False
    for i in range(count - 1, -1, -1):
        a, most = where[i], 0
        for output in step.makes[i]:
            for reader in step.readers[output]:
                most = max(most, before[reader] + (where[reader] != a))
        before[i] = most
    # Along an edge, `behind` never falls and `before` never rises: an order for the clusters.
    level = [(behind[i] - before[i], behind[i], not free[i], where[i]) for i in range(count)]
    first = list(range(count))  # an item that comes before and is connected, or itself
    for i, outputs in enumerate(step.makes):
        if not free[i]:
            for output in outputs:
                for reader in step.readers[output]:
                    if level[reader] == level[i]:
                        a, b = _root(first, i), _root(first, reader)
                        first[max(a, b)] = min(a, b)
    keys = [(each, _root(first, i)) for i, each in enumerate(level)]
    number = {key: n for n, key in enumerate(sorted(set(keys)))}
    return [number[key] for key in keys], len(number)


def _root(first: list[int], item: int) -> int:
    while first[item] != item:
        first[item] = first[first[item]]
        item = first[item]
    return item
