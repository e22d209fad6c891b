"""The surroundings of nodes. In: a Dataflow with primitives. Out: for each node its loop, and the
sides of branches that it is on: the values that predicates must have had for it to run.

Sides are those of branches outside all loops: in a loop, one iteration may take one side and the
next one the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.lowering.rules import Pass

__all__ = ["Frame", "Sides", "around", "entered", "exclude", "frames_of", "passes", "sides_of"]

# A loop: its outer loop, and the name of its frame. None outside all loops.
Frame = Any


def frames_of(flow: Dataflow) -> dict[Node, Frame]:
    """Return the loop of each node: an Enter is outside its own loop, an Exit inside."""
    if not flow.steers:
        return dict.fromkeys(flow.nodes)
    found: dict[Any, Frame] = {}
    for node in flow.nodes:
        sources: list[Any] = [*(v.producer for v in node.inputs), *node.controls]
        frames = (_given_in(s, found[s]) for s in sources if s in found)
        found[node] = max(frames, key=_depth, default=None)
    return found


def _given_in(node: Node, frame: Frame) -> Frame:
    """Return the loop of a node's results, given the node's loop."""
    if node.definition.flow is Flow.ENTER:
        return entered(node, frame)
    if node.definition.flow is Flow.EXIT and frame is not None:
        return frame[0]
    return frame


def entered(enter: Node, frame: Frame) -> Frame:
    """Return the loop that an Enter passes its data to, given the loop that it is in."""
    return frame, enter.attrs["frame_name"]


def around(frame: Frame) -> Iterator[Frame]:
    """Return a loop and its outer loops, innermost first."""
    while frame is not None:
        yield frame
        frame = frame[0]


def _depth(frame: Frame) -> int:
    return 0 if frame is None else 1 + _depth(frame[0])


Sides = frozenset[tuple[Value, bool]]
_NONE: Sides = frozenset()


def sides_of(
    flow: Dataflow, frames: Mapping[Node, Frame]
) -> tuple[dict[Node, Sides], dict[Value, Sides]]:
    """Return the sides of branches that each node, and each value, is on."""
    if not flow.steers:
        return dict.fromkeys(flow.nodes, _NONE), {}
    given: dict[Value, Sides] = {}
    found: dict[Node, Sides] = {}
    for node in flow.nodes:
        inputs = [given.get(v, _NONE) for v in node.inputs]
        if node.definition.flow is Flow.MERGE:
            own = frozenset.intersection(*inputs)
        else:
            own = _NONE.union(*inputs, *(found[c] for c in node.controls))
        found[node] = own
        switched = node.definition.flow is Flow.SWITCH and frames[node] is None
        for v in node.outputs:
            given[v] = own | {(_predicate(node), bool(v.index))} if switched else own
    return found, given


def _predicate(switch: Node) -> Value:
    """Return the value that decides a Switch, under one name. A variable may change before another
    Switch reads it: only Switches on the result of the same Identity agree.
    """
    v = given = switch.inputs[1]
    while isinstance(v.producer, Node) and _gives_input(v.producer):
        v = v.producer.inputs[0]
    if not v.dtype._is_ref_dtype:
        return v
    direct = given is v or given.op.inputs[0] is v
    return switch.outputs[0] if direct else given


def _gives_input(node: Node) -> bool:
    return passes(node) or node.definition.flow is Flow.SWITCH


def exclude(one: Sides, other: Sides) -> bool:
    """Whether nodes on these sides never run in the same step."""
    return any((predicate, not side) in other for predicate, side in one)


def passes(node: Node) -> bool:
    """Whether a node returns its only input unchanged."""
    return isinstance(node.definition.lower, Pass) and len(node.inputs) == len(node.types) == 1
