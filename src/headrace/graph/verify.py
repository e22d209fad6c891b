"""Checkers for the forms of graph.program: each raises InternalError with the first thing that is
wrong.
"""

from __future__ import annotations

from headrace.core.errors import InternalError
from headrace.graph.program import Program, StepGraph

__all__ = ["verify_program", "verify_step_graph"]


def verify_step_graph(step: StepGraph) -> None:
    """Every input of every operation is fed or made by an earlier operation; so is every fetch."""
    fed = set(step.feeds)
    present = set(step.operations)
    done = set()
    for op in step.operations:
        for t in op._inputs:
            if t not in fed and t.op not in done:
                raise _wrong(f"{op.name} reads {t.name} before it is made")
        for c in op._control_inputs:
            if c not in done and c in present:
                raise _wrong(f"{op.name} runs before its control input {c.name}")
        done.add(op)
    for t in step.fetches:
        if t not in fed and t.op not in done:
            raise _wrong(f"fetch {t.name} is never made")
    for op in step.targets:
        if op not in done:
            raise _wrong(f"target {op.name} never runs")


def verify_program(program: Program) -> None:
    """Every slot is written once before it's read, and nothing reads a freed slot."""
    live = {slot for _, slot in program.feeds}
    freed: set[int] = set()
    for i in program.instructions:
        for slot in i.inputs:
            if slot not in live:
                state = "freed" if slot in freed else "unwritten"
                raise _wrong(f"{i.op.name} reads {state} slot s{slot}")
        for slot in range(i.output, i.output + i.width):
            if slot in live or slot in freed:
                raise _wrong(f"{i.op.name} writes slot s{slot} again")
            live.add(slot)
        for slot in i.frees:
            if slot not in live:
                raise _wrong(f"{i.op.name} frees slot s{slot}, which is not live")
            live.discard(slot)
            freed.add(slot)
    for t, slot in program.fetches:
        if slot not in live:
            raise _wrong(f"fetch {t.name} reads slot s{slot}, which is not live")


def _wrong(message: str) -> InternalError:
    return InternalError(None, None, message)
