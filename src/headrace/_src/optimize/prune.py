"""Prune. In: a graph, feeds, fetches and targets. Out: a Dataflow of only the operations that the
step needs.

A fed tensor cuts the graph behind it (white paper §4.2). The order is the order of creation
wherever dependencies allow, which keeps programs readable and close to the user's code. Cycles pass
through a NextIteration and a Merge, which comes before it and reads a Backedge.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Backedge, Dataflow, Feed, Node, Value, ValueType
from headrace._src.graph.definition import Effect
from headrace._src.graph.operation import Operation, Tensor

__all__ = ["prune"]


def prune(
    fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]
) -> Dataflow:
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
    return _dataflow(_in_order(needed, fed), feeds, fetches, targets)


def _dataflow(
    operations: Sequence[Operation],
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
) -> Dataflow:
    """Return the nodes of operations, which are in order."""
    given = tuple(Feed(t, ValueType.of(t.dtype.base_dtype, t._shape)) for t in feeds)
    values: dict[Tensor, Value] = {feed.tensor: feed.value for feed in given}
    nodes: dict[Operation, Node] = {}
    backedges: dict[Tensor, Backedge] = {}
    for op in operations:
        for t in op._inputs:
            if t not in values and t not in backedges:
                type = ValueType.of(t.dtype, t._shape)
                backedges[t] = Backedge(t, type, getattr(t, "_handle_data", None))
        node = nodes[op] = Node(
            op.definition,
            op.name,
            op._attrs,
            tuple([values[t] if t in values else backedges[t].value for t in op._inputs]),
            tuple([nodes[c] for c in op._control_inputs if c in nodes]),
            tuple([ValueType.of(t.dtype, t._shape) for t in op._outputs]),
            op,
            device=op._device,
        )
        for t, value in zip(op._outputs, node.outputs, strict=True):
            values.setdefault(t, value)  # a fed output stays the feed
    return Dataflow(
        tuple(nodes.values()),
        given,
        tuple(values[t] for t in fetches),
        tuple(nodes[op] for op in targets),
        tuple(fetches),
        {backedge: values[t] for t, backedge in backedges.items()},
    )


def _is_replaced(op: Operation, fed: set[Tensor]) -> bool:
    """Whether waiting for an operation has no effect, because all its outputs are fed."""
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
    """Return the predecessors of an operation: all that it waits for, except over back edges."""
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
