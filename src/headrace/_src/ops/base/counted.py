"""Gradients whose operation counts match TensorFlow's. In: a gradient rule, and the number of
operations that TensorFlow 1.15 makes in its place. Out: a rule whose operations count as that many.

Graph.counted_as explains the purpose of the count. tests/laws/test_gradient_counts.py compares each
differentiable op with recorded counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from headrace._src.core.tensor_shape import Sizes
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder

__all__ = ["broadcast_nodes", "counted", "is_complex", "reduce_nodes"]

Rule = Callable[..., Any]
Tensors = Callable[[Any], Iterable[Tensor]]


def is_complex(op: Any) -> bool:
    """Whether an operation's first input is complex, so that its gradient takes conjugates."""
    return op.inputs[0].dtype.is_complex


def broadcast_nodes(graph: Graph, x: Sizes | None, y: Sizes | None) -> int:
    """Return how many operations TensorFlow adds to compute how two known shapes broadcast: both as
    constants and a BroadcastGradientArgs that never runs, when a graph first needs them.
    """
    return 3 if graph.settles(("broadcast", x, y)) else 0


def reduce_nodes(graph: Graph, shape: Sizes | None, axes: tuple[int, ...]) -> int:
    """Return how many operations TensorFlow adds to compute the shape of a reduction over known
    axes, when a graph first needs it. TensorFlow treats an empty list of axes as floats and casts
    it.
    """
    return 17 + (not axes) if graph.settles(("reduce", shape, axes)) else 0


def counted(
    nodes: int | Callable[..., int],
    rule: Rule | None = None,
    reads: Tensors | None = None,
    shapes: Tensors | None = None,
) -> Any:
    """Count a gradient rule as `nodes` operations: a number, or a function of the operation and its
    output gradients. Returns a decorator if no rule is given.

    The gradient of a loop has to save the values that rules read from its iterations. `reads` and
    `shapes` return, for an operation, the values and the unknown shapes that TensorFlow's rule
    reads, where ours reads others.
    """
    if rule is None:
        return lambda rule: counted(nodes, rule, reads, shapes)

    @wraps(rule)
    def gradient(b: OpBuilder, op: Any, *grads: Any) -> Any:
        context = op.graph.scope.context
        count = nodes(op, *grads) if callable(nodes) else nodes
        if context is None or (reads is None and shapes is None):
            with op.graph.counted_as(count):
                return rule(b, op, *grads)
        with op.graph.counted_as(count, borders=False), context.uncounted():
            found = rule(b, op, *grads)
        for value in reads(op) if reads is not None else ():
            context.count_value(value)
        for value in shapes(op) if shapes is not None else ():
            if not value.shape.is_fully_defined():
                context.count_shape(value)
        return found

    return gradient
