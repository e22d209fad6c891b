"""Read again what is an alias of a variable. In: a StepGraph. Out: the same, with `rereads`.

In TensorFlow the Identity of a reference has the variable's own memory, so what uses it after a
write sees the write. Graphs rely on that: a constraint's function or a moving average takes
`w/read`, which was made with the variable, under a control dependency on the update. Here an array
that was read doesn't change any more; so an operation that must run after a write, by a path in the
graph, gets the reference in place of such a copy, and reads when it runs.

What goes into a branch or loop is the value as it was when the copy was made. Without a path, what
a user of the copy sees is a race in TensorFlow, and here the same value.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.graph.definition import Effect
from headrace.graph.lowering import Pass
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph

__all__ = ["reread"]


def reread(step: StepGraph) -> StepGraph:
    """Find the operations that use an alias of a variable after a write to it."""
    aliases = _aliases(step)
    if not aliases:
        return step
    bits: dict[Operation, int] = {}  # by which masks tell variables, by their sources
    written: dict[Operation, int] = {}  # which variables are written when an operation is over
    rereads: dict[Operation, tuple[Tensor, ...]] = {}
    for op in step.operations:
        before = [written.get(t.op, 0) for t in op._inputs]
        before += [written.get(c, 0) for c in op._control_inputs]
        known = 0
        for mask in before:
            known |= mask
        if known and any(t in aliases for t in op._inputs) and _reads(op):
            rereads[op] = tuple(
                aliases[t]
                if t in aliases and known & bits.get(_source(aliases[t]), 0) & ~written[t.op]
                else t
                for t in op._inputs
            )
        for t in _targets(op):
            known |= bits.setdefault(_source(t), 1 << len(bits))
        written[op] = known
    rereads = {op: inputs for op, inputs in rereads.items() if inputs != tuple(op._inputs)}
    return replace(step, rereads=rereads) if rereads else step


def _aliases(step: StepGraph) -> dict[Tensor, Tensor]:
    """The references that tensors are copies of."""
    fed = set(step.feeds)
    found: dict[Tensor, Tensor] = {}
    for op in step.operations:
        if isinstance(op.definition.lower, Pass) and len(op._inputs) == len(op._outputs) == 1:
            (t,), (out,) = op._inputs, op._outputs
            if t not in fed and out not in fed:
                if t.dtype._is_ref_dtype and not out.dtype._is_ref_dtype:
                    found[out] = t
                elif t in found:
                    found[out] = found[t]
    return found


def _reads(op: Operation) -> bool:
    """Whether an operation uses its inputs' values, in this very step."""
    return op.definition.flow is None and op.definition.calls is None


def _targets(op: Operation) -> list[Tensor]:
    """The references through which an operation writes into the variables' memory: one that may
    give a variable another shape gives it other memory.
    """
    definition = op.definition
    if definition.effect is not Effect.WRITES:
        return []
    if definition.reshapes is not None and definition.reshapes(op):
        return []
    return [t for t in op._inputs if t.dtype._is_ref_dtype]


def _source(t: Tensor) -> Operation:
    """The operation that a reference comes from: a write passes on what it was given."""
    op = t.op
    while given := [i for i in op._inputs if i.dtype._is_ref_dtype]:
        op = given[0].op
    return op
