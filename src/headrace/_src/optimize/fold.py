"""Fold. In: a Dataflow. Out: the same, with the results of pure nodes on constants as constants.

Large results are left for the step to compute (a fill is cheaper than the memory to store it),
unless they are no larger than their inputs, which are stored anyway.
"""

from __future__ import annotations

from headrace._src.graph.dataflow import Dataflow, Node, rewrite
from headrace._src.optimize.evaluate import evaluate, is_known

__all__ = ["fold", "hold_constants"]

_MOST_ELEMENTS = 1 << 16


def fold(flow: Dataflow) -> Dataflow:
    """Evaluate nodes that depend only on constants."""
    return rewrite(flow, _fold_node)


def _fold_node(node: Node) -> Node | None:
    if node.constant is not None or not node.inputs:
        return None
    known = [v.constant for v in node.inputs]
    sizes = [v.size for v in known if v is not None]
    if len(sizes) < len(known):
        return None
    values = evaluate(node, max(_MOST_ELEMENTS, sum(sizes)))
    return None if values is None else is_known(node, values)


def hold_constants(flow: Dataflow) -> Dataflow:
    """Turn the client's Const nodes into constants, where nothing else is evaluated."""
    return rewrite(flow, _held)


def _held(node: Node) -> Node | None:
    rule = node.definition.fold
    if rule is None or node.inputs or node.controls or node.constant is not None:
        return None
    values = evaluate(node, 0)
    return None if values is None else is_known(node, values)
