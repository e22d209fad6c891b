"""Pad. In: a Dataflow in which distinct rows are found and changed, as optimizers do it for the
gradients of an embedding. Out: the same with rows in arrays of known sizes, of which the first ones
count: what had no known sizes has them now, and can be compiled.

Everything between the finding and the changing is done for the padding too, and looked at by
nobody. So results stay equal to the last bit. Who else needs the distinct rows still gets them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace.core.dtypes import int64
from headrace.graph.dataflow import Dataflow, Node, Value, ValueType, rewrite
from headrace.graph.definition import Effect, Kind, lookup
from headrace.ops.padded_rows import UNIQUE_ROWS, Part, counted, part_of

__all__ = ["pad_rows"]


def pad_rows(flow: Dataflow) -> Dataflow:
    """Give changes of distinct rows known sizes."""
    if any(part_of(n.definition) is Part.FINDS for n in flow.nodes):
        return rewrite(flow, _Padding().rule)
    return flow


@dataclass(frozen=True)
class _Padded:
    """A value with padding, and the node that found the rows that it is for."""

    value: Value
    finder: Node


class _Padding:
    """`_known`: what values become, None where they can't be padded; `_finders`: UNIQUE_ROWS, by
    the node that it's for.
    """

    def __init__(self) -> None:
        self._known: dict[Value, _Padded | None] = {}
        self._finders: dict[Node, Node] = {}

    def rule(self, node: Node) -> Node | None:
        """What takes the place of a node that changes rows."""
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
        """A node's inputs with padding, all for the same rows; None if that can't be, or if there
        is nothing to pad. Others are references, or scalars.
        """
        given = [(v, self._padded(v)) for v in node.inputs]
        finders = {p.finder for _, p in given if p is not None}
        if len(finders) != 1:
            return None
        changes = part_of(node.definition) is Part.CHANGES
        for i, (value, padded) in enumerate(given):
            plain = value.type.sizes == () or (changes and value.dtype._is_ref_dtype)
            whole = part_of(node.definition) is Part.TAKES and i == 0
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
        if part is Part.FINDS:
            finds = value.index == 0 and _length(node)
            return _Padded(self._finder(node).outputs[0], node) if finds else None
        if node.definition.effect is not Effect.PURE or len(node.types) != 1:
            return None
        if part is Part.SUMS:
            return self._sum(node)
        # Of whole numbers, padding may be what a kernel refuses, such as a zero to divide by.
        if part is Part.TAKES or (part is Part.MAPS and value.dtype.is_floating):
            return self._map(node)
        return None

    def _finder(self, node: Node) -> Node:
        """What finds the rows that `node` does."""
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
        """Sums by which distinct row each is for."""
        data, numbers, count = node.inputs
        finder = numbers.producer
        if not isinstance(finder, Node) or part_of(finder.definition) is not Part.FINDS:
            return None
        length = _length(finder)
        if data.type.sizes is None or not length:
            return None
        if numbers.index != 1 or not _is_size(count, finder.outputs[0]):
            return None
        constant = _constant(np.array(length, count.dtype.numpy), f"{node.name}/size", count)
        inputs = (data, self._finder(finder).outputs[1], constant)
        types = (ValueType(node.types[0].dtype, (length, *data.type.sizes[1:])),)
        return _Padded(_again(node, inputs, types), finder)

    def _map(self, node: Node) -> _Padded | None:
        """Something for each distinct row, or for each of its elements."""
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
    """How many elements there are to find distinct ones of; 0 if that isn't known."""
    sizes = finder.inputs[0].type.sizes
    return sizes[0] if sizes else 0


def _is_size(count: Value, rows: Value) -> bool:
    """Whether a number is how many distinct rows there are: taken out of their shape."""
    node = count.producer
    while isinstance(node, Node) and node.constant is None:
        if node.definition.fold is not None:  # what a shape decides
            return node.inputs[0] is rows
        if node.definition.kind is not Kind.MOVEMENT:
            return False
        node = node.inputs[0].producer
    return False


def _again(node: Node, inputs: tuple[Value, ...], types: tuple[ValueType, ...]) -> Value:
    """The result of the same op on other inputs."""
    return replace(node, name=f"{node.name}/padded", inputs=inputs, types=types).outputs[0]


def _constant(array: np.ndarray, name: str, like: Value) -> Value:
    attrs = {"dtype": like.dtype, "value": array}
    types = (ValueType(like.dtype, array.shape),)
    return Node(lookup("Const"), name, attrs, (), (), types, constant=(array,)).outputs[0]
