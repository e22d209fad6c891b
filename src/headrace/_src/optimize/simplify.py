"""Simplify. In: a Dataflow. Out: the same, with nodes replaced by simpler forms from their ops.

The rules belong to the ops (`simplify` of a definition; ops.base.simplify_rules has those that ops
share): neutral elements, operations that cancel out, moves that move nothing. Each keeps results to
the last bit. A node with controls, or that others wait for, is removed only if the order is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, rewrite

__all__ = ["simplify"]


def simplify(flow: Dataflow) -> Dataflow:
    """Replace every node by its op's simpler form, until there is none."""
    return rewrite(flow, _simplify_node)


def _simplify_node(node: Node) -> Node | Sequence[Value] | None:
    simpler: Node = node
    while simpler.constant is None and simpler.definition.simplify is not None:
        answer = simpler.definition.simplify(simpler)
        if answer is None:
            break
        if not isinstance(answer, Node):
            return answer if _keeps_order(simpler, answer) else _kept(node, simpler)
        simpler = answer
    return _kept(node, simpler)


def _kept(node: Node, simpler: Node) -> Node | None:
    return None if simpler is node else simpler


def _keeps_order(node: Node, values: Sequence[Value]) -> bool:
    """Whether the node's values already wait for everything that the node waits for."""
    waits = set(node.controls)
    return not waits or all(
        not isinstance(v.producer, Feed) and waits <= {v.producer, *v.producer.controls}
        for v in values
    )
