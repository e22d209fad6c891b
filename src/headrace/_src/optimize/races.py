"""Find unordered reads and writes. In: a Dataflow. Out: the variables that a step reads and writes
in no order, where the value read goes into a variable again.

TensorFlow runs such a read before or after the write, depending on its threads; Headrace uses the
order in which the operations were made. The usual case is a schedule that reads the step's number
while another operation adds 1 to it. Reads for display (summaries, metrics, fetches) are not
reported, nor are pairs that never occur in one step: the two sides of a branch. Nor is a read that
a branch takes only if the variable has a value (`Variable.initialized_value`): it is meant to run
beside the initialisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Dataflow, Node, Value, origin_of
from headrace._src.graph.definition import Effect
from headrace._src.graph.operation import Operation
from headrace._src.optimize.reread_references import Variable, leads_to_state, variables_behind
from headrace._src.optimize.surroundings import (
    Frame,
    Sides,
    around,
    exclude,
    frames_of,
    passes,
    sides_of,
)

__all__ = ["Race", "find_races"]


class Race(NamedTuple):
    """A variable that a step reads and writes in no order."""

    variable: Variable
    read: Operation
    write: Operation


def find_races(flow: Dataflow) -> list[Race]:
    """Return the first race of each variable."""
    if not any(node.definition.effect is Effect.WRITES for node in flow.nodes):
        return []
    frames = frames_of(flow)
    touches = _Touches(flow, frames)
    reads, writes = touches.reads, touches.writes
    shared = [v for v in writes if v in reads]
    touching = [node for v in shared for node in (*(r.node for r in reads[v]), *writes[v])]
    bits = {node: 1 << i for i, node in enumerate(dict.fromkeys(touching))}
    before = _before(flow, bits, frames)
    kept = _kept(flow, {node for nodes in writes.values() for node in nodes})
    found = []
    for variable in shared:
        for (read, sides), write in product(reads[variable], writes[variable]):
            ordered = before[write] & bits[read] or before[read] & bits[write]
            if ordered or read is write or read not in kept:
                continue
            if _together(frames[read], frames[write]) or exclude(sides, touches.sides[write]):
                continue
            found.append(Race(variable, origin_of(read), origin_of(write)))
            break
    return found


def _together(one: Frame, other: Frame) -> bool:
    """Whether nodes are in one loop, whose iterations are in order."""
    return not set(around(one)).isdisjoint(around(other))


class _Read(NamedTuple):
    """A node that uses the value of a variable, if predicates have these values."""

    node: Node
    sides: Sides


class _Touches:
    """The users of each variable's value, and its writers."""

    def __init__(self, flow: Dataflow, frames: Mapping[Node, Frame]) -> None:
        self._aliases: dict[Value, dict[Variable, Sides]] = {}
        # The variables that a predicate asks about: whether they have values; and those of which
        # the result of a Switch with such a predicate knows it.
        self._asked: dict[Value, set[Variable]] = {}
        self._answered: dict[Value, set[Variable]] = {}
        self.sides, self._value_sides = sides_of(flow, frames)
        self.reads: dict[Variable, list[_Read]] = {}
        self.writes: dict[Variable, list[Node]] = {}
        for node in flow.nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        role = node.definition.flow
        known: dict[Variable, Sides] = {}
        if node.definition.asks:
            asked = {v for value in node.inputs for v in variables_behind(value)}
            self._asked.update(dict.fromkeys(node.outputs, asked))
            return
        if passes(node) and node.inputs[0] in self._asked:
            self._asked.update(dict.fromkeys(node.outputs, self._asked[node.inputs[0]]))
        for value in node.inputs[:1] if role is Flow.SWITCH else node.inputs:
            own = self._value_sides.get(value, frozenset()) if role is Flow.MERGE else frozenset()
            for variable, sides in self._read_by(node, value).items():
                sides = sides | own
                known[variable] = known[variable] & sides if variable in known else sides
        if role is Flow.SWITCH and (asked := self._asked.get(node.inputs[1])):
            self._answered.update(dict.fromkeys(node.outputs, asked))
            known = {v: sides for v, sides in known.items() if v not in asked}
        if known and (role is not None or passes(node)):
            self._aliases.update(
                (value, known) for value in node.outputs if not leads_to_state(value)
            )
            return
        for variable, sides in known.items():
            read = _Read(node, sides | self.sides[node])
            self.reads.setdefault(variable, []).append(read)

    def _read_by(self, node: Node, value: Value) -> dict[Variable, Sides]:
        """Return the variables whose value a node may get from an input."""
        if not leads_to_state(value):
            return self._aliases.get(value, {})
        variables = variables_behind(value)
        if node.definition.effect is Effect.WRITES:
            for variable in variables:
                self.writes.setdefault(variable, []).append(node)
            return {}
        reads = value.dtype._is_ref_dtype or node.definition.effect is Effect.READS
        answered = self._answered.get(value, ())
        return {v: frozenset() for v in variables if v not in answered} if reads else {}


def _sources(node: Node) -> Iterator[Any]:
    yield from (value.producer for value in node.inputs)
    yield from node.controls


def _before(flow: Dataflow, bits: dict[Node, int], frames: dict[Node, Frame]) -> dict[Node, int]:
    """Return which of some nodes each node runs after; after a loop, all nodes in it."""
    inside: dict[Frame, int] = {}
    for node, bit in bits.items():
        for frame in around(frames[node]):
            inside[frame] = inside.get(frame, 0) | bit
    found: dict[Any, int] = {}
    for node in flow.nodes:
        mask = inside.get(frames[node], 0) if node.definition.flow is Flow.EXIT else 0
        for source in _sources(node):
            mask |= found.get(source, 0) | bits.get(source, 0)
        found[node] = mask
    return found


def _kept(flow: Dataflow, writes: set[Node]) -> set[Node]:
    """Return the nodes whose results go into variables."""
    found: set[Node] = set()
    stack: list[Any] = [value.producer for node in writes for value in node.inputs]
    present = set(flow.nodes)
    while stack:
        node = stack.pop()
        if node in present and node not in found:
            found.add(node)
            stack += [flow.maker_of(value) for value in node.inputs]
    return found
