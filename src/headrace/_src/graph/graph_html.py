"""The HTML that notebooks show for graphs and tensors. In: a Graph or a Tensor. Out: HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._src.core import source
from headrace._src.core.html import card, fold, table
from headrace._src.graph.definition import Effect
from headrace._src.graph.keys import GraphKeys

if TYPE_CHECKING:
    from headrace._src.graph.graph import Graph
    from headrace._src.graph.operation import Operation, Tensor

__all__ = ["amount", "graph_html", "short_value", "tensor_html"]

_MOST_OPERATIONS = 500  # that are listed; of larger graphs, the first ones
_MOST_TYPES = 8
_MOST_NAMES = 12
_MOST_ELEMENTS = 1000  # of a value that is shown


def tensor_html(tensor: Tensor) -> str:
    """Describe a tensor, and its value if it has one."""
    op = tensor.op
    facts: list[tuple[str, object]] = [("dtype", tensor.dtype.name), ("shape", tensor.shape)]
    if tensor.held is not None:
        facts.append(("value", short_value(tensor.held)))
    facts.append(("operation", f"{op.type}({', '.join(t.name for t in op._inputs)})"))
    if tensor._consumers:
        facts.append(("used by", _listed([c.name for c in tensor._consumers])))
    if tensor.device:
        facts.append(("device", tensor.device))
    if where := source.user_line(op.traceback_frames):
        facts.append(("made at", where))
    return card("Tensor", tensor.name, facts)


def graph_html(graph: Graph) -> str:
    """Describe a graph: its size, placeholders, variables, and operations by scope."""
    operations = graph.get_operations()
    types = Counter(op.type for op in operations)
    common = ", ".join(f"{kind} {count}" for kind, count in types.most_common(_MOST_TYPES))
    more = f" and {len(types) - _MOST_TYPES} other types" if len(types) > _MOST_TYPES else ""
    facts: list[tuple[str, object]] = [("types", common + more)] if operations else []
    variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
    if variables:
        trained = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        facts.append(("parameters", f"{_parameters(variables)}"))
        facts.append(("trainable", _parameters(trained)))
    if graph.finalized:
        facts.append(("finalized", source.user_line(graph._finalized_at) or "yes"))
    parts = []
    fed = [op for op in operations if _must_be_fed(op)]
    if fed:
        rows = [(op.name, op._outputs[0].dtype.name, op._outputs[0].shape) for op in fed]
        parts.append(fold(f"placeholders ({len(fed)})", table(("name", "dtype", "shape"), rows)))
    if variables:
        rows = [(v.op.name, v.dtype.base_dtype.name, v.shape) for v in variables]
        shown = table(("name", "dtype", "shape"), rows[:_MOST_OPERATIONS])
        parts.append(fold(f"variables ({len(rows)})", shown))
    if operations:
        shown = _Scope().filled(operations[:_MOST_OPERATIONS]).html()
        left = len(operations) - _MOST_OPERATIONS
        more = table((), [("...", f"and {amount(left)} more")]) if left > 0 else ""
        parts.append(fold("operations", shown + more))
    return card("Graph", f"{amount(len(operations))} operations", facts, parts)


def _must_be_fed(op: Operation) -> bool:
    """Return whether a value can only be fed: a pure operation without inputs that isn't a
    constant.
    """
    definition = op.definition
    pure = definition.effect is Effect.PURE and definition.fold is None
    return pure and not op._inputs and bool(op._outputs)


class _Scope:
    """The operations of a name scope, and the scopes within."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.scopes: dict[str, _Scope] = {}

    def filled(self, operations: Sequence[Operation]) -> _Scope:
        for op in operations:
            scope = self
            *names, _ = op.name.split("/")
            for name in names:
                scope = scope.scopes.setdefault(name, _Scope())
            scope.operations.append(op)
        return self

    def count(self) -> int:
        return len(self.operations) + sum(scope.count() for scope in self.scopes.values())

    def html(self) -> str:
        rows = [
            (op.name.rpartition("/")[2], op.type, ", ".join(map(_described, op._outputs)))
            for op in self.operations
        ]
        inner = [fold(f"{name}/ ({s.count()})", s.html()) for name, s in self.scopes.items()]
        return table((), rows) + "".join(inner)


def _parameters(variables: Sequence[Any]) -> str:
    """Say how many numbers the variables hold, as far as their shapes are known."""
    count = sum(v.shape.num_elements() or 0 for v in variables)
    return f"{amount(count)} in {amount(len(variables))} variables"


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype.name} {tensor.shape}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def amount(count: int) -> str:
    """Format a number: 1,234,567."""
    return f"{count:,}"


def short_value(value: Any) -> str:
    """Return the text of a value, or of its corners if it's large."""
    return np.array2string(np.asarray(value), threshold=_MOST_ELEMENTS // 10, edgeitems=3)
