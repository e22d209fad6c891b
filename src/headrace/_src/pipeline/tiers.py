"""When to compile a step. In: an optimised step and the session's `jit`. Out: the number of a run,
and for each of its loops a number of iterations.

Compiling costs a second or so, which a program of a few small steps never gets back. By default
("auto") a step is compiled once its runs have taken the interpreter about as long as compiling, by
an estimate that doesn't depend on the clock, and after 32 runs at the latest; at once if its first
run would take longer than the compiler. A loop of unknown length is compiled while it runs, once it
has taken as long (pipeline.long_loops). "second" compiles light steps on their second run.
"""

from __future__ import annotations

import math

from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.graph.definition import Effect, Kind
from headrace._src.graph.structured import is_loop, parts_of
from headrace._src.lowering.trip_count import trip_count
from headrace._src.lowering.work import contraction_flops

__all__ = ["compile_at", "flops", "patience"]

_MOST_RUNS = 32  # then a step is compiled, however light it is
_HEAVY = 2e8  # floating-point operations
_PER_NUMBER = 20  # the cost of a random number: ten million take NumPy about a second

# Seconds: the time to compile a step or a loop, and the interpreter's time for a node, an element
# of its outputs, a random number, a floating-point operation of a contraction.
_COMPILING = 0.3
_NODE, _ELEMENT, _NUMBER, _FLOP = 2e-6, 2e-9, 1e-7, 1e-10


def compile_at(flow: Dataflow, jit: str) -> int | None:
    """Return the number of the run (1: the first) at which to compile; None: never."""
    if jit == "off":
        return None
    heavy = jit == "always" or flops(flow) >= _HEAVY
    if heavy or sum(map(_looping, flow.nodes)) >= _COMPILING:
        return 1
    if jit == "second":
        return 2
    return min(max(2, math.ceil(_COMPILING / (_NODE + _seconds(flow)))), _MOST_RUNS)


def patience(loop: Node) -> int:
    """Return how many iterations of a loop take as long as compiling it."""
    return math.ceil(_COMPILING / _iteration(loop))


def flops(flow: Dataflow) -> float:
    """Estimate a step's floating-point operations, without its loops: those of its contractions and
    of the random numbers that it draws.
    """
    return sum(map(_flops, flow.nodes))


def _flops(node: Node) -> float:
    if node.definition.kind is Kind.CONTRACTION:
        return _contraction_flops(node)
    return _PER_NUMBER * _elements(node) if _is_random(node) else 0.0


def _looping(node: Node) -> float:
    """Return the seconds that a node spends in loops, as far as known."""
    return (trip_count(node) or 0) * _iteration(node) if is_loop(node) else 0.0


def _iteration(loop: Node) -> float:
    """Return the seconds of an iteration."""
    return _NODE + sum(_seconds(part) for part in parts_of(loop).values())


def _seconds(part: Dataflow) -> float:
    """Return the seconds of a step, of a part of a loop, or of a branch."""
    return sum(_interpreting(node) for node in part.nodes if node.constant is None)


def _interpreting(node: Node) -> float:
    inner = _looping(node) if is_loop(node) else sum(map(_seconds, parts_of(node).values()))
    elements = _elements(node) * (_NUMBER if _is_random(node) else _ELEMENT)
    return _NODE + inner + elements + _FLOP * _flops(node)


def _is_random(node: Node) -> bool:
    return node.definition.effect is Effect.RANDOM and node.definition.lower is not None


def _elements(node: Node) -> int:
    return sum(math.prod(t.sizes or ()) for t in node.types)


def _contraction_flops(node: Node) -> float:
    if any(t.sizes is None for t in node.types) or any(v.type.sizes is None for v in node.inputs):
        return 0.0
    operands = [math.prod(v.type.sizes or ()) for v in node.inputs]
    return contraction_flops(operands, [math.prod(t.sizes or ()) for t in node.types])
