"""Simplify. In: a Dataflow. Out: the same, with nodes replaced by what their ops say is simpler.

The rules stand with the ops (`simplify` of a definition; ops.simplify has those that ops share):
neutral elements, what undoes itself, moves that move nothing. Each keeps results to the last bit.
A node that others wait for, or that waits itself, goes only if the order stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.graph.dataflow import Dataflow, Feed, Node, Value, rewrite

__all__ = ["simplify"]


def simplify(flow: Dataflow) -> Dataflow:
    """Ask every node's op for a simpler form, until it has none."""
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
    """Whether all that the node waits for, its values wait for anyway."""
    waits = set(node.controls)
    return not waits or all(
        not isinstance(v.producer, Feed) and waits <= {v.producer, *v.producer.controls}
        for v in values
    )
