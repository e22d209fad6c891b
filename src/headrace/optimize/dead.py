"""Dead code. In: a Dataflow. Out: the same without the nodes that neither a fetch nor an effect
needs.

What changes state stays, and so do random ops, whose next numbers depend on how often they ran. A
placeholder that nobody fed stays even if its value has become needless: it's the user's mistake,
and must be told in every case.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.graph.dataflow import Dataflow, Feed, Node, Value, rewrite
from headrace.graph.definition import Effect

__all__ = ["remove_dead"]

_DROPPABLE = (Effect.PURE, Effect.READS, Effect.LOCAL)


def remove_dead(flow: Dataflow) -> Dataflow:
    """Keep what is needed; nodes that were only there to be waited for pass their waiting on."""
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
    """Whether a node (NoOp) does nothing but wait for others."""
    return not node.types and node.definition.effect is Effect.PURE


def _dissolve(node: Node) -> list[Value] | None:
    """Who waits for a hub may wait for what the hub waits for. One that joins several stays, since
    as many may wait for it.
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
