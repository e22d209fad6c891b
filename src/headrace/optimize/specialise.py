"""Specialise. In: a placed StepGraph and the shapes of its feeds. Out: a Dataflow.

Concrete shapes flow from the feeds through every op's shape rule; what follows from them and from
constants alone becomes a constant, at once if it's small (it may be a shape that the next rule asks
for), else in `fold`. What is left implicit between operations becomes explicit: reading a variable
through a reference is a node at the place of the operation that wanted the value, and whatever
touches the same state is ordered by controls as the program was.

A rule that refuses the shapes leaves them unknown: the kernel will say what is wrong when it runs.
What `set_shape` promised beyond the rules is checked by a node, then relied upon. The declared
shapes of variables are relied upon too, which the runtime checks before a step; after a node that
may change a variable's shape, they aren't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.core.errors import ShapeError
from headrace.core.shapes import TensorShape
from headrace.graph.dataflow import Dataflow, Feed, Node, Value, ValueType
from headrace.graph.inference import inferred_shapes, partial_value
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.ops.internal import ENSURE_SHAPE, READ
from headrace.optimize.evaluate import evaluate, is_known
from headrace.optimize.states import Order, State, carries_state, is_source

__all__ = ["specialise"]

_SMALL = 4096  # elements of what is evaluated at once
_UNKNOWN = TensorShape(None)


def specialise(step: StepGraph, shapes: Sequence[tuple[int, ...] | None]) -> Dataflow:
    """Settle the types of `step` for feeds of these shapes (None: not known)."""
    return _Specialiser(step, shapes).flow()


class _Specialiser:
    """What has been made so far: `_values` of tensors; `_waits`, the nodes that waiting for an
    operation means; `_behind`, those that a constant's readers must wait for.
    """

    def __init__(self, step: StepGraph, shapes: Sequence[tuple[int, ...] | None]) -> None:
        self._step = step
        self._feeds = tuple(
            Feed(t, _feed_type(t, shape)) for t, shape in zip(step.feeds, shapes, strict=True)
        )
        self._values: dict[Tensor, Value] = {f.tensor: f.value for f in self._feeds}
        self._waits: dict[Operation, tuple[Node, ...]] = {}
        self._behind: dict[Node, tuple[Node, ...]] = {}
        self._order = Order()
        self._made: list[Node] = []
        # States whose shape isn't what was declared any more.
        self._reshaped: set[State] = set()
        # Static shapes may follow from a tensor's static value; if it's fed, they mean nothing.
        self._promises = all(partial_value(t) is None for t in step.feeds)

    def flow(self) -> Dataflow:
        for op in self._step.operations:
            self._add_operation(op)
        return Dataflow(
            tuple(self._made),
            self._feeds,
            tuple(self._values[t] for t in self._step.fetches),
            tuple(dict.fromkeys(n for op in self._step.targets for n in self._waits[op])),
            self._step.fetches,
        )

    def _add_operation(self, op: Operation) -> None:
        controls = self._controls(op)
        inputs = self._with_reads(op, controls)
        node = Node(op.definition, op.name, op._attrs, inputs, controls, _static_types(op), op)
        if is_source(node):
            # It only finds its state; the runtime looks at all of them before anything happens.
            node = node.moved((), ())
        else:
            node = self._settled(node)
        if node.constant is None:
            node = self._add(node)
            self._waits[op] = (node,)
        else:
            node = node.moved((), ())
            self._made.append(node)
            self._waits[op] = controls
            if controls:
                self._behind[node] = controls
        for t, value in zip(op._outputs, node.outputs, strict=True):
            self._values.setdefault(t, self._promised(t, value))  # a fed output stays the feed

    def _controls(self, op: Operation) -> tuple[Node, ...]:
        """What an operation must wait for, by itself or through the constants that it reads."""
        found = [n for c in op._control_inputs for n in self._waits.get(c, ())]
        if self._behind:
            found += [n for t in op._inputs for n in self._behind.get(self._values[t].op, ())]
        return tuple(dict.fromkeys(found)) if found else ()

    def _add(self, node: Node) -> Node:
        """Put a node in its place, after what touched the same states before."""
        waits = self._order.before(node)
        if waits:
            data = {v.producer for v in node.inputs}
            added = [n for n in waits if n not in data]
            node = node.moved(node.inputs, tuple(dict.fromkeys([*node.controls, *added])))
        self._order.add(node)
        self._made.append(node)
        reshapes = node.definition.reshapes
        if reshapes is not None and reshapes(node):
            for value in filter(carries_state, node.inputs):
                self._reshaped |= self._order.states(value)
        return node

    # -- Reading variables -------------------------------------------------------------------------

    def _with_reads(self, op: Operation, controls: tuple[Node, ...]) -> tuple[Value, ...]:
        """The op's inputs, with a reading of the variable wherever it wants a value and is given a
        reference.
        """
        inputs = [self._values[t] for t in op._inputs]
        if any(v.dtype._is_ref_dtype for v in inputs):
            schema = op.definition.schema
            wants_ref = [a.is_ref for a in schema.inputs for _ in range(schema.count(a, op._attrs))]
            for i, wanted in enumerate(wants_ref):
                if inputs[i].dtype._is_ref_dtype and not wanted:
                    inputs[i] = self._read(inputs[i], f"{op.name}/read_{i}", op, controls)
        return tuple(inputs)

    def _read(self, ref: Value, name: str, op: Operation, controls: tuple[Node, ...]) -> Value:
        dtype = ref.dtype.base_dtype
        shape = _UNKNOWN if self._is_reshaped(ref) else ref.shape
        node = Node(READ, name, {"T": dtype}, (ref,), controls, (ValueType.of(dtype, shape),), op)
        return self._add(node).outputs[0]

    def _is_reshaped(self, value: Value) -> bool:
        return bool(self._reshaped) and not self._reshaped.isdisjoint(self._order.states(value))

    # -- Types and values --------------------------------------------------------------------------

    def _settled(self, node: Node) -> Node:
        """The node with the types of its outputs, and their values if they are known."""
        if self._reshaped and any(map(self._is_reshaped, node.inputs)):
            return replace(node, types=tuple(ValueType(t.dtype, None) for t in node.types))
        try:
            shapes = inferred_shapes(node)
        except ShapeError:
            shapes = [_UNKNOWN] * len(node.types)
        types = tuple([_typed(t, shape) for t, shape in zip(node.types, shapes, strict=True)])
        if types != node.types:
            node = replace(node, types=types)
        values = evaluate(node, _SMALL)
        return node if values is None else is_known(node, values)

    def _promised(self, tensor: Tensor, value: Value) -> Value:
        """The value of `tensor`, through a check if its static shape says more than the rules."""
        promise, known = tensor._shape, value.shape
        if known.is_fully_defined() or promise.sizes is None or promise.sizes == known.sizes:
            return value
        if not self._promises or carries_state(value) or not promise.is_compatible_with(known):
            return value
        shape = known.merge_with(promise)
        if shape.sizes == known.sizes:
            return value
        op = tensor.op
        name = f"{op.name}/shape_{tensor.value_index}"
        attrs: dict[str, Any] = {"T": value.dtype, "shape": shape}
        types = (ValueType.of(value.dtype, shape),)
        return self._add(Node(ENSURE_SHAPE, name, attrs, (value,), (), types, op)).outputs[0]


def _feed_type(tensor: Tensor, shape: tuple[int, ...] | None) -> ValueType:
    known = tensor._shape if shape is None else TensorShape.of(shape)
    return ValueType.of(tensor.dtype.base_dtype, known)  # what is fed is a value, no reference


def _static_types(op: Operation) -> tuple[ValueType, ...]:
    return tuple(ValueType.of(t.dtype, t._shape) for t in op._outputs)


def _typed(untyped: ValueType, shape: TensorShape) -> ValueType:
    sizes = shape.sizes
    if sizes is not None:  # rules that calculate with arrays give NumPy's integers
        shape = TensorShape.of(tuple(None if n is None else int(n) for n in sizes))
    return ValueType.of(untyped.dtype, shape)
