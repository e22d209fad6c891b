"""Stages of the nodes in a partition, which bound the regions that are compiled as one. In: a
partition whose Sends and Recvs have stages (see partition.stages). Out: a stage for each node.

A process compiles its partitions without seeing those of the others. A region that both waits for a
Recv and makes what that Recv's sender waits for would never run. Stages exclude this: a Recv has a
greater stage than its Send. A node may join a region of stage k if each Recv that it depends on has
a stage of at most k, and each Send that depends on it has one of at least k. A region then reaches
other partitions with greater stages only, so the regions of all partitions have no cycle, whatever
each process decides (`keeps_stages` is the whole condition, on nodes and on compiled regions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.ops.base.transfers import is_recv, is_send

__all__ = ["arrivals", "has_stages", "in_stages", "keeps_stages", "region_stages"]


def has_stages(nodes: Iterable[Node]) -> bool:
    """Return whether some of the nodes are Recvs with stages."""
    return any(is_recv(n) and n.attrs["stage"] >= 0 for n in nodes)


def arrivals(nodes: Sequence[Node]) -> dict[Node, int]:
    """Return the earliest stage of each node: the greatest one of the Recvs that it depends on."""
    found: dict[Node, int] = {}
    for node in nodes:
        before = [found.get(v.producer, 0) for v in node.inputs]  # type: ignore[arg-type]
        before += [found.get(c, 0) for c in node.controls]
        found[node] = max(before, default=0)
        if is_recv(node):
            found[node] = max(found[node], node.attrs["stage"])
    return found


def region_stages(nodes: Sequence[Node], is_heavy: Callable[[Node], bool]) -> dict[Node, int]:
    """Return the stage of the region that each node may join: the latest possible one, which gives
    few regions, but for heavy nodes and what they need the earliest that lets those begin soon.
    """
    earliest = arrivals(nodes)
    last = max(earliest.values(), default=0)
    found: dict[Node, int] = dict.fromkeys(nodes, last)
    for node in reversed(nodes):
        if is_send(node):
            found[node] = min(found[node], node.attrs["stage"])
        elif is_heavy(node):
            found[node] = min(found[node], earliest[node])
        for before in (*(v.producer for v in node.inputs), *node.controls):
            if before in found:
                found[before] = min(found[before], found[node])  # type: ignore[index]
    return found


def keeps_stages(flow: Dataflow) -> bool:
    """Return whether no Send depends on a Recv of a greater stage than its own."""
    earliest = arrivals(flow.nodes)
    sends = (n for n in flow.nodes if is_send(n) and n.attrs["stage"] >= 0)
    return all(earliest[send] <= send.attrs["stage"] for send in sends)


def in_stages(flow: Dataflow) -> tuple[Node, ...]:
    """Return the nodes of a partition in order of their earliest stages. In each stage, what other
    partitions wait for comes first, Sends come as soon and Recvs as late as possible; otherwise the
    flow's order is kept.

    A partition that runs in this order, and waits where a Recv has no value yet, waits for a Send
    that is behind Recvs of smaller stages only. So partitions cannot wait in a circle.
    """
    earliest = arrivals(flow.nodes)
    waiting: dict[Node, int] = {}
    followers: dict[Node, list[Node]] = {node: [] for node in flow.nodes}
    for node in flow.nodes:
        sources = {*(v.producer for v in node.inputs), *node.controls} & followers.keys()
        waiting[node] = len(sources)
        for source in sources:
            followers[source].append(node)  # type: ignore[index]
    urgent = _awaited_elsewhere(flow.nodes, earliest)
    rank = {
        node: (
            earliest[node],
            node not in urgent,
            0 if is_send(node) else 2 if is_recv(node) else 1,
            i,
        )
        for i, node in enumerate(flow.nodes)
    }
    ready = [(rank[node], node) for node, count in waiting.items() if not count]
    heapify(ready)
    order: list[Node] = []
    while ready:
        node = heappop(ready)[1]
        order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(ready, (rank[follower], follower))
    return tuple(order)


def _awaited_elsewhere(nodes: Sequence[Node], earliest: dict[Node, int]) -> set[Node]:
    """Return the nodes that a Send of the same earliest stage needs."""
    found: set[Node] = set()
    for node in reversed(nodes):
        if is_send(node):
            found.add(node)
        if node in found:
            before = (*(v.producer for v in node.inputs), *node.controls)
            found.update(n for n in before if earliest.get(n) == earliest[node])  # type: ignore[arg-type, misc]
    return found
