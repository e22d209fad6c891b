"""Prune. In: a graph, feeds, fetches and targets. Out: a StepGraph of just the operations that the
step needs.

A fed tensor cuts the graph behind it (white paper §4.2). The order is the order of creation
wherever dependencies allow, which keeps programs readable and close to what the user wrote. Cycles
go through a NextIteration and a Merge, which stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import InvalidArgumentError
from headrace.graph.definition import Effect
from headrace.graph.flow import Flow
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph

__all__ = ["prune"]


def prune(
    fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]
) -> StepGraph:
    """Return the operations that `fetches` and `targets` need when `feeds` are given."""
    fed = set(feeds)
    roots = [t.op for t in fetches if t not in fed] + list(targets)
    needed: set[Operation] = set()
    stack = list(roots)
    while stack:
        op = stack.pop()
        if op in needed:
            continue
        needed.add(op)
        stack.extend(t.op for t in op._inputs if t not in fed)
        stack.extend(c for c in op._control_inputs if not _is_replaced(c, fed))
    return StepGraph(_in_order(needed, fed), tuple(feeds), tuple(fetches), tuple(targets))


def _is_replaced(op: Operation, fed: set[Tensor]) -> bool:
    """Whether waiting for an operation means nothing, since all that it does is fed."""
    if op._inputs or not op._outputs or op.definition.effect is not Effect.PURE:
        return False
    return all(t in fed for t in op._outputs)


def _in_order(needed: set[Operation], fed: set[Tensor]) -> tuple[Operation, ...]:
    """Sort by creation; where edges were changed after creation, by dependency."""
    order = sorted(needed, key=lambda op: op._id)
    position = {op: i for i, op in enumerate(order)}
    if all(position[before] < i for i, op in enumerate(order) for before in _before(op, fed)):
        return tuple(order)
    done: dict[Operation, bool] = {}
    result: list[Operation] = []
    for root in order:
        _visit(root, fed, done, result)
    return tuple(result)


def _before(op: Operation, fed: set[Tensor]) -> list[Operation]:
    """What stands before an operation: all that it waits for but the last iteration's values."""
    controls = [c for c in op._control_inputs if not _is_replaced(c, fed)]
    inputs = [t.op for t in op._inputs if t not in fed]
    if op.definition.flow is Flow.MERGE:
        inputs = [i for i in inputs if i.definition.flow is not Flow.NEXT]
    return inputs + controls


def _visit(root: Operation, fed: set[Tensor], done: dict[Operation, bool], out: list) -> None:
    stack = [(root, iter(_before(root, fed)))]
    if root in done:
        return
    done[root] = False
    while stack:
        op, remaining = stack[-1]
        for before in remaining:
            if before not in done:
                done[before] = False
                stack.append((before, iter(_before(before, fed))))
                break
            if not done[before]:
                path = [visited for visited, _ in stack]
                names = [visited.name for visited in path[path.index(before) :]]
                raise InvalidArgumentError(
                    None,
                    before,
                    f"Graph is invalid, contains a cycle with {len(names)} nodes, including: "
                    f"{', '.join(names)}",
                )
        else:
            stack.pop()
            done[op] = True
            out.append(op)
