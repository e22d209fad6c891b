"""Schedule. In: a placed StepGraph in dependency order. Out: a Program whose slots are freed after
their last reader.
"""

from __future__ import annotations

from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import Instruction, Program, StepGraph

__all__ = ["schedule"]


def schedule(step: StepGraph) -> Program:
    """Number the tensors and note where each is read last."""
    slot: dict[Tensor, int] = {}
    for t in step.feeds:
        slot[t] = len(slot)
    feeds = tuple((t, slot[t]) for t in step.feeds)
    first_output: dict[Operation, int] = {}
    count = len(slot)
    for op in step.operations:
        first_output[op] = count
        for t in op._outputs:
            slot.setdefault(t, count)  # a fed output keeps the feed's slot
            count += 1
    fetched = {slot[t] for t in step.fetches}
    last_reader = _last_readers(step, slot)
    frees: dict[Operation, list[int]] = {}
    for s, reader in last_reader.items():
        if s not in fetched:
            frees.setdefault(reader, []).append(s)
    for op in step.operations:
        unread = range(first_output[op], first_output[op] + len(op._outputs))
        frees.setdefault(op, []).extend(
            s for s in unread if s not in last_reader and s not in fetched
        )
    instructions = tuple(
        Instruction(
            op,
            tuple(slot[t] for t in op._inputs),
            first_output[op],
            len(op._outputs),
            tuple(sorted(frees.get(op, ()))),
            _dereferences(op, step),
        )
        for op in step.operations
    )
    return Program(instructions, count, feeds, tuple((t, slot[t]) for t in step.fetches))


def _last_readers(step: StepGraph, slot: dict[Tensor, int]) -> dict[int, Operation]:
    last: dict[int, Operation] = {}
    for op in step.operations:
        for t in op._inputs:
            last[slot[t]] = op
    return last


def _dereferences(op: Operation, step: StepGraph) -> tuple[int, ...]:
    """The inputs that are references to variables, where the op's schema asks for plain values."""
    if not any(t.dtype._is_ref_dtype for t in op._inputs):
        return ()
    schema = op.definition.schema
    wants_ref = [a.is_ref for a in schema.inputs for _ in range(schema.count(a, op._attrs))]
    fed = set(step.feeds)
    return tuple(
        i
        for i, (t, wanted) in enumerate(zip(op._inputs, wants_ref, strict=True))
        if t.dtype._is_ref_dtype and not wanted and t not in fed
    )
