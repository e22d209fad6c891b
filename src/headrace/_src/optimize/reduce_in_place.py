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

_MARK = "in_place"  # the attribute of collectives that can do so


def reduce_in_place(flow: Dataflow) -> Dataflow:
    """Mark the collectives whose inputs are in memory that nothing else uses."""
    if not any(map(_can, flow.nodes)):
        return flow
    reads = Counter([*(v for n in flow.nodes for v in n.inputs), *flow.fetches])
    reads.update(flow.returns.values())

    def is_spare(value: Value) -> bool:
        made = value.producer
        return isinstance(made, Node) and made.definition.is_fresh and reads[value] == 1

    def rule(node: Node) -> Node | None:
        if not _can(node) or not all(map(is_spare, node.inputs)):
            return None
        return replace(node, attrs={**node.attrs, _MARK: True})

    return rewrite(flow, rule)


def _can(node: Node) -> bool:
    definition = node.definition
    return definition.shares and _MARK in definition.schema.attributes
