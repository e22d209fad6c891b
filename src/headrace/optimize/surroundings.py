"""Where operations stand. In: a StepGraph. Out: for each operation the loop that it is in, and the
sides of branches: the values that predicates must have had for it to run.

Sides are those of branches outside of all loops: in a loop, one iteration may take one side and the
next one the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.graph.flow import Flow
from headrace.graph.lowering import Pass
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph

__all__ = ["Frame", "Sides", "around", "entered", "exclude", "frames_of", "passes", "sides_of"]

# A loop: the one around it, and the name of its frame. None outside of all.
Frame = Any


def frames_of(step: StepGraph) -> dict[Operation, Frame]:
    """The loop that each operation is in: an Enter is outside of its own, an Exit inside."""
    if not step.steers:
        return dict.fromkeys(step.operations)
    fed = set(step.feeds)
    found: dict[Operation, Frame] = {}
    for op in step.operations:
        inside: Iterable[Operation] = (t.op for t in op._inputs if t not in fed)
        frames = (_given_in(s, found[s]) for s in (*inside, *op._control_inputs) if s in found)
        found[op] = max(frames, key=_depth, default=None)
    return found


def _given_in(op: Operation, frame: Frame) -> Frame:
    """The loop in which the results of an operation of a loop are."""
    if op.definition.flow is Flow.ENTER:
        return entered(op, frame)
    if op.definition.flow is Flow.EXIT and frame is not None:
        return frame[0]
    return frame


def entered(enter: Operation, frame: Frame) -> Frame:
    return frame, enter._attrs["frame_name"]


def around(frame: Frame) -> Iterator[Frame]:
    """A loop and those around it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame[0]


def _depth(frame: Frame) -> int:
    return 0 if frame is None else 1 + _depth(frame[0])


Sides = frozenset[tuple[Tensor, bool]]


def sides_of(
    step: StepGraph, frames: Mapping[Operation, Frame]
) -> tuple[dict[Operation, Sides], dict[Tensor, Sides]]:
    """The sides of branches that each operation, and each tensor, is on."""
    if not step.steers:
        return dict.fromkeys(step.operations, frozenset()), {}
    fed = set(step.feeds)
    given: dict[Tensor, Sides] = {}
    found: dict[Operation, Sides] = {}
    for op in step.operations:
        inputs = [given.get(t, frozenset()) for t in op._inputs]
        if op.definition.flow is Flow.MERGE:
            own = frozenset.intersection(*inputs)
        else:
            controls = (found.get(c, frozenset()) for c in op._control_inputs)
            own = frozenset().union(*inputs, *controls)
        found[op] = own
        for t in op._outputs:
            switched = op.definition.flow is Flow.SWITCH and frames[op] is None
            given[t] = own | {(_predicate(op, fed), bool(t.value_index))} if switched else own
    return found, given


def _predicate(switch: Operation, fed: set[Tensor]) -> Tensor:
    """What decides a Switch, under one name. A variable may have changed before another Switch
    reads it: only those agree that take what one Identity has read.
    """
    t = given = switch._inputs[1]
    while t not in fed and (passes(t.op) or t.op.definition.flow is Flow.SWITCH):
        t = t.op._inputs[0]
    if not t.dtype._is_ref_dtype:
        return t
    direct = given is t or given.op._inputs[0] is t
    return switch._outputs[0] if direct else given


def exclude(one: Sides, other: Sides) -> bool:
    """Whether operations on these sides never run in the same step."""
    return any((predicate, not side) in other for predicate, side in one)


def passes(op: Operation) -> bool:
    """Whether an operation gives its only input as it is."""
    return isinstance(op.definition.lower, Pass) and len(op._inputs) == len(op._outputs) == 1
