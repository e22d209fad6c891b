"""When a step is compiled. In: an optimised step and the session's `jit`. Out: the number of a run.

Compiling costs seconds, so that by default ("auto") a step is compiled when it comes back, or at
once if its first run would take longer than the compiler may. Until then the interpreter runs it.
"""

from __future__ import annotations

import math

from headrace.graph.dataflow import Dataflow, Node
from headrace.graph.definition import Effect, Kind

__all__ = ["compile_at", "flops"]

_HEAVY = 2e8  # floating-point operations
_PER_NUMBER = 20  # what a random number counts: ten million take NumPy about a second


def compile_at(flow: Dataflow, jit: str) -> int | None:
    """The number of the run (1: the first) at which to compile; None: never."""
    if jit == "off":
        return None
    return 1 if jit == "always" or flops(flow) >= _HEAVY else 2


def flops(flow: Dataflow) -> float:
    """An estimate of a step's floating-point operations: those of its contractions and of the
    random numbers that it draws.
    """
    return sum(map(_flops, flow.nodes))


def _flops(node: Node) -> float:
    definition = node.definition
    if definition.kind is Kind.CONTRACTION:
        return _contraction_flops(node)
    if definition.effect is Effect.RANDOM and definition.lower is not None:
        return _PER_NUMBER * sum(math.prod(t.sizes or ()) for t in node.types)
    return 0.0


def _contraction_flops(node: Node) -> float:
    """Twice the root of the product of two operands' and the result's sizes: for matrices of sizes
    mk, kn and mn that is 2mkn, and for convolutions of the right order, in either direction.
    """
    if any(t.sizes is None for t in node.types) or any(v.type.sizes is None for v in node.inputs):
        return 0.0
    operands = sorted(math.prod(v.type.sizes or ()) for v in node.inputs)[-2:]
    results = [math.prod(t.sizes or ()) for t in node.types]
    return 2.0 * math.sqrt(math.prod(operands) * max(results))
