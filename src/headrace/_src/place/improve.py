"""Improve an assignment by local search. In: a Problem, an assignment, a budget of simulations.
Out: an assignment that is at least as good.

Neighbours of an assignment differ in one move: a group goes to another device; a chain of groups on
the critical path goes there together; a group goes there with all its neighbours on its device; two
groups of different devices change places. The first neighbour that is better is taken. Groups on
the critical path come first: a step can't become shorter unless one of them moves, or something
that delays one of them.

The search is deterministic, and ends at a local optimum or with its budget.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace._src.place.cost_graph import Assignment, Problem
from headrace._src.place.simulate import critical_items, score

__all__ = ["improve"]


def improve(
    problem: Problem, assignment: Assignment, budget: int = 1000, clustered: bool = False
) -> Assignment:
    """Return the best assignment that a local search finds with `budget` simulations. clustered:
    items will run in clusters (see place.coarsen).
    """
    if budget <= 0:
        return assignment
    best, reached = assignment, score(problem, assignment, clustered)
    tried = {assignment}
    improved = True
    while improved and budget > 0:
        improved = False
        for candidate in _neighbours(problem, best):
            if candidate in tried:
                continue
            tried.add(candidate)
            found = score(problem, candidate, clustered)
            budget -= 1
            if found < reached:
                best, reached, improved = candidate, found, True
            if improved or budget <= 0:
                break
    return best


def _neighbours(problem: Problem, at: Assignment) -> Iterator[Assignment]:
    critical = list(dict.fromkeys(problem.group[i] for i in critical_items(problem, at)))
    for run in _runs(critical, at):
        yield from _moves(problem, at, run)
    for group in critical:
        yield from _moves(problem, at, [group])
    for group in critical:
        yield from _moves(problem, at, _around(problem, at, group))
    others = sorted(set(range(len(at))) - set(critical), key=lambda g: (-_work(problem, g), g))
    for group in others:
        yield from _moves(problem, at, [group])
    for group in critical:
        for other in (*critical, *others):
            yield from _swap(problem, at, group, other)
    for group in others:
        yield from _moves(problem, at, _around(problem, at, group))


def _runs(critical: list[int], at: Assignment) -> Iterator[list[int]]:
    """Yield the longest runs of critical groups on one device, and their halves."""
    run: list[int] = []
    for group in [*critical, -1]:
        if run and (group < 0 or at[group] != at[run[-1]]):
            if len(run) > 1:
                yield run
            if len(run) > 3:
                yield run[: len(run) // 2]
                yield run[len(run) // 2 :]
            run = []
        run.append(group)


def _around(problem: Problem, at: Assignment, group: int) -> list[int]:
    """Return a group and its direct neighbours on the same device."""
    found = {group: None}
    for item in problem.members[group]:
        for output in problem.reads[item]:
            found[problem.group[problem.producer[output]]] = None
        for output in problem.makes[item]:
            for reader in problem.readers[output]:
                found[problem.group[reader]] = None
    return [g for g in found if at[g] == at[group]]


def _moves(problem: Problem, at: Assignment, groups: list[int]) -> Iterator[Assignment]:
    """Yield the assignments with all of `groups` on another device, where they may be there."""
    for device in problem.feasible[groups[0]]:
        if device != at[groups[0]]:
            moved = list(at)
            for group in groups:
                if device in problem.feasible[group]:
                    moved[group] = device
            yield tuple(moved)


def _swap(problem: Problem, at: Assignment, a: int, b: int) -> Iterator[Assignment]:
    if at[a] != at[b] and at[b] in problem.feasible[a] and at[a] in problem.feasible[b]:
        moved = list(at)
        moved[a], moved[b] = at[b], at[a]
        yield tuple(moved)


def _work(problem: Problem, group: int) -> float:
    """Return the seconds of a group on the first device that it may be on."""
    device = problem.feasible[group][0]
    return sum(problem.seconds[i][device] for i in problem.members[group])
