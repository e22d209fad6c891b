"""Join groups that should not be apart. In: a Problem. Out: the same problem with fewer groups, and
the group that each one became part of.

A group whose whole work takes less time than one of its transfers gains nothing from a device of
its own: it joins the group at the other end. Chains of small operations, and variables with the
operation that reads them, become single groups, so that fewer choices are left and a search moves
all of them at once.
"""

from __future__ import annotations

import math
from dataclasses import replace

from headrace._src.place.cost_graph import Assignment, CostGraph, Problem

__all__ = ["contract", "expanded"]


def contract(problem: Problem, strength: float = 1.0) -> tuple[Problem, list[int]]:
    """Return the problem with joined groups, and for each group the number of the one that it is
    in. The dearest transfers, compared with the work at their ends, are considered first. Groups
    without a common device, or with more state than a device can hold, stay apart.

    strength: if it is above 1, groups whose work takes less time than so many of their transfers
    are joined too, up to a quarter of a device's share of the whole work.
    """
    joined = _Joined(problem)
    whole = sum(joined.work)
    numbers = range(len(problem.cluster.devices))
    pairs = [problem.links[a][b] for a in numbers for b in numbers if a != b]
    if pairs:
        latency = sum(seconds for seconds, _ in pairs) / len(pairs)
        per_byte = sum(seconds for _, seconds in pairs) / len(pairs)
        edges = []
        for output, producer in enumerate(problem.producer):
            a = problem.group[producer]
            seconds = latency + problem.size[output] * per_byte
            for b in dict.fromkeys(problem.group[r] for r in problem.readers[output]):
                if a != b:
                    least = min(joined.work[a], joined.work[b])
                    edges.append((-seconds / (least + 1e-9), a, b, seconds))
        edges.sort()
        for _, a, b, seconds in edges:
            joined.join(a, b, seconds)
        if strength > 1:
            most = whole / (4 * len(numbers))
            for _, a, b, seconds in edges:
                joined.join(a, b, strength * seconds, most)
    roots = [joined.find(g) for g in range(len(problem.feasible))]
    number = {root: n for n, root in enumerate(dict.fromkeys(roots))}
    into = [number[root] for root in roots]
    items = tuple(replace(item, group=into[item.group]) for item in problem.graph.items)
    names = tuple(problem.graph.groups[root] for root in number)
    graph = CostGraph(items, problem.graph.outputs, names)
    return Problem(graph, problem.cluster, [joined.feasible[root] for root in number]), into


def expanded(assignment: Assignment, into: list[int]) -> Assignment:
    """Return the assignment of the groups of which joined ones were made."""
    return tuple(assignment[g] for g in into)


class _Joined:
    """Groups under union-find, each with its work in seconds, its state and its devices."""

    def __init__(self, problem: Problem) -> None:
        self.root = list(range(len(problem.feasible)))
        self.feasible = [tuple(able) for able in problem.feasible]
        self.state = list(problem.state)
        self.work = [
            min(sum(problem.seconds[i][d] for i in members) for d in able)
            for members, able in zip(problem.members, self.feasible, strict=True)
        ]
        self.memory = [device.memory for device in problem.cluster.devices]

    def find(self, group: int) -> int:
        root = self.root
        while root[group] != group:
            root[group] = root[root[group]]
            group = root[group]
        return group

    def join(self, a: int, b: int, seconds: float, most: float = math.inf) -> None:
        """Join two groups if the work of one of them takes no longer than `seconds`, and that of
        both no longer than `most`.
        """
        a, b = self.find(a), self.find(b)
        if a == b or seconds < min(self.work[a], self.work[b]):
            return
        if self.work[a] + self.work[b] > most:
            return
        state = self.state[a] + self.state[b]
        both = tuple(d for d in self.feasible[a] if d in self.feasible[b] and self._fits(state, d))
        if both:
            self.root[b] = a
            self.work[a] += self.work[b]
            self.state[a], self.feasible[a] = state, both

    def _fits(self, state: int, device: int) -> bool:
        limit = self.memory[device]
        return limit is None or state <= limit
