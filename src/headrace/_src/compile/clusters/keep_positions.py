"""Keep the positions of maxima from one region to another. In: a Dataflow and its nodes as runs of
regions. Out: the same, in which a max-pool whose gradient is in another region stores where its
maxima are, and the gradient reads that.

Within a region the builder of a plan does this by itself. Between regions the positions are a value
of their own, one byte for each window. Without them the gradient would need the pool's input, which
is larger, and would have to find the maxima a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace._src.compile.clusters.spread_reads import Runs
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.lowering.window_anchors import pooling_of
from headrace._src.ops.nn.pool_positions import gradient_at_positions, pool_with_positions

__all__ = ["keep_positions"]


def keep_positions(
    flow: Dataflow, runs: Runs, takes: Callable[[Node], bool]
) -> tuple[Dataflow, Runs]:
    """Store the positions of the maxima that gradients in other regions need. takes: whether the
    compiler of a node's region has kernels for that.
    """
    found = _pairs(runs, takes)
    if not found:
        return flow, runs
    pools = set(found.values())
    nodes: dict[Node, Node] = {}
    values: dict[Value, Value] = {}

    def changed(node: Node) -> Node:
        inputs = tuple(values.get(v, v) for v in node.inputs)
        controls = tuple(nodes.get(c, c) for c in node.controls)
        same = inputs == node.inputs and controls == node.controls
        new = node if same else node.moved(inputs, controls)
        if node in found:
            new = gradient_at_positions(new, nodes[found[node]])
        elif node in pools:
            new = pool_with_positions(new)
        if new is not node:
            nodes[node] = new
            values.update(zip(node.outputs, new.outputs, strict=False))
        return new

    inside = {node for _, run in runs for node in run}
    free = [node for node in flow.nodes if node not in inside]  # constants, which read nothing
    runs = [(compiled, [changed(node) for node in run]) for compiled, run in runs]
    flow = replace(
        flow,
        nodes=(*free, *(node for _, run in runs for node in run)),
        fetches=tuple(values.get(v, v) for v in flow.fetches),
        targets=tuple(nodes.get(n, n) for n in flow.targets),
    )
    return flow, runs


def _pairs(runs: Runs, takes: Callable[[Node], bool]) -> dict[Node, Node]:
    """Return the max-pool of each gradient that some gradient of the same pool is not in one region
    with.
    """
    number = {n: i for i, (compiled, run) in enumerate(runs) if compiled for n in run}
    pools: dict[Node, Node] = {}
    for node in number:
        pool = _undone_by(node)
        if pool in number and takes(pool) and takes(node):
            pools[node] = pool
    apart = {pool for node, pool in pools.items() if number[node] != number[pool]}
    return {node: pool for node, pool in pools.items() if pool in apart}


def _undone_by(node: Node) -> Node | None:
    """Return the max-pool that a node is the gradient of; None for other nodes."""
    geometry = pooling_of(node)
    if geometry is None or (geometry.kind, geometry.direction) != ("max", "gradient"):
        return None
    x, y, *_ = node.inputs
    pool = y.producer
    if not isinstance(pool, Node) or x not in pool.inputs:
        return None
    same = pooling_of(pool) == replace(geometry, direction="forward")
    # Where the window is an input, it is not an attribute.
    return pool if same and "ksize" in node.attrs and "ksize" in pool.attrs else None
