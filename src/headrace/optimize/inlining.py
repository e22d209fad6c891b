"""Inline functions. In: a StepGraph. Out: the same with what calls functions in structured form.

A call becomes a CALL that holds the step of the function's body, a functional branch an IF, a
functional loop a WHILE: from there on they are what tf.cond and tf.while_loop make. Kept as they
are, to be run by kernels that run bodies as steps of their own, are calls of a function inside of
itself, of functions that say `noinline`, and of bodies that may wait or have no structured form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.graph.definition import Effect
from headrace.graph.functions import Function
from headrace.graph.program import StepGraph
from headrace.graph.structured import Structured
from headrace.optimize.aliases import reread
from headrace.optimize.prune import prune
from headrace.optimize.raising import Unraisable, raise_structure

__all__ = ["inline"]


def inline(step: StepGraph) -> StepGraph:
    """The step with the bodies of the functions that it calls."""
    return _inlined(step, ())


def _inlined(step: StepGraph, within: tuple[Function, ...]) -> StepGraph:
    if not step.calls:
        return step
    operations = tuple(_structured(op, step, within) or op for op in step.operations)
    return replace(step, operations=operations)


def _structured(op: Any, step: StepGraph, within: tuple[Function, ...]) -> Structured | None:
    rule = op.definition.calls
    if rule is None or any(t.dtype._is_ref_dtype for t in op._inputs):
        return None
    called = rule(op)
    if called is None:
        return None
    try:
        parts = {name: _part(function, within) for name, function in called.parts.items()}
    except Unraisable:
        return None
    controls = op._control_inputs
    inputs = step.inputs_of(op)
    return Structured(called.kind, op, inputs, op._outputs, controls, [op], **called.attrs, **parts)


def _part(function: Function, within: tuple[Function, ...]) -> StepGraph:
    if function in within or function.attrs.get("_noinline"):
        raise Unraisable(f"function '{function.name}' is called as it is")
    step = prune(function.outputs, function.targets, function.inputs)
    if any(op.definition.effect is Effect.BLOCKS for op in step.operations):
        raise Unraisable(f"function '{function.name}' may wait")
    step = raise_structure(_inlined(reread(step), (*within, function)))
    return replace(step, targets=(), inner=True)
