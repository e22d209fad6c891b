"""Let regions begin as soon as what they need has come. In: the regions of a partition whose other
partitions are other processes'. Out: the same, divided where parts that have nothing to do with
each other wait for different tensors.

One region would wait for all of its tensors before it makes anything of the first one. Parts that
pass no values to each other lose nothing but a native call by being apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headrace._src.compile.clusters.spread_reads import Runs
from headrace._src.graph.dataflow import Node
from headrace._src.ops.base.transfers import is_recv

__all__ = ["separate_arrivals"]


def separate_arrivals(
    nodes: Sequence[Node], runs: Runs, is_worthwhile: Callable[[list[Node]], bool]
) -> Runs:
    """Divide the compiled runs, as far as each piece is worth a native call. `nodes`: those of all
    runs, in dependency order.
    """
    arrivals = _arrivals(nodes)
    found: Runs = []
    for compiled, run in runs:
        pieces = _pieces(run, arrivals) if compiled else [run]
        whole = len(pieces) == 1 or not all(map(is_worthwhile, pieces))
        found += [(compiled, piece) for piece in ([run] if whole else pieces)]
    return found


def _arrivals(nodes: Sequence[Node]) -> dict[Node, int]:
    """Return the Recvs that each node comes after, as bits."""
    found: dict[Node, int] = {}
    recvs = 0
    for node in nodes:
        before = (*(v.producer for v in node.inputs), *node.controls)
        bits = 0
        for each in before:
            bits |= found.get(each, 0)  # type: ignore[arg-type]
        if is_recv(node):
            bits |= 1 << recvs
            recvs += 1
        found[node] = bits
    return found


def _pieces(run: list[Node], arrivals: dict[Node, int]) -> list[list[Node]]:
    """Return the pieces of a run that pass no values to each other, those that come after the same
    Recvs as one, in an order that keeps all dependencies; the whole run if there is none.
    """
    number = {node: i for i, node in enumerate(run)}
    root = list(range(len(run)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for node in run:
        for value in node.inputs:
            if value.producer in number:
                root[find(number[node])] = find(number[value.producer])  # type: ignore[index]
    after: dict[int, int] = {}
    for node, i in number.items():
        after[find(i)] = after.get(find(i), 0) | arrivals[node]
    key = {node: after[find(i)] for node, i in number.items()}
    needs: dict[int, set[int]] = {each: set() for each in key.values()}
    for node in run:
        needs[key[node]] |= {key[c] for c in node.controls if c in key} - {key[node]}
    return [[n for n in run if key[n] == each] for each in _in_order(needs)] or [run]


def _in_order(needs: dict[int, set[int]]) -> Iterable[int]:
    """Return the keys such that each comes after those that it needs; none if they need each other
    in a circle.
    """
    order: list[int] = []
    left = dict(needs)
    while left:
        ready = next((each for each, before in left.items() if not before & left.keys()), None)
        if ready is None:
            return []
        order.append(ready)
        del left[ready]
    return order
