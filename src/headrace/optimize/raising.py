"""Raise loops and branches. In: a StepGraph with Switches, Merges, Enters and their kin. Out: the
same with structured operations in their place, and none of the primitives left.

Loops come first, innermost first: a frame whose variables each go around through Enter, Merge,
Switch and NextIteration, with one predicate for all of these Switches, is a WHILE. What is left of
Switches and Merges are branches (optimize.branches).

`Unraisable` is raised for all else (conditions that cross, dead tensors that are fetched, ops in a
loop that may wait): then the step runs as it is, on the primitives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from headrace.graph.definition import Effect
from headrace.graph.flow import Flow
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.graph.structured import WHILE, Structured
from headrace.optimize.branches import raise_branches
from headrace.optimize.raised import Op, Stand, Unraisable, holders, in_order, part

__all__ = ["Unraisable", "raise_structure"]


def raise_structure(step: StepGraph) -> StepGraph:
    """The step in structured form; Unraisable if it has none."""
    if not step.steers:
        return step
    operations = raise_branches(_raise_loops(step), step, step.fetches, step.targets)
    return replace(step, operations=tuple(operations))


class _Frame:
    """A loop and its operations. `within` is the frame that it is in, None for the outermost."""

    def __init__(self, name: str, within: _Frame | None) -> None:
        self.name = name
        self.within = within
        self.depth = 0 if within is None else within.depth + 1
        self.enters: list[Operation] = []


def _raise_loops(step: StepGraph) -> list[Op]:
    """The operations of a step with every loop as one."""
    members = _frames(step)
    for frame in sorted(filter(None, members), key=lambda f: -f.depth):
        loop = _loop(frame, members.pop(frame), step)
        around, enters = members[frame.within], set(frame.enters)
        members[frame.within] = [*(op for op in around if op not in enters), loop]
    return in_order(members[None])


def _frames(step: StepGraph) -> dict[_Frame | None, list[Op]]:
    """Who is in which loop. An Enter stands in the frame around its own, an Exit in its own."""
    fed = set(step.feeds)
    found: dict[tuple[_Frame | None, str], _Frame] = {}
    reached: dict[Op, _Frame | None] = {}  # the frame in which what an operation gives is
    members: dict[_Frame | None, list[Op]] = {None: []}
    for op in step.operations:
        sources = [t.op for t in op._inputs if t not in fed] + list(op._control_inputs)
        where = {reached[s] for s in sources if s in reached}
        where |= {None for t in op._inputs if t in fed}
        if len(where) > 1:
            raise Unraisable(f"'{op.name}' has inputs from different frames")
        frame = where.pop() if where else None
        if op.definition.effect is Effect.BLOCKS and frame is not None:
            raise Unraisable(f"'{op.name}' may wait, in a loop")
        members[frame].append(op)
        reached[op] = frame
        if op.definition.flow is Flow.ENTER:
            key = frame, op._attrs["frame_name"]
            child = found.setdefault(key, _Frame(key[1], frame))
            child.enters.append(op)
            members.setdefault(child, [])
            reached[op] = child
        elif op.definition.flow is Flow.EXIT:
            if frame is None:
                raise Unraisable(f"'{op.name}' is in no loop")
            reached[op] = frame.within
    wanted = [t.op for t in step.fetches if t not in fed] + list(step.targets)
    for op in wanted:
        if reached[op] is not None:
            raise Unraisable(f"'{op.name}' is in a loop")
    return members


class _Variable(NamedTuple):
    """What a loop's variable goes through."""

    enter: Operation
    merge: Operation
    switch: Operation | None  # none if nothing reads it in the body or after the loop
    following: Operation


def _loop(frame: _Frame, members: list[Op], step: StepGraph) -> Structured:
    """The WHILE that a frame is."""
    exits = {op._inputs[0]: op._outputs[0] for op in members if op.definition.flow is Flow.EXIT}
    goes_on = _predicate(frame, exits, step)
    variables = _variables(members, goes_on, step)
    constants = [e for e in frame.enters if e._attrs["is_constant"]]
    if len(constants) + len(variables) != len(frame.enters):
        raise Unraisable(f"loop '{frame.name}' takes values that do not go around")
    results = [i for i, v in enumerate(variables) if v.switch and v.switch._outputs[0] in exits]
    if len(results) != len(exits):
        raise Unraisable(f"loop '{frame.name}' has an exit that is none of its variables'")

    steering = {op for v in variables for op in v}
    deciding = {v.switch for v in variables}
    if any(c in deciding for op in members for c in op._control_inputs):
        raise Unraisable(f"loop '{frame.name}' runs something whether it goes on or not")
    inside = [op for op in members if op not in steering and op.definition.flow is not Flow.EXIT]
    invariants = [e._outputs[0] for e in constants]
    around = [v.merge._outputs[0] for v in variables]
    stay = [v.switch._outputs[1] if v.switch else Stand(v.merge._outputs[0]) for v in variables]
    passed = [step.inputs_of(v.following)[0] for v in variables]
    # What the next iteration waits for without needing its result, as for a push on a stack.
    waited = list(dict.fromkeys(c for v in variables for c in v.following._control_inputs))
    ahead = _ancestors([goes_on], inside)
    rest = _ancestors(passed, inside, waited) - ahead
    cond = _closed_part(ahead, inside, [*around, *invariants], [goes_on], frame, step)
    body = _closed_part(rest, inside, [*stay, *invariants], passed, frame, step, waited)
    return Structured(
        WHILE,
        variables[0].merge,
        [step.inputs_of(e)[0] for e in (*(v.enter for v in variables), *constants)],
        [exits[variables[i].switch._outputs[0]] for i in results],  # type: ignore[union-attr]
        list(dict.fromkeys(c for e in frame.enters for c in e._control_inputs)),
        [*members, *frame.enters],
        cond=cond,
        body=body,
        results=tuple(results),
    )


def _predicate(frame: _Frame, exits: Iterable[Tensor], step: StepGraph) -> Tensor:
    """What decides whether a loop goes on: the predicate of the Switches that lead out of it."""
    found = {step.inputs_of(t.op)[1] for t in exits if t.op.definition.flow is Flow.SWITCH}
    if len(found) != 1:
        raise Unraisable(f"loop '{frame.name}' has {len(found)} conditions")
    return found.pop()


def _variables(members: list[Op], goes_on: Tensor, step: StepGraph) -> list[_Variable]:
    """The variables of a loop; Merges of branches are none."""
    switches = {
        op._inputs[0].op: op
        for op in members
        if op.definition.flow is Flow.SWITCH and step.inputs_of(op)[1] is goes_on
    }
    found = []
    for op in members:
        if op.definition.flow is not Flow.MERGE:
            continue
        sources = [t.op for t in op._inputs]
        flows = [s.definition.flow for s in sources]
        if flows == [Flow.ENTER, Flow.NEXT]:
            found.append(_Variable(sources[0], op, switches.get(op), sources[1]))
        elif Flow.NEXT in flows or Flow.ENTER in flows:
            raise Unraisable(f"'{op.name}' is no loop's and no branch's")
    return found


def _ancestors(
    tensors: Iterable[Tensor], inside: list[Op], targets: Iterable[Operation] = ()
) -> set[Op]:
    """The operations of `inside` that these tensors and operations need."""
    maker = {t: op for op in inside for t in op._outputs}
    holder = holders(inside)
    found: set[Op] = set()
    stack = [maker[t] for t in tensors if t in maker]
    stack += [holder[c] for c in targets if c in holder]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack += [maker[t] for t in op._inputs if t in maker]
            stack += [holder[c] for c in op._control_inputs if c in holder]
    return found


def _closed_part(
    own: set[Op],
    inside: list[Op],
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    frame: _Frame,
    step: StepGraph,
    targets: Sequence[Operation] = (),
) -> StepGraph:
    """A part of a loop, which may read only what it makes and what it's given."""
    made = {t for op in own for t in op._outputs} | set(feeds)
    for t in (*(t for op in own for t in step.inputs_of(op)), *fetches):
        if t not in made:
            raise Unraisable(f"the parts of loop '{frame.name}' share '{t.name}'")
    operations = in_order([op for op in inside if op in own])
    holder = holders(operations)
    targets = [c for c in targets if c in holder]
    return part(raise_branches(operations, step, fetches, targets), feeds, fetches, targets)
