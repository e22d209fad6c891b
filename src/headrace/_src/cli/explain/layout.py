"""Arrange a drawing in layers. In: items and edges between them. Out: layers from top to bottom,
each with the order of its items and of the bends of edges that pass through it.

This is Sugiyama's method: break cycles, give each item a layer below everything it needs, let long
edges pass through bends, then sort each layer by the positions of the neighbours.
Edges from one item share their bends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Bend", "Layers", "layered"]

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Bend:
    """The point where edges from an item cross a layer."""

    source: Hashable
    layer: int


@dataclass
class Layers:
    """`rows`: the items and bends of each layer. `links`: pairs of neighbours in consecutive
    layers. `routes`: the bends of each edge that has any.
    """

    rows: list[list[Hashable]]
    links: list[tuple[Hashable, Hashable]] = field(default_factory=list)
    routes: dict[tuple[Hashable, Hashable], list[Bend]] = field(default_factory=dict)


def layered(items: Sequence[Hashable], edges: Iterable[tuple[Hashable, Hashable]]) -> Layers:
    """Arrange items in layers so that edges point down; edges that close a cycle point up."""
    unique = [(a, b) for a, b in dict.fromkeys(edges) if a != b]
    down = _without_cycles(items, unique)
    rank = _ranks(items, down)
    rows: list[list[Hashable]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for item in items:
        rows[rank[item]].append(item)
    found = Layers(rows)
    links: dict[tuple[Hashable, Hashable], None] = {}
    bends: set[Bend] = set()
    for a, b in down:
        path = [Bend(a, layer) for layer in range(rank[a] + 1, rank[b])]
        if path:
            found.routes[a, b] = path
        for bend in path:
            if bend not in bends:
                bends.add(bend)
                rows[bend.layer].append(bend)
        links.update(dict.fromkeys(zip((a, *path), (*path, b), strict=True)))
    found.links = list(links)
    _sort(found)
    return found


def _without_cycles(
    items: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]
) -> list[tuple[Hashable, Hashable]]:
    """Return the edges that close no cycle; items are visited in their order."""
    after: dict[Hashable, list[Hashable]] = {item: [] for item in items}
    for a, b in edges:
        after[a].append(b)
    kept: list[tuple[Hashable, Hashable]] = []
    state = dict.fromkeys(items, 0)  # 0: not seen, 1: on the path, 2: done
    for root in items:
        if state[root]:
            continue
        state[root] = 1
        path = [(root, iter(after[root]))]
        while path:
            item, rest = path[-1]
            for follower in rest:
                if state[follower] == 1:
                    continue
                kept.append((item, follower))
                if not state[follower]:
                    state[follower] = 1
                    path.append((follower, iter(after[follower])))
                    break
            else:
                state[item] = 2
                path.pop()
    return kept


def _ranks(
    items: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]
) -> dict[Hashable, int]:
    """Return the layer of each item: below everything it needs; an item that needs nothing is
    placed right above its first use.
    """
    before: dict[Hashable, int] = dict.fromkeys(items, 0)
    after: dict[Hashable, list[Hashable]] = {item: [] for item in items}
    for a, b in edges:
        before[b] += 1
        after[a].append(b)
    sources = [item for item in items if not before[item] and after[item]]
    rank = dict.fromkeys(items, 0)
    ready = [item for item in items if not before[item]]
    while ready:
        item = ready.pop()
        for follower in after[item]:
            rank[follower] = max(rank[follower], rank[item] + 1)
            before[follower] -= 1
            if not before[follower]:
                ready.append(follower)
    for item in sources:
        rank[item] = min(rank[follower] for follower in after[item]) - 1
    return rank


def _sort(found: Layers) -> None:
    """Sort each layer by the mean position of the neighbours above, then below, a few times."""
    above: dict[Hashable, list[Hashable]] = {}
    below: dict[Hashable, list[Hashable]] = {}
    for a, b in found.links:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    place = {item: i for row in found.rows for i, item in enumerate(row)}

    def by(neighbours: dict[Hashable, list[Hashable]], row: list[Hashable]) -> None:
        def mean(item: Hashable) -> float:
            others = neighbours.get(item)
            return sum(map(place.__getitem__, others)) / len(others) if others else place[item]

        row.sort(key=mean)
        place.update({item: i for i, item in enumerate(row)})

    for sweep in range(_SWEEPS):
        if sweep % 2 == 0:
            for row in found.rows[1:]:
                by(above, row)
        else:
            for row in reversed(found.rows[:-1]):
                by(below, row)
