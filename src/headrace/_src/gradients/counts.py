"""The operations that TensorFlow 1.15 makes for the gradients of loops and branches. In: a loop or
branch, while its gradient is built. Out: the number of operations to count (Graph.counted_as).

TensorFlow differentiates loops with primitives and stacks. A counter is added to the forward loop,
and the backward loop takes as many iterations; the forward loop pushes the values that an iteration
of the backward loop needs on stacks, and the backward loop pops them. `units` builds different
operations, with lists; this module makes none of them: it only counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.contexts import (
    CondContext,
    ControlFlowContext,
    LoopVariable,
    WhileContext,
    output_context,
)
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, definition_of

__all__ = [
    "Stacks",
    "backward_loop",
    "invariant_behind",
    "loop_nodes",
    "merge_nodes",
    "sum_nodes",
    "switch_nodes",
    "unused_nodes",
    "zeros_nodes",
]

_COUNTERS = 18  # the forward loop's counter has 8, the backward loop's 10
_TUPLE = 3  # operations that gate two gradients


class Stacks:
    """The stacks of one backward loop, which pass forward values to it."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._known: set[str] = set()
        self._synchronised: set[Any] = set()
        self._is_quiet = False

    def nodes_of(self, value: Tensor) -> int:
        """Return how many operations bring a value into the loop when it is first needed; outer
        loops count theirs.
        """
        if self._is_quiet or value.name in self._known or _is_inside(value, self._loop):
            return 0
        self._known.add(value.name)
        if not self._loop.is_forwards(value):
            if self._loop.outer_context is not None:
                self._loop.outer_context.count_value(value)
            return 1
        source = invariant_behind(value.op)
        if source is not None:
            return self.nodes_of(source._inputs[0])
        return 1 if _is_constant(value.op) else self.push(self._is_in_branch(value))

    def _is_in_branch(self, value: Tensor) -> bool:
        return output_context(value.op) is not self._loop.forward

    @contextmanager
    def shape_of(self, op: Operation) -> Iterator[None]:
        """Bring in the input of a new operation. If the operation takes the shape of a forward
        value, TensorFlow puts it in the forward loop and saves only its result.
        """
        if not _asks_for_shape(op) or not self._loop.is_forwards(op._inputs[0]):
            yield
            return
        with op.graph.counted_at_border(self.push_shape(op._inputs[0])), self._loop.uncounted():
            yield

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Count nothing while values are brought in that TensorFlow doesn't need."""
        before, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = before

    def push_shape(self, value: Tensor) -> int:
        """Return how many operations bring in the shape of a forward value, besides the one that
        takes it; shapes are saved again each time.
        """
        return 0 if self._is_quiet else self.push(self._is_in_branch(value))

    def push(self, in_branch: bool = False) -> int:
        """Return how many operations make a stack, push and pop: with an Enter for each loop around
        both, and a Switch for both in a branch. One more synchronises all pops of an iteration, if
        iterations may overlap, and one the pushes of branches.
        """
        around = list(self._loop.forward._chain())
        loops = sum(isinstance(c, WhileContext) for c in around)
        branches = len(around) - loops  # the stack enters each of them by a predicate
        new: set[Any] = set(range(branches))
        new |= {"push"} if in_branch else set()
        new |= {"pop"} if self._loop.parallel_iterations > 1 else set()
        new -= self._synchronised
        self._synchronised |= new
        return 4 + 2 * (loops + branches) + 2 * in_branch + len(new)

    def push_once(self, value: Tensor) -> int:
        """As `push`, if the value isn't on a stack yet."""
        if value.name in self._known:
            return 0
        self._known.add(value.name)
        return self.push()


def _is_inside(value: Tensor, context: ControlFlowContext) -> bool:
    found = output_context(value.op)
    return found is not None and context in found._chain()


def _asks_for_shape(op: Operation) -> bool:
    """Whether an operation needs only the shape of its input, and TensorFlow knows this."""
    return op.definition in map(definition_of, (b.shape_op, b.size_op, b.rank_op))


def invariant_behind(op: Operation) -> Operation | None:
    """Return the Enter of a loop invariant that an operation only passes on, if it does."""
    while op.definition is definition_of(b.identity) or op.definition.flow is Flow.SWITCH:
        op = op._inputs[0].op
    return op if op.definition.flow is Flow.ENTER and op._attrs["is_constant"] else None


def _is_constant(op: Operation) -> bool:
    return op.definition is definition_of(b.const)


def backward_loop(graph: Graph) -> Any:
    """Return the backward loop that is being built, if any."""
    context = graph.scope.context
    loop = context.GetWhileContext() if context is not None else None
    return loop if loop is not None and loop.forward is not None else None


def merge_nodes(branch: CondContext, grads: dict[Tensor, Any], is_gated: bool) -> int:
    """Return how many operations pass the gradients of a cond's results into its branches."""
    nodes = sum((1 + _TUPLE * is_gated) for t in grads if t.op.definition.flow is Flow.MERGE)
    loop = backward_loop(branch.graph)
    return nodes if loop is None else nodes + loop.stacks.push_once(branch.pred)


def switch_nodes(t: Tensor, gradient: Any) -> int:
    """Return how many operations pass the gradient of a branch's input out of it: it is merged with
    zeros from the other branch.
    """
    loop = backward_loop(t.graph)
    if loop is None:
        return 16 if isinstance(gradient, IndexedSlices) else 6
    return 3 if t.shape.is_fully_defined() else 6 + loop.stacks.push()


def loop_nodes(
    loop: Any, variables: Sequence[LoopVariable], arrived: dict[Tensor, Any], is_gated: bool
) -> int:
    """Return how many operations a backward loop consists of, without its body."""
    nodes = _COUNTERS
    around = loop.outer_context.GetWhileContext() if loop.outer_context else None
    if around is not None and around.forward is not None:
        nodes += around.stacks.push()  # for the iteration count of each run of the inner loop
    between = {v.exit for v in variables}
    for v in loop.forward.loop_vars:
        if v.exit in between:
            nodes += 5 + _TUPLE * is_gated + (v.exit not in arrived)
        elif v.exit.dtype.is_floating or v.exit.dtype.is_complex:
            nodes += 2  # zeros that aren't used further
    return nodes


def unused_nodes(t: Tensor) -> int:
    """Return how many operations make zeros for an output that nothing depends on."""
    loop = backward_loop(t.graph)
    if loop is None or t.shape.is_fully_defined():
        return 1
    return 3 + loop.stacks.push_shape(t)


def sum_nodes(loop: Any, gradient: Any) -> int:
    """Return how many operations sum the gradients of an invariant over all iterations."""
    if isinstance(gradient, IndexedSlices):
        return 23 if gradient.dense_shape is not None else 16
    if gradient.shape.is_fully_defined():
        return 7
    around = loop.outer_context.GetWhileContext() if loop.outer_context else None
    return 9 + (0 if around is None or around.forward is None else around.stacks.push())


def zeros_nodes(t: Tensor) -> int:
    """Return how many operations make the zeros that are a variable's gradient after the first
    iteration, if the variable does not depend on its previous value.
    """
    return 1 if t.shape.is_fully_defined() else 4
