"""What is known before a step runs: static shapes, and values that follow from constants and static
shapes.

`infer_shapes` gives a new operation's outputs their shapes by its definition's rule. The rule gets
an `InferenceContext` and one TensorShape per input (a list of them for a list input), and returns,
for a single output, a TensorShape, a tuple of sizes or None (unknown); for several, a list with one
of these each.

The same rules serve the nodes of a Dataflow, where more is known: the shapes of feeds, and which
values are constants of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.core.errors import ShapeError
from headrace.core.shapes import TensorShape, show_shape, words_of_op
from headrace.graph.dataflow import Feed, Node, Value
from headrace.graph.definition import Effect, Kind, bind_kernel
from headrace.graph.operation import Operation, Tensor

__all__ = [
    "InferenceContext",
    "constant_value",
    "infer_shapes",
    "inferred_shapes",
    "partial_value",
    "run_kernel",
]

_MOST_ELEMENTS = 4096  # Larger values are never shapes, axes or sizes.
_MOST_OPERATIONS = 128  # Evaluating is for what leads to a shape, not for whole programs.
_UNKNOWN = TensorShape(None)


class InferenceContext:
    """What a shape rule may ask about the operation that is being made, or about a node.

    `settled`: it's a node, so that what is fed and what is not won't change any more.
    """

    __slots__ = ("attrs", "op", "settled")

    def __init__(self, op: Operation | Node) -> None:
        self.op = op
        self.attrs = op._attrs
        self.settled = isinstance(op, Node)

    def value(self, index: int) -> np.ndarray | None:
        """The value of flat input `index`, if it is known now."""
        return constant_value(self.op._inputs[index])

    def ints(self, index: int) -> list[int | None] | None:
        """The known elements of an integer vector (or scalar); None if not even its length is
        known.
        """
        value = partial_value(self.op._inputs[index])
        if value is None:
            shape = self.op._inputs[index]._shape.sizes
            if shape is None or len(shape) > 1 or (shape and shape[0] is None):
                return None
            return [None] * (shape[0] if shape else 1)  # type: ignore[operator]
        return [None if v is None else int(v) for v in value.ravel().tolist()]

    def shape_from(self, index: int) -> TensorShape:
        """The shape that an integer vector input stands for; -1 and unknown elements are unknown
        sizes.
        """
        sizes = self.ints(index)
        if sizes is None:
            return _UNKNOWN
        if any(n is not None and n < -1 for n in sizes):
            raise ValueError(f"Dimension sizes must be at least -1, but are {sizes}")
        return TensorShape.of(tuple(None if n == -1 else n for n in sizes))


def infer_shapes(op: Operation) -> None:
    """Set the static shapes of the outputs of a new operation; ShapeError if its inputs can't go
    together.
    """
    for t, shape in zip(op._outputs, inferred_shapes(op), strict=True):
        t._shape = shape


def inferred_shapes(op: Operation | Node) -> list[TensorShape]:
    """What the shape rule says of each output; ShapeError if the inputs can't go together."""
    definition = op.definition
    schema = definition.schema
    shapes: list[Any] = [t._shape for t in op._inputs]
    if schema.has_list_inputs:
        shapes = group(schema, op._attrs, shapes)
    try:
        found = definition.infer(InferenceContext(op), *shapes)
    except (ValueError, IndexError) as error:
        raise _shape_error(op, error) from None
    count = len(op.types if isinstance(op, Node) else op._outputs)
    if not count:
        return []
    results = found if isinstance(found, list) else [found]
    if len(results) != count:
        raise AssertionError(f"shape rule of {op.type}: {len(results)} shapes, {count} outputs")
    return [
        shape
        if isinstance(shape, TensorShape)
        else _UNKNOWN
        if shape is None
        else TensorShape.of(shape)
        for shape in results
    ]


def group(schema: Any, attrs: dict[str, Any], flat: list[Any]) -> list[Any]:
    """Gather the flat inputs of an op into one entry per argument: a list for a list argument."""
    grouped: list[Any] = []
    position = 0
    for argument in schema.inputs:
        if argument.is_list:
            count = schema.count(argument, attrs)
            grouped.append(list(flat[position : position + count]))
            position += count
        else:
            grouped.append(flat[position])
            position += 1
    return grouped


def _shape_error(op: Operation | Node, error: Exception) -> ShapeError:
    shapes = ", ".join(show_shape(t._shape) for t in op._inputs)
    where = f"for '{op.name}' (op: '{op.type}') with input shapes: {shapes}."
    return ShapeError(f"{words_of_op(error)} {where}", op=op)


def constant_value(tensor: Tensor | Value) -> np.ndarray | None:
    """Return the value of `tensor` if it follows from constants and static shapes, else None."""
    value = _evaluate(tensor, {})
    if value is None or (value.dtype == object and any(v is None for v in value.ravel().tolist())):
        return None
    if value.dtype == object and tensor.dtype.numpy.kind != "O":
        return value.astype(tensor.dtype.numpy)
    return value


def partial_value(tensor: Tensor | Value) -> np.ndarray | None:
    """As `constant_value`, but with None for each element that isn't known: shapes are often known
    in part.
    """
    return _evaluate(tensor, {})


def _evaluate(tensor: Any, known: dict[Any, np.ndarray | None]) -> np.ndarray | None:
    """The value of `tensor`; `known` has those found on the way, so that none is sought twice."""
    if tensor in known:
        return known[tensor]
    if len(known) >= _MOST_OPERATIONS:
        return None
    known[tensor] = None  # counts, while its inputs are evaluated
    value = known[tensor] = _evaluate_op(tensor, known)
    return value


def _evaluate_op(tensor: Any, known: dict[Any, np.ndarray | None]) -> np.ndarray | None:
    op = tensor.op
    if isinstance(tensor, Value):
        if isinstance(op, Feed) or op.constant is not None:
            return tensor.constant
    elif tensor.held is not None:
        return tensor.held
    definition = op.definition
    if definition.fold is not None:
        folded = definition.fold(op)
        return None if folded is None else np.asarray(folded[tensor.value_index])
    if definition.effect is not Effect.PURE or not op._inputs or not _is_small(op):
        return None
    if definition.flow is not None:
        return None  # which of its values it passes on, and how often, is decided by the step
    inputs = []
    for t in op._inputs:
        if t.dtype._is_ref_dtype:
            return None
        value = _evaluate(t, known)
        if value is None and definition.kind is Kind.MOVEMENT:
            value = _unknowns(t)  # what is moved next to it may be known
        if value is None or value.size > _MOST_ELEMENTS:
            return None
        inputs.append(value)
    return _run_kernel(tensor, inputs)


def _unknowns(tensor: Any) -> np.ndarray | None:
    """An array of as many unknown elements as `tensor` has, if that is known."""
    sizes = tensor._shape.sizes
    if sizes is None or None in sizes or not tensor.dtype.is_integer:
        return None
    return np.full(sizes, None, object)  # type: ignore[arg-type]


def _is_small(op: Operation | Node) -> bool:
    for t in (*op._inputs, *op._outputs):
        count = t._shape.num_elements()
        if count is not None and count > _MOST_ELEMENTS:
            return False
    return True


def _run_kernel(tensor: Any, inputs: list[np.ndarray]) -> np.ndarray | None:
    op = tensor.op
    partial = any(
        v.dtype == object and t.dtype.numpy.kind != "O"
        for v, t in zip(inputs, op._inputs, strict=True)
    )
    if partial:
        if op.definition.kind is not Kind.MOVEMENT:
            inputs = [_whole(v, t.dtype.numpy) for v, t in zip(inputs, op._inputs, strict=True)]
            if any(v is None for v in inputs):
                return None
        elif len({t.dtype for t in op._inputs}) == 1:
            inputs = [v.astype(object) for v in inputs]
    results = run_kernel(op, inputs)
    return None if results is None else np.asarray(results[tensor.value_index])


def run_kernel(op: Operation | Node, inputs: Sequence[np.ndarray]) -> Sequence[Any] | None:
    """What a pure op's kernel gives for these inputs, one per output; None if it refuses them."""
    try:
        with np.errstate(all="ignore"):
            result = bind_kernel(op)(*inputs)
    except Exception:
        return None  # The kernel will say why when it runs; here nothing is known.
    outputs = op.definition.schema.outputs
    return [result] if len(outputs) == 1 and not outputs[0].is_list else result


def _whole(value: np.ndarray, dtype: np.dtype) -> Any:
    """`value` in its own dtype if all of it is known, else None."""
    if value.dtype != object or dtype.kind == "O":
        return value
    return None if any(v is None for v in value.ravel().tolist()) else value.astype(dtype)
