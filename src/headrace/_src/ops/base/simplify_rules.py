"""Algebraic rules that ops share. In: a node of a Dataflow. Out: values equal to its outputs, a
simpler node, or None.

A rule holds to the last bit, for every input: x*1 is x, but x+0 is x only if that zero is -0.0
(-0.0 + 0.0 is 0.0), and x*0 isn't 0 (NaN, infinity). It must not change a value's type: an operand
that was broadcast can't replace the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.dataflow import Node, Value, ValueType
from headrace._src.graph.definition import lookup
from headrace._src.graph.operation import Operation

__all__ = [
    "all_equal_inputs",
    "as_constant",
    "cancels_itself",
    "constant_node",
    "equals_input",
    "equals_input_if_same_size",
    "filled",
    "idempotent",
    "negated",
    "neutral",
    "one",
    "reduces_nothing",
    "same_type",
    "scalar_operand",
    "squared",
    "uniform",
    "zero",
]

Answer = Node | Sequence[Value] | None
_MOST_ELEMENTS = 1 << 16  # the largest constant that a rule makes or inspects


# -- Queries ---------------------------------------------------------------------------------------


def same_type(value: Value, node: Node, index: int = 0) -> bool:
    """Whether a value certainly has the type of the node's output."""
    expected = node.types[index]
    return expected.sizes is not None and value.type == expected


def uniform(value: Value) -> Any:
    """Return the number that all elements of a value equal, if that is known."""
    producer = value.producer
    constant = value.constant
    if isinstance(producer, Node) and constant is None and producer.definition is lookup("Fill"):
        constant = producer.constant_input(1)
    if constant is None or not 0 < constant.size <= _MOST_ELEMENTS or constant.dtype.hasobject:
        return None
    first = constant.flat[0]
    # Compare bytes, because 0.0 equals -0.0.
    return first if constant.tobytes() == first.tobytes() * constant.size else None


def one(value: Value) -> bool:
    """Whether a value is 1 everywhere. Complex numbers don't count: inf * (1+0i) is NaN."""
    return not value.dtype.is_complex and _is(uniform(value), 1)


def zero(value: Value, sign: int) -> bool:
    """Whether a value is 0 everywhere and, if floating-point, of this sign (1 or -1)."""
    found = uniform(value)
    if not _is(found, 0):
        return False
    if value.dtype.is_integer:
        return True
    number = complex(found)
    parts = [number.real, number.imag] if value.dtype.is_complex else [number.real]
    return bool(np.all(np.signbit(parts) == (sign < 0)))


def _is(found: Any, number: int) -> bool:
    return found is not None and bool(found == number)


# -- Construction ----------------------------------------------------------------------------------


def constant_node(array: np.ndarray, name: str, origin: Operation | None = None) -> Node:
    """A node whose output is known to be `array`."""
    t = ValueType(as_dtype(array.dtype), array.shape)
    attrs = {"value": array, "dtype": t.dtype}
    return Node(lookup("Const"), name, attrs, (), (), (t,), origin, (array,))


def as_constant(node: Node, array: np.ndarray, name: str) -> Value:
    """Return a constant that a new form of `node` needs."""
    return constant_node(array, f"{node.name}/{name}", node.origin).outputs[0]


# -- Rules -----------------------------------------------------------------------------------------


def equals_input(node: Node) -> Answer:
    """The output is the first input."""
    return [node.inputs[0]]


def all_equal_inputs(node: Node) -> Answer:
    """Each output is the input of the same index."""
    return node.inputs


def equals_input_if_same_size(node: Node) -> Answer:
    """The output has elements of the first input in order; it is that input if the counts are
    equal.
    """
    return [node.inputs[0]] if same_type(node.inputs[0], node) else None


def neutral(
    left: Callable[[Value], bool] | None = None, right: Callable[[Value], bool] | None = None
) -> Callable[[Node], Answer]:
    """The output is one operand if the other is the op's neutral element."""

    def rule(node: Node) -> Answer:
        x, y = node.inputs
        if right is not None and same_type(x, node) and right(y):
            return [x]
        if left is not None and same_type(y, node) and left(x):
            return [y]
        return None

    return rule


def idempotent(rule: Callable[[Node], Answer] | None = None) -> Callable[[Node], Answer]:
    """The output of two equal operands is that operand; otherwise apply `rule`."""

    def either(node: Node) -> Answer:
        if node.inputs[0] is node.inputs[1]:
            return [node.inputs[0]]
        return None if rule is None else rule(node)

    return either


def scalar_operand(rule: Callable[[Node], Answer] | None = None) -> Callable[[Node], Answer]:
    """If `rule` doesn't apply: where one operand alone has the result's shape, the other can be a
    scalar if it is one number everywhere, and needn't be broadcast beforehand.
    """

    def either(node: Node) -> Answer:
        answer = None if rule is None else rule(node)
        if answer is not None:
            return answer
        for i, (value, other) in enumerate(zip(node.inputs, node.inputs[::-1], strict=True)):
            less = _smaller(node, value, i) if same_type(other, node) else None
            if less is not None:
                return replace(node, inputs=(less, other) if i == 0 else (other, less))
        return None

    return either


def _smaller(node: Node, value: Value, number: int) -> Value | None:
    """Return a smaller value that broadcasts to the same as operand `number` of a node."""
    found = uniform(value) if value.type.sizes else None
    if found is not None:
        return as_constant(node, np.array(found), f"scalar_{number}")
    producer = value.producer
    if not isinstance(producer, Node) or producer.definition is not lookup("BroadcastTo"):
        return None
    return producer.inputs[0] if producer.inputs and not producer.controls else None


def cancels_itself(node: Node) -> Answer:
    """Applying it twice has no effect."""
    inner = node.inputs[0].producer
    if not isinstance(inner, Node) or inner.definition is not node.definition or not inner.inputs:
        return None
    return [inner.inputs[0]]


def reduces_nothing(node: Node) -> Answer:
    """A reduction over no axes returns its input."""
    axes = node.constant_input(1)
    return [node.inputs[0]] if axes is not None and not axes.size else None


# -- Replacements ----------------------------------------------------------------------------------


def squared(node: Node, value: Value) -> Node:
    """Replace `node` by value²."""
    return replace(node, definition=lookup("Square"), attrs={"T": value.dtype}, inputs=(value,))


def negated(node: Node, value: Value) -> Node:
    """Replace `node` by -value."""
    return replace(node, definition=lookup("Neg"), attrs={"T": value.dtype}, inputs=(value,))


def filled(node: Node, number: int) -> Answer:
    """The output is `number` everywhere, for any input."""
    (t,) = node.types
    if t.sizes is None or not (t.dtype.is_floating or t.dtype.is_integer or t.dtype.is_bool):
        return None
    value = np.array(number, t.dtype.numpy)
    if math.prod(t.sizes) <= _MOST_ELEMENTS:
        return replace(node, inputs=(), constant=(np.full(t.sizes, value),))
    dims = as_constant(node, np.array(t.sizes, np.int64), "dims")
    attrs = {"T": t.dtype, "index_type": dims.dtype}
    inputs = (dims, as_constant(node, value, "value"))
    return replace(node, definition=lookup("Fill"), attrs=attrs, inputs=inputs)
