"""Inline functions. In: a Dataflow. Out: the same with function calls in structured form.

A call becomes a CALL that holds the flow of the function's body, a functional branch an IF, a
functional loop a WHILE: from there on they are like those of tf.cond and tf.while_loop. Recursive
calls, calls of functions marked `noinline`, and calls of bodies that may block or have no
structured form are kept; their kernels run the bodies as steps of their own.

The caller places the nodes of the bodies, which are in no graph that was placed before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace._src.graph.dataflow import Dataflow, Node, rewrite
from headrace._src.graph.definition import Effect
from headrace._src.graph.graph_functions import GraphFunction
from headrace._src.graph.structured import Unraisable, effect_of, with_effect
from headrace._src.optimize.prune import prune
from headrace._src.optimize.raising import raise_structure
from headrace._src.optimize.reread_references import reread

__all__ = ["inline"]

Place = Callable[[Dataflow], Dataflow]


def inline(flow: Dataflow, place: Place = lambda body: body) -> Dataflow:
    """Return the flow with the bodies of the functions that it calls; `place` gives their nodes
    devices.
    """
    return _inlined(flow, place, ())


def _inlined(flow: Dataflow, place: Place, within: tuple[GraphFunction, ...]) -> Dataflow:
    return rewrite(flow, lambda node: _structured(node, place, within)) if flow.calls else flow


def _structured(node: Node, place: Place, within: tuple[GraphFunction, ...]) -> Node | None:
    rule = node.definition.calls
    if rule is None or any(v.dtype._is_ref_dtype for v in node.inputs):
        return None
    called = rule(node.origin)
    if called is None:
        return None
    try:
        parts = {name: _part(function, place, within) for name, function in called.parts.items()}
    except Unraisable:
        return None
    attrs = {
        "Tin": tuple(v.dtype for v in node.inputs),
        "Tout": tuple(t.dtype for t in node.types),
        **called.attrs,
        **parts,
    }
    definition = with_effect(called.kind, effect_of(parts.values()))
    return replace(node, definition=definition, attrs=attrs)


def _part(function: GraphFunction, place: Place, within: tuple[GraphFunction, ...]) -> Dataflow:
    if function in within or function.attrs.get("_noinline"):
        raise Unraisable(f"function '{function.name}' is not to be inlined")
    flow = prune(function.outputs, function.targets, function.inputs)
    if any(node.definition.effect is Effect.BLOCKS for node in flow.nodes):
        raise Unraisable(f"function '{function.name}' may wait")
    flow = raise_structure(_inlined(place(reread(flow)), place, (*within, function)))
    return replace(flow, targets=())
