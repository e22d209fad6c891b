"""Loops that turn out to be long. In: an optimised step that will be interpreted. Out: the same,
with loops that count their iterations and continue natively once these have cost as much as
compiling.

An iteration passes only the loop's variables to the next: the same loop, compiled as a step that
takes them, continues from there. The decision depends on counting and not on time, so that a
program gives the same results in every run.

Native code can't access lists and tensor arrays that were made before it began. A loop with any of
these continues with compiled parts, while Python runs the iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headrace._src.core.locks import Lock
from headrace._src.graph.dataflow import Dataflow, Node, rewrite
from headrace._src.graph.program import Program
from headrace._src.graph.structured import is_loop
from headrace._src.ops.control.loops_and_branches import iterations
from headrace._src.pipeline.tiers import patience

__all__ = ["count_iterations"]

Compile = Callable[[Dataflow], Program]


def count_iterations(flow: Dataflow, compile: Compile) -> Dataflow:
    """Let the loops of a flow, except those inside its loops and branches, be compiled when they
    turn out to be long.
    """

    def rule(node: Node) -> Node | None:
        if not is_loop(node):
            return None
        kernel = _counting(_Meter(node, compile))
        return replace(node, definition=replace(node.definition, kernel=kernel))

    return rewrite(flow, rule)


class _Meter:
    """Counts the iterations of a loop that are still interpreted, over all runs; then
    its program.
    """

    def __init__(self, loop: Node, compile: Compile) -> None:
        self._loop = loop
        self._compile = compile
        self._left = patience(loop)
        self._program: Program | None = None
        self._lock = Lock()

    def program(self) -> Program | None:
        """Count one iteration; return None while the loop is still to be interpreted."""
        self._left -= 1
        if self._left >= 0:
            return None
        with self._lock:
            if self._program is None:
                self._program = self._compile(_alone(self._loop))
            return self._program


def _counting(meter: _Meter) -> Callable[..., list[Any]]:
    """Return the kernel of a loop that is interpreted as long as its meter says."""

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
    """Return a step that consists of a loop and is fed the loop's inputs. Constants stay known,
    except for the variables' initial values.
    """
    body: Dataflow = loop.attrs["body"]
    feeds = tuple(replace(feed) for feed in body.feeds)  # different from the body's own
    inputs = [feed.value for feed in feeds]
    constants: dict[Node, None] = {}
    for i in range(len(body.fetches), len(inputs)):
        producer = loop.inputs[i].producer
        if isinstance(producer, Node) and producer.constant is not None:
            inputs[i] = loop.inputs[i]
            constants[producer] = None
    moved = loop.moved(tuple(inputs), ())
    return Dataflow((*constants, moved), feeds, moved.outputs, (moved,))
