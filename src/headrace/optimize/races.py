"""Find what a step leaves open. In: a StepGraph. Out: the variables that it reads and writes in no
order, where what is read goes into a variable again.

TensorFlow takes such a read before or after the write as its threads happen to run; Headrace takes
the order in which the operations were made. The usual case is a schedule that reads the step's
number while another operation adds 1 to it. Reads that people only look at (summaries, metrics,
fetches) are not reported, nor is what never happens in one step: the two sides of a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

from headrace.graph.definition import Effect
from headrace.graph.flow import Flow
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.optimize.aliases import Variable, leads_to_state, variables_behind
from headrace.optimize.surroundings import (
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


def find_races(step: StepGraph) -> list[Race]:
    """The first race of each variable."""
    if not any(op.definition.effect is Effect.WRITES for op in step.operations):
        return []
    frames = frames_of(step)
    touches = _Touches(step, frames)
    reads, writes = touches.reads, touches.writes
    shared = [v for v in writes if v in reads]
    touching = [op for v in shared for op in (*(r.op for r in reads[v]), *writes[v])]
    bits = {op: 1 << i for i, op in enumerate(dict.fromkeys(touching))}
    before = _before(step, bits, frames)
    kept = _kept(step, {op for ops in writes.values() for op in ops})
    found = []
    for variable in shared:
        for (read, sides), write in product(reads[variable], writes[variable]):
            ordered = before[write] & bits[read] or before[read] & bits[write]
            if ordered or read is write or read not in kept:
                continue
            if _together(frames[read], frames[write]) or exclude(sides, touches.sides[write]):
                continue
            found.append(Race(variable, read, write))
            break
    return found


def _together(one: Frame, other: Frame) -> bool:
    """Whether operations are in one loop, whose iterations are in order."""
    return not set(around(one)).isdisjoint(around(other))


class _Read(NamedTuple):
    """An operation that uses the value of a variable, if predicates had these values."""

    op: Operation
    sides: Sides


class _Touches:
    """Who uses the value of each variable, and who writes it."""

    def __init__(self, step: StepGraph, frames: Mapping[Operation, Frame]) -> None:
        self._fed = set(step.feeds)
        self._aliases: dict[Tensor, dict[Variable, Sides]] = {}
        self.sides, self._tensor_sides = sides_of(step, frames)
        self.reads: dict[Variable, list[_Read]] = {}
        self.writes: dict[Variable, list[Operation]] = {}
        for op in step.operations:
            self._add(op)

    def _add(self, op: Operation) -> None:
        flow = op.definition.flow
        known: dict[Variable, Sides] = {}
        for t in op._inputs[:1] if flow is Flow.SWITCH else op._inputs:
            own = self._tensor_sides.get(t, frozenset()) if flow is Flow.MERGE else frozenset()
            for variable, sides in self._read_by(op, t).items():
                sides = sides | own
                known[variable] = known[variable] & sides if variable in known else sides
        if known and (flow is not None or passes(op)):
            self._aliases.update((t, known) for t in op._outputs if not leads_to_state(t))
            return
        for variable, sides in known.items():
            read = _Read(op, sides | self.sides[op])
            self.reads.setdefault(variable, []).append(read)

    def _read_by(self, op: Operation, t: Tensor) -> dict[Variable, Sides]:
        """The variables whose value an operation may get by an input."""
        if t in self._fed:
            return {}
        if not leads_to_state(t):
            return self._aliases.get(t, {})
        variables = variables_behind(t)
        if op.definition.effect is Effect.WRITES:
            for variable in variables:
                self.writes.setdefault(variable, []).append(op)
            return {}
        reads = t.dtype._is_ref_dtype or op.definition.effect is Effect.READS
        return dict.fromkeys(variables, frozenset()) if reads else {}


def _sources(op: Operation) -> Iterator[Operation]:
    yield from (t.op for t in op._inputs)
    yield from op._control_inputs


def _before(
    step: StepGraph, bits: dict[Operation, int], frames: dict[Operation, Frame]
) -> dict[Operation, int]:
    """Which of some operations each operation runs after: after a loop, all that are in it."""
    inside: dict[Frame, int] = {}
    for op, bit in bits.items():
        for frame in around(frames[op]):
            inside[frame] = inside.get(frame, 0) | bit
    found: dict[Operation, int] = {}
    for op in step.operations:
        mask = inside.get(frames[op], 0) if op.definition.flow is Flow.EXIT else 0
        for source in _sources(op):
            mask |= found.get(source, 0) | bits.get(source, 0)
        found[op] = mask
    return found


def _kept(step: StepGraph, writes: set[Operation]) -> set[Operation]:
    """The operations whose results go into variables."""
    found: set[Operation] = set()
    stack = [t.op for op in writes for t in op._inputs]
    present = set(step.operations)
    while stack:
        op = stack.pop()
        if op in present and op not in found:
            found.add(op)
            stack += [t.op for t in op._inputs]
    return found
