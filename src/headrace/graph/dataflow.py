"""A specialised step: nodes whose types are settled, with every order between them an edge.

What the optimiser rewrites and the compiler clusters. It is made from a StepGraph and the shapes of
its feeds; a client's operation is where a node came from (for messages), never where it is looked
up. A Node has the face of an Operation that kernels and definitions see (`definition`, `_attrs`,
`_inputs`, `_outputs`, `name`), so that the interpreter runs either.

Invariants (verify_dataflow): nodes stand in an order that respects inputs and controls; a value's
type has a shape when it is known before the step runs; two nodes that touch the same state, one of
them writing, are ordered by controls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from headrace.core.dtypes import DType
from headrace.core.shapes import TensorShape
from headrace.graph.definition import Definition
from headrace.graph.operation import Operation, Tensor

__all__ = ["Dataflow", "Feed", "Node", "Value", "ValueType", "rewrite"]


@dataclass(frozen=True, slots=True)
class ValueType:
    """A value's element type and sizes; None: not known before the step runs."""

    dtype: DType
    sizes: tuple[int, ...] | None

    def __str__(self) -> str:
        sizes = "?" if self.sizes is None else ",".join(map(str, self.sizes))
        return f"{self.dtype.name}[{sizes}]"


@dataclass(frozen=True, eq=False)
class Value:
    """One output of a node, or a feed. Two values are the same only if they are one object."""

    producer: Node | Feed
    index: int
    type: ValueType

    # The face of a Tensor, for kernels and shape rules.

    @property
    def op(self) -> Any:
        return self.producer

    @property
    def value_index(self) -> int:
        return self.index

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @cached_property
    def _shape(self) -> TensorShape:
        return TensorShape(self.type.sizes)

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def name(self) -> str:
        return f"{self.producer.name}:{self.index}"

    def __repr__(self) -> str:
        return f"<{self.name} {self.type}>"


@dataclass(frozen=True, eq=False)
class Feed:
    """A value that the caller gives."""

    tensor: Tensor
    type: ValueType

    @property
    def name(self) -> str:
        return self.tensor.op.name

    @cached_property
    def value(self) -> Value:
        return Value(self, self.tensor.value_index, self.type)


@dataclass(frozen=True, eq=False)
class Node:
    """One use of an op. `constant`: its outputs' values, when they are known at compile time."""

    definition: Definition
    name: str
    attrs: dict[str, Any]
    inputs: tuple[Value, ...]
    controls: tuple[Node, ...]
    types: tuple[ValueType, ...]
    origin: Operation | None = None
    constant: tuple[np.ndarray, ...] | None = field(default=None, repr=False)

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(Value(self, i, t) for i, t in enumerate(self.types))

    # The face of an Operation, for kernels, shape rules and messages.

    @property
    def type(self) -> str:
        return self.definition.op_type

    @property
    def _attrs(self) -> dict[str, Any]:
        return self.attrs

    @property
    def _inputs(self) -> tuple[Value, ...]:
        return self.inputs

    @property
    def _outputs(self) -> tuple[Value, ...]:
        return self.outputs

    @property
    def _control_inputs(self) -> tuple[Node, ...]:
        return self.controls

    # The Site of lowering rules.

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(_known(v.type) for v in self.inputs)

    @property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(_known(t) for t in self.types)

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        return tuple(v.dtype.base_dtype.name for v in self.inputs)

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        return tuple(t.dtype.base_dtype.name for t in self.types)

    def constant_input(self, index: int) -> np.ndarray | None:
        """The value of input `index` if it's known at compile time."""
        value = self.inputs[index]
        producer = value.producer
        if isinstance(producer, Feed) or producer.constant is None:
            return None
        return producer.constant[value.index]

    def variable_type(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """The type and shape of the variable that input `index` refers to; None if not known."""
        value = self.inputs[index]
        dtype, shape = value.dtype, value.shape
        if not dtype._is_ref_dtype:
            found = _handle_data(value)
            if found is None:
                return None
            dtype, shape = found.dtype, found.shape
        sizes = shape.sizes
        if sizes is None or None in sizes:
            return None
        return dtype.base_dtype.name, tuple(n for n in sizes if n is not None)

    def __repr__(self) -> str:
        return f"<{self.type} {self.name}>"

    def __str__(self) -> str:
        inputs = [v.name for v in self.inputs] + [f"^{c.name}" for c in self.controls]
        outputs = ", ".join(f"{v.name} {v.type}" for v in self.outputs) or self.name
        if self.constant is not None:
            shown = ", ".join(_show_constant(c) for c in self.constant)
            return f"{outputs} = {shown}"
        return f"{outputs} = {self.type}({', '.join(inputs)})"


def _known(t: ValueType) -> tuple[int, ...]:
    if t.sizes is None:
        raise ValueError("a lowering rule was asked about a shape that isn't known")
    return t.sizes


def _handle_data(value: Value) -> Any:
    """What is known of the variable behind a handle, which other nodes may have passed on."""
    producer = value.producer
    if isinstance(producer, Feed) or producer.origin is None:
        return None
    found = getattr(producer.origin._outputs[value.index], "_handle_data", None)
    passed = [v for v in producer.inputs if v.dtype == value.dtype]
    return _handle_data(passed[0]) if found is None and len(passed) == 1 else found


def _show_constant(value: np.ndarray) -> str:
    return str(value.tolist()) if value.size <= 8 else f"<{value.dtype}{list(value.shape)}>"


@dataclass(frozen=True)
class Dataflow:
    """The nodes of a step in order, and where values go in and out.

    `fetches` are values (a Feed's value if a feed is fetched); `targets` are nodes that must run.
    """

    nodes: tuple[Node, ...]
    feeds: tuple[Feed, ...]
    fetches: tuple[Value, ...]
    targets: tuple[Node, ...]

    def __str__(self) -> str:
        lines = [f"feed  {f.value.name} {f.type}" for f in self.feeds]
        lines += [str(n) for n in self.nodes]
        lines += [f"fetch {v.name}" for v in self.fetches]
        lines += [f"run   {n.name}" for n in self.targets]
        return "\n".join(lines)


Rule = Callable[[Node], Node | Sequence[Value] | None]


def rewrite(flow: Dataflow, rule: Rule) -> Dataflow:
    """Rebuild `flow`, asking `rule` about every node (its inputs already rewritten).

    The rule answers None to keep the node, a Node to put in its place, or one Value per output that
    already exists: then the node goes, and whoever was to run after it runs after those values'
    producers and the node's own controls instead.
    """
    values: dict[Value, Value] = {}
    nodes: dict[Node, tuple[Node, ...]] = {}
    kept: list[Node] = []
    for node in flow.nodes:
        rebuilt = _rebuild(node, values, nodes)
        answer = rule(rebuilt)
        if answer is None or isinstance(answer, Node):
            stays = rebuilt if answer is None else answer
            kept.append(stays)
            nodes[node] = (stays,)
            values.update(zip(node.outputs, stays.outputs, strict=True))
        else:
            values.update(zip(node.outputs, answer, strict=True))
            before = [v.producer for v in answer if isinstance(v.producer, Node)]
            nodes[node] = _unique([*before, *rebuilt.controls])
    return Dataflow(
        tuple(kept),
        flow.feeds,
        tuple(values.get(v, v) for v in flow.fetches),
        _unique(n for t in flow.targets for n in nodes[t]),
    )


def _rebuild(node: Node, values: dict[Value, Value], nodes: dict[Node, tuple[Node, ...]]) -> Node:
    inputs = tuple(values.get(v, v) for v in node.inputs)
    controls = _unique(n for c in node.controls for n in nodes[c])
    if inputs == node.inputs and controls == node.controls:
        return node
    return replace(node, inputs=inputs, controls=controls)


def _unique(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(nodes))
