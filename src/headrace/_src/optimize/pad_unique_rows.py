"""Pad. In: a Dataflow that finds and updates distinct rows, as optimizers do for the gradients of
an embedding. Out: the same with rows in arrays of known sizes, of which only the first ones count:
values without known sizes now have them, and can be compiled.

Everything between finding and updating is computed for the padding too, but never used. So results
are the same to the last bit. Other users of the distinct rows still get them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace._src.core.dtypes import int64
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType, rewrite
from headrace._src.graph.definition import Effect, Kind, RowPart
from headrace._src.ops.base.padded_rows import UNIQUE_ROWS, counted, part_of
from headrace._src.ops.base.simplify_rules import as_constant

__all__ = ["pad_rows"]


def pad_rows(flow: Dataflow) -> Dataflow:
    """Give updates of distinct rows known sizes."""
    if any(part_of(n.definition) is RowPart.FINDS for n in flow.nodes):
        return rewrite(flow, _Padding().rule)
    return flow


@dataclass(frozen=True)
class _Padded:
    """A value with padding, and the node that found its rows."""

    value: Value
    finder: Node


class _Padding:
    """`_known`: the padded forms of values, None where there is none; `_finders`: UNIQUE_ROWS, by
    the node that it replaces.
    """

    def __init__(self) -> None:
        self._known: dict[Value, _Padded | None] = {}
        self._finders: dict[Node, Node] = {}

    def rule(self, node: Node) -> Node | None:
        """Return the replacement of a node that updates rows."""
        definition = counted(node.definition)
        if definition is None or node.constant is not None:
            return None
        found = self._inputs(node)
        if found is None:
            return None
        inputs, finder = found
        length = self._finder(finder).outputs[2]
        return replace(node, definition=definition, inputs=(*inputs, length))

    def _inputs(self, node: Node) -> tuple[tuple[Value, ...], Node] | None:
        """Return a node's inputs with padding, all for the same rows; None if that is impossible,
        or if there is nothing to pad. Other inputs are references, or scalars.
        """
        given = [(v, self._padded(v)) for v in node.inputs]
        finders = {p.finder for _, p in given if p is not None}
        if len(finders) != 1:
            return None
        changes = part_of(node.definition) is RowPart.CHANGES
        for i, (value, padded) in enumerate(given):
            plain = value.type.sizes == () or (changes and value.dtype._is_ref_dtype)
            whole = part_of(node.definition) is RowPart.TAKES and i == 0
            if padded is None and not plain and not whole:
                return None
        return tuple(v if p is None else p.value for v, p in given), finders.pop()

    def _padded(self, value: Value) -> _Padded | None:
        if value.type.sizes is not None or not isinstance(value.producer, Node):
            return None
        if value not in self._known:
            self._known[value] = self._pad(value, value.producer)
        return self._known[value]

    def _pad(self, value: Value, node: Node) -> _Padded | None:
        part = part_of(node.definition)
        if part is RowPart.FINDS:
            finds = value.index == 0 and _length(node)
            return _Padded(self._finder(node).outputs[0], node) if finds else None
        if node.definition.effect is not Effect.PURE or len(node.types) != 1:
            return None
        if part is RowPart.SUMS:
            return self._sum(node)
        # A kernel may reject integers of the padding, such as a zero divisor.
        if part is RowPart.TAKES or (part is RowPart.MAPS and value.dtype.is_floating):
            return self._map(node)
        return None

    def _finder(self, node: Node) -> Node:
        """Return the node that finds the same rows as `node`, in padded form."""
        if node not in self._finders:
            (x,) = node.inputs
            positions = replace(x.type, dtype=node.types[1].dtype)
            types = (x.type, positions, ValueType(int64, ()))
            name = f"{node.name}/padded"
            self._finders[node] = Node(
                UNIQUE_ROWS, name, node.attrs, node.inputs, node.controls, types, node.origin
            )
        return self._finders[node]

    def _sum(self, node: Node) -> _Padded | None:
        """Pad sums by distinct row."""
        data, numbers, count = node.inputs
        finder = numbers.producer
        if not isinstance(finder, Node) or part_of(finder.definition) is not RowPart.FINDS:
            return None
        length = _length(finder)
        if data.type.sizes is None or not length:
            return None
        if numbers.index != 1 or not _is_size(count, finder.outputs[0]):
            return None
        constant = as_constant(node, np.array(length, count.dtype.numpy), "size")
        inputs = (data, self._finder(finder).outputs[1], constant)
        types = (ValueType(node.types[0].dtype, (length, *data.type.sizes[1:])),)
        return _Padded(_again(node, inputs, types), finder)

    def _map(self, node: Node) -> _Padded | None:
        """Pad a value with an element for each distinct row, or for each of its elements."""
        found = self._inputs(node)
        partial = node.types[0].partial
        if found is None or not partial or None in partial[1:]:
            return None
        inputs, finder = found
        sizes = (_length(finder), *(n for n in partial[1:] if n is not None))
        if node.definition.kind is Kind.ELEMENTWISE and any(
            v.type.sizes not in ((), sizes) for v in inputs
        ):
            return None
        types = (ValueType(node.types[0].dtype, sizes),)
        return _Padded(_again(node, inputs, types), finder)


def _length(finder: Node) -> int:
    """Return how many elements the distinct ones are found among; 0 if unknown."""
    sizes = finder.inputs[0].type.sizes
    return sizes[0] if sizes else 0


def _is_size(count: Value, rows: Value) -> bool:
    """Whether a number is the count of distinct rows, taken from their shape."""
    node = count.producer
    while isinstance(node, Node) and node.constant is None:
        if node.definition.fold is not None:  # a value that follows from a shape
            return node.inputs[0] is rows
        if node.definition.kind is not Kind.MOVEMENT:
            return False
        node = node.inputs[0].producer
    return False


def _again(node: Node, inputs: tuple[Value, ...], types: tuple[ValueType, ...]) -> Value:
    """Return the result of the same op on other inputs."""
    return replace(node, name=f"{node.name}/padded", inputs=inputs, types=types).outputs[0]
