"""Dead code. In: a Dataflow. Out: the same without the nodes that neither a fetch nor an effect
needs.

Nodes that change state stay, and so do random ops, whose next numbers depend on how often they ran.
A placeholder that was not fed stays even if its value has become unnecessary: the user must get the
error in every case.
"""

from __future__ import annotations

from dataclasses import replace

from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, rewrite
from headrace._src.graph.definition import Effect

__all__ = ["remove_dead"]

_DROPPABLE = (Effect.PURE, Effect.READS, Effect.LOCAL)


def remove_dead(flow: Dataflow) -> Dataflow:
    """Keep the needed nodes; removed nodes that only order others pass on their controls."""
    flow = rewrite(flow, _dissolve)
    targets = _without_hubs(flow.targets)
    needed: set[Node] = set()
    stack: list[Node] = [*targets, *(n for n in flow.nodes if _must_run(n))]
    stack += [v.producer for v in flow.fetches if not isinstance(v.producer, Feed)]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(node.controls)
            stack += [v.producer for v in node.inputs if not isinstance(v.producer, Feed)]
    return replace(flow, nodes=tuple(n for n in flow.nodes if n in needed), targets=targets)


def _is_hub(node: Node) -> bool:
    """Whether a node (NoOp) only waits for others."""
    return not node.types and node.definition.effect is Effect.PURE


def _dissolve(node: Node) -> list[Value] | None:
    """Let nodes that wait for a hub wait for the hub's controls instead. A hub with several
    controls stays, since many nodes may wait for it.
    """
    return [] if _is_hub(node) and len(node.controls) <= 1 else None


def _without_hubs(targets: tuple[Node, ...]) -> tuple[Node, ...]:
    found: dict[Node, None] = {}
    stack = list(reversed(targets))
    while stack:
        node = stack.pop()
        if _is_hub(node):
            stack.extend(c for c in reversed(node.controls) if c not in found)
        else:
            found[node] = None
    return tuple(found)


def _must_run(node: Node) -> bool:
    if node.constant is not None or _is_hub(node):
        return False
    if node.definition.effect not in _DROPPABLE:
        return True
    return node.definition.effect is Effect.PURE and not node.inputs  # it can only fail
