"""Reduce in place. In: a Dataflow. Out: the same; a collective whose inputs nothing else reads may
put its results into their memory.

So the lines that a process has read to reduce them are those that it writes, and the results need
no memory of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace._src.graph.dataflow import Dataflow, Node, Value, rewrite

__all__ = ["reduce_in_place"]


def reduce_in_place(flow: Dataflow) -> Dataflow:
    """Mark the collectives whose inputs are in memory that nothing else uses."""
    if not any(n.definition.works_in_place for n in flow.nodes):
        return flow
    reads = Counter([*(v for n in flow.nodes for v in n.inputs), *flow.fetches])
    reads.update(flow.returns.values())

    def is_spare(value: Value) -> bool:
        made = value.producer
        return isinstance(made, Node) and made.definition.is_fresh and reads[value] == 1

    def rule(node: Node) -> Node | None:
        if not node.definition.works_in_place or not all(map(is_spare, node.inputs)):
            return None
        return replace(node, attrs={**node.attrs, "in_place": True})

    return rewrite(flow, rule)
