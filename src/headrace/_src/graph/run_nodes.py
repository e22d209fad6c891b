"""Run nodes one by one by their own kernels. In: nodes, and the values that they start from. Out:
values. Compiled regions do so where their code can't run, or can't say what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, OpError
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.definition import bind_kernel

__all__ = ["run_nodes"]


def run_nodes(
    nodes: Sequence[Node], known: dict[Value, Any], wanted: Sequence[Value], ctx: Any
) -> list[Any]:
    """Run nodes, starting from the `known` values; return those that are wanted."""

    def value(v: Value) -> Any:
        constant = v.constant
        return known[v] if v in known or constant is None else np.asarray(constant)

    for node in nodes:
        if node.constant is None:
            results = _run(node, [value(v) for v in node.inputs], ctx)
            listed = len(node.outputs) > 1 or node.definition.schema.has_list_outputs
            known.update(zip(node.outputs, results if listed else [results], strict=False))
    return [value(v) for v in wanted]


@dataclass(frozen=True, slots=True)
class _Context:
    """The context that kernels ask for: a name, attributes, the parts of loops, and the session's
    state.
    """

    name: str
    attrs: dict[str, Any]
    outer: Any

    def bound(self, part: Dataflow) -> Any:
        feeds = [f.value for f in part.feeds]
        return lambda values: run_nodes(
            part.nodes, dict(zip(feeds, values, strict=True)), part.fetches, self.outer
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outer, name)


def _run(node: Node, operands: list[Any], ctx: Any) -> Any:
    """Run a node's own kernel; an error names the node."""
    try:
        return bind_kernel(node, _Context(node.name, node.attrs, ctx))(*operands)
    except OpError as error:
        if error.op is None:
            error._op = node.origin
        raise
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        message = f"{node.type} '{node.name}': {str(error).strip()}"
        raise InvalidArgumentError(None, node.origin, message) from None
