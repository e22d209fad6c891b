"""Loops that turn out to be long. In: an optimised step that is to be interpreted. Out: the same,
whose loops count their iterations, and go on natively once these have cost what compiling costs.

All that an iteration leaves to the next are the loop's variables: the same loop, compiled as a step
of its own that takes them, goes on from where they are. It's decided by counting and not by the
clock, so that a program gives the same results whenever it's run.

Native code can't reach lists and tensor arrays that were made before it began. A loop that has any
goes on with compiled parts, and Python goes round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headrace.core.locks import Lock
from headrace.graph.dataflow import Dataflow, Node, rewrite
from headrace.graph.program import Program
from headrace.graph.structured import is_loop, iterations
from headrace.pipeline.tiers import patience

__all__ = ["count_iterations"]

Compile = Callable[[Dataflow], Program]


def count_iterations(flow: Dataflow, compile: Compile) -> Dataflow:
    """Let the loops of a flow, but not those inside of its loops and branches, be compiled when
    they turn out to be long.
    """

    def rule(node: Node) -> Node | None:
        if not is_loop(node):
            return None
        kernel = _counting(_Meter(node, compile))
        return replace(node, definition=replace(node.definition, kernel=kernel))

    return rewrite(flow, rule)


class _Meter:
    """How many more iterations of a loop are interpreted, in whichever run; then its program."""

    def __init__(self, loop: Node, compile: Compile) -> None:
        self._loop = loop
        self._compile = compile
        self._left = patience(loop)
        self._program: Program | None = None
        self._lock = Lock()

    def program(self) -> Program | None:
        """None, if the loop is still to be interpreted; counts as one iteration."""
        self._left -= 1
        if self._left >= 0:
            return None
        with self._lock:
            if self._program is None:
                self._program = self._compile(_alone(self._loop))
            return self._program


def _counting(meter: _Meter) -> Callable[..., list[Any]]:
    """The kernel of a loop that is interpreted as long as its meter says."""

    def kernel(
        inputs: Sequence[Any], *, ctx: Any, cond: Program, body: Program, results: Sequence[int]
    ) -> list[Any]:
        invariants = inputs[len(body.fetches) :]
        for variables in iterations(inputs, ctx, cond, body):
            program = meter.program()
            if program is not None:
                return ctx.bound(program)([*variables, *invariants])
        return [variables[i] for i in results]

    return kernel


def _alone(loop: Node) -> Dataflow:
    """A step that is nothing but a loop, fed with what the loop takes. Constants stay known, but
    for those that the variables began with.
    """
    body: Dataflow = loop.attrs["body"]
    feeds = tuple(replace(feed) for feed in body.feeds)  # others than the body's own
    inputs = [feed.value for feed in feeds]
    constants: dict[Node, None] = {}
    for i in range(len(body.fetches), len(inputs)):
        producer = loop.inputs[i].producer
        if isinstance(producer, Node) and producer.constant is not None:
            inputs[i] = loop.inputs[i]
            constants[producer] = None
    moved = loop.moved(tuple(inputs), ())
    return Dataflow((*constants, moved), feeds, moved.outputs, (moved,))
