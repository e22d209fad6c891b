"""Raise loops and branches. In: a Dataflow with Switches, Merges, Enters and the like. Out: the
same with structured nodes instead, and no primitives left.

Loops come first, innermost first: a frame whose variables each pass through Enter, Merge, Switch
and NextIteration, with one predicate for all of these Switches, is a WHILE. The remaining Switches
and Merges are branches (optimize.branches).

`Unraisable` is raised for everything else (conditions that don't nest, dead tensors that are
fetched, ops in a loop that may block, a branch that may block beside others): then the step runs on
the primitives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import Unraisable
from headrace._src.ops.control.loops_and_branches import WHILE
from headrace._src.optimize.branches import raise_branches
from headrace._src.optimize.structured_parts import (
    NodeDraft,
    Op,
    PartDraft,
    assembled,
    holders,
    in_order,
    stand_in,
)

__all__ = ["raise_structure"]


def raise_structure(flow: Dataflow) -> Dataflow:
    """Return the flow in structured form; Unraisable if it has none."""
    if not flow.steers:
        return flow
    return assembled(flow, raise_branches(_raise_loops(flow), flow.fetches, flow.targets))


class _Frame:
    """A loop and its nodes. `within` is the frame that it is in, None for the outermost."""

    def __init__(self, name: str, within: _Frame | None) -> None:
        self.name = name
        self.within = within
        self.depth = 0 if within is None else within.depth + 1
        self.enters: list[Node] = []


def _raise_loops(flow: Dataflow) -> list[Op]:
    """Return the nodes of a flow with every loop as one node."""
    members = _frames(flow)
    for frame in sorted(filter(None, members), key=lambda f: -f.depth):
        loop = _loop(frame, members.pop(frame), flow)
        around, enters = members[frame.within], set(frame.enters)
        members[frame.within] = [*(op for op in around if op not in enters), loop]
    return in_order(members[None])


def _frames(flow: Dataflow) -> dict[_Frame | None, list[Op]]:
    """Return which nodes are in which loop. An Enter is in the frame around its own, an Exit in its
    own.
    """
    found: dict[tuple[_Frame | None, str], _Frame] = {}
    reached: dict[Any, _Frame | None] = dict.fromkeys(flow.feeds)  # the frame of each result
    members: dict[_Frame | None, list[Op]] = {None: []}
    for node in flow.nodes:
        sources = (*(v.producer for v in node.inputs), *node.controls)
        where = {reached[s] for s in sources if s in reached}
        if len(where) > 1:
            raise Unraisable(f"'{node.name}' has inputs from different frames")
        frame = where.pop() if where else None
        if node.definition.effect is Effect.BLOCKS and frame is not None:
            raise Unraisable(f"'{node.name}' may wait, in a loop")
        members[frame].append(node)
        reached[node] = frame
        if node.definition.flow is Flow.ENTER:
            key = frame, node.attrs["frame_name"]
            child = found.setdefault(key, _Frame(key[1], frame))
            child.enters.append(node)
            members.setdefault(child, [])
            reached[node] = child
        elif node.definition.flow is Flow.EXIT:
            if frame is None:
                raise Unraisable(f"'{node.name}' is in no loop")
            reached[node] = frame.within
    for wanted in (*(v.producer for v in flow.fetches), *flow.targets):
        if reached[wanted] is not None:
            raise Unraisable(f"'{wanted.name}' is in a loop")
    return members


class _Variable(NamedTuple):
    """The nodes that a loop variable passes through."""

    enter: Node
    merge: Node
    switch: Node | None  # None if nothing reads it in the body or after the loop
    following: Node


def _loop(frame: _Frame, members: list[Op], flow: Dataflow) -> NodeDraft:
    """Return the WHILE of a frame."""
    exits = {op.inputs[0]: op.outputs[0] for op in members if op.definition.flow is Flow.EXIT}
    goes_on = _predicate(frame, exits)
    variables = _variables(members, goes_on, flow)
    constants = [e for e in frame.enters if e.attrs["is_constant"]]
    if len(constants) + len(variables) != len(frame.enters):
        raise Unraisable(f"loop '{frame.name}' has an input that isn't a variable or invariant")
    results = [i for i, v in enumerate(variables) if v.switch and v.switch.outputs[0] in exits]
    if len(results) != len(exits):
        raise Unraisable(f"loop '{frame.name}' has an exit that doesn't belong to a variable")

    steering = {op for v in variables for op in v}
    deciding = {v.switch for v in variables}
    if any(c in deciding for op in members for c in op.controls):
        raise Unraisable(f"loop '{frame.name}' runs a node whether or not it continues")
    inside = [op for op in members if op not in steering and op.definition.flow is not Flow.EXIT]
    invariants = [e.outputs[0] for e in constants]
    around = [v.merge.outputs[0] for v in variables]
    stay = [v.switch.outputs[1] if v.switch else stand_in(v.merge.outputs[0]) for v in variables]
    passed = [v.following.inputs[0] for v in variables]
    # Nodes that the next iteration waits for without using their result, such as a push on a stack.
    waited = list(dict.fromkeys(c for v in variables for c in v.following.controls))
    ahead = _ancestors([goes_on], inside)
    rest = _ancestors(passed, inside, waited) - ahead
    cond = _closed_part(ahead, inside, [*around, *invariants], [goes_on], frame)
    body = _closed_part(rest, inside, [*stay, *invariants], passed, frame, waited)
    return NodeDraft(
        WHILE,
        variables[0].merge,
        [e.inputs[0] for e in (*(v.enter for v in variables), *constants)],
        [exits[variables[i].switch.outputs[0]] for i in results],  # type: ignore[union-attr]
        dict.fromkeys(c for e in frame.enters for c in e.controls),
        [*members, *frame.enters],
        {"cond": cond, "body": body},
        results=tuple(results),
    )


def _predicate(frame: _Frame, exits: Iterable[Value]) -> Value:
    """Return the predicate of a loop: that of the Switches that lead out of it."""
    makers = [v.producer for v in exits]
    found = {
        m.inputs[1] for m in makers if isinstance(m, Node) and m.definition.flow is Flow.SWITCH
    }
    if len(found) != 1:
        raise Unraisable(f"loop '{frame.name}' has {len(found)} conditions")
    return found.pop()


def _variables(members: list[Op], goes_on: Value, flow: Dataflow) -> list[_Variable]:
    """Return the variables of a loop; Merges of branches aren't variables."""
    switches = {
        op.inputs[0].producer: op
        for op in members
        if op.definition.flow is Flow.SWITCH and op.inputs[1] is goes_on
    }
    found = []
    for op in members:
        if op.definition.flow is not Flow.MERGE:
            continue
        sources: list[Any] = [flow.maker_of(v) for v in op.inputs]
        roles = [s.definition.flow if isinstance(s, Node) else None for s in sources]
        if roles == [Flow.ENTER, Flow.NEXT]:
            found.append(_Variable(sources[0], op, switches.get(op), sources[1]))
        elif Flow.NEXT in roles or Flow.ENTER in roles:
            raise Unraisable(f"'{op.name}' belongs to neither a loop nor a branch")
    return found


def _ancestors(values: Iterable[Value], inside: list[Op], targets: Iterable[Node] = ()) -> set[Op]:
    """Return the nodes of `inside` that these values and nodes need."""
    maker = {v: op for op in inside for v in op.outputs}
    holder = holders(inside)
    found: set[Op] = set()
    stack = [maker[v] for v in values if v in maker]
    stack += [holder[c] for c in targets if c in holder]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack += [maker[v] for v in op.inputs if v in maker]
            stack += [holder[c] for c in op.controls if c in holder]
    return found


def _closed_part(
    own: set[Op],
    inside: list[Op],
    feeds: Sequence[Value],
    fetches: Sequence[Value],
    frame: _Frame,
    targets: Sequence[Node] = (),
) -> PartDraft:
    """Return a part of a loop, which may read only its own values and its inputs."""
    made = {v for op in own for v in op.outputs} | set(feeds)
    for v in (*(v for op in own for v in op.inputs), *fetches):
        if v not in made:
            raise Unraisable(f"the parts of loop '{frame.name}' share '{v.name}'")
    nodes = in_order([op for op in inside if op in own])
    holder = holders(nodes)
    targets = [c for c in targets if c in holder]
    return PartDraft(raise_branches(nodes, fetches, targets), feeds, fetches, targets)
