"""Static information about a step: static shapes, and values that follow from constants and static
shapes.

`infer_shapes` gives a new operation's outputs their shapes by its definition's rule. The rule gets
an `InferenceContext` and one TensorShape per input (a list of them for a list input), and returns,
for a single output, a TensorShape, a tuple of sizes or None (unknown); for several, a list with one
of these each.

The same rules are used for the nodes of a Dataflow, where more is known: the shapes of feeds, and
which values are constants of the step. How much a rule sees of an input's value depends on the
function:

- `known_value` and `known_shape`, for operations, see exactly what TensorFlow's shape functions
  see, because programs look at the result: a value is computed from constants completely or not at
  all; single sizes of a shape are known if it is built by ops with an `as_shape` rule (Shape, Pack,
  ConcatV2, StridedSlice).
- `constant_value` and `constant_value_as_shape`, for functions that build graphs, see what
  `tf.get_static_value` sees: through the few ops that have a `static` rule.
- `partial_value`, for nodes, sees as much as possible: known elements next to unknown ones, through
  any ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace._src.core.errors import ShapeError
from headrace._src.core.tensor_shape import TensorShape, show_shape, words_of_op
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Feed, Node, Value
from headrace._src.graph.definition import Effect, Kind, bind_kernel, unfolded
from headrace._src.graph.operation import Operation, Tensor

__all__ = [
    "InferenceContext",
    "constant_value",
    "constant_value_as_shape",
    "infer_shapes",
    "inferred_shapes",
    "known_shape",
    "known_value",
    "partial_value",
    "run_kernel",
    "static_by_kernel",
]

_MOST_ELEMENTS = 4096  # Larger values are never shapes, axes or sizes.
_MOST_COMPUTED = 1 << 20  # elements of intermediate values
_MOST_OPERATIONS = 128  # Evaluation is meant for computations of shapes, not for whole programs.
_UNKNOWN = TensorShape(None)


class InferenceContext:
    """The queries of a shape rule about the operation being made, or about a node.

    `settled`: whether it's a node, for which the set of feeds can't change any more.
    """

    __slots__ = ("attrs", "op", "settled")

    def __init__(self, op: Operation | Node) -> None:
        self.op: Any = op
        self.attrs = op._attrs
        self.settled = isinstance(op, Node)

    def value(self, index: int) -> np.ndarray | None:
        """Return the value of flat input `index`, if it is known now."""
        tensor: Any = self.op._inputs[index]
        return _whole_value(tensor) if self.settled else known_value(tensor)

    def ints(self, index: int) -> list[int | None] | None:
        """Return the known elements of an integer vector (or scalar); None if even its length is
        unknown.
        """
        tensor: Any = self.op._inputs[index]
        if self.settled:
            value = partial_value(tensor)
            if value is not None:
                return [None if v is None else int(v) for v in value.ravel().tolist()]
        else:
            value = known_value(tensor)
            if value is not None:
                return [int(v) for v in value.ravel().tolist()]
        shape = tensor._shape.sizes
        if shape is None or len(shape) > 1 or (shape and shape[0] is None):
            return None
        return [None] * (shape[0] if shape else 1)  # type: ignore[operator]

    def shape_from(self, index: int) -> TensorShape:
        """Return the shape that an integer vector input describes; -1 and unknown elements are
        unknown sizes.
        """
        tensor: Any = self.op._inputs[index]
        if not self.settled:
            if tensor._shape.rank not in (None, 1):
                raise ValueError(f"Shape must be rank 1 but is rank {tensor._shape.rank}")
            return known_shape(tensor)
        sizes = self.ints(index)
        return _UNKNOWN if sizes is None else _shape_of(sizes)


def _shape_of(sizes: Sequence[int | None]) -> TensorShape:
    for n in sizes:
        if n is not None and n < -1:
            raise ValueError(f"Invalid value in tensor used for shape: {n}")
    return TensorShape.of(tuple(None if n == -1 else n for n in sizes))


def infer_shapes(op: Operation) -> None:
    """Set the static shapes of the outputs of a new operation; ShapeError if its inputs don't fit
    together.
    """
    for t, shape in zip(op._outputs, inferred_shapes(op), strict=True):
        t._shape = shape


def inferred_shapes(op: Operation | Node) -> list[TensorShape]:
    """Return the shape rule's result for each output; ShapeError if the inputs don't fit
    together.
    """
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


# -- Shape rules' view of the graph's tensors ------------------------------------------------------


def known_value(tensor: Tensor) -> np.ndarray | None:
    """Return the value of `tensor` as TensorFlow's shape functions see it, else None.

    The value is computed from constants, and from Shape, Size and Rank of tensors whose shapes are
    known; the results of those ops are not constants themselves. Evaluation doesn't pass through a
    Merge or out of a loop; a value that enters a loop is known inside, but values computed from it
    are not.
    """
    return _compute(tensor, {}, asked=True)


def _compute(
    tensor: Tensor, known: dict[Tensor, np.ndarray | None], asked: bool = False
) -> np.ndarray | None:
    """Return the value of `tensor`; `known` caches intermediate values. asked: it's not an
    intermediate one.
    """
    if tensor.held is not None:
        return tensor.held
    if tensor in known:
        return known[tensor]
    if len(known) >= _MOST_OPERATIONS:
        return None
    known[tensor] = None  # provisional, while its inputs are computed
    value = known[tensor] = _compute_op(tensor, known, asked)
    return value


def _compute_op(
    tensor: Tensor, known: dict[Tensor, np.ndarray | None], asked: bool
) -> np.ndarray | None:
    op = tensor.op
    definition = op.definition
    fold = definition.fold
    if fold is unfolded or definition.effect is not Effect.PURE:
        return None
    if not op._inputs:
        return None if fold is None else fold(op)[tensor.value_index]
    if definition.static is not None and fold is not None and not asked:
        value = definition.static(op, known_value, False)  # the shape alone may determine it
        if value is not None:
            return value
    if definition.flow in (Flow.MERGE, Flow.EXIT, Flow.TRIGGER):
        return None
    if definition.flow is Flow.ENTER and not asked:
        return None
    inputs = []
    for t in op._inputs:
        value = None if t.dtype._is_ref_dtype else _compute(t, known)
        if value is None or value.size > _MOST_COMPUTED:
            return None
        inputs.append(value)
    if definition.flow is not None:
        taken = int(inputs[1]) if definition.flow is Flow.SWITCH else 0
        return inputs[0] if taken == tensor.value_index else None
    if not _is_small(op, _MOST_COMPUTED):
        return None
    results = run_kernel(op, inputs)
    return None if results is None else np.asarray(results[tensor.value_index])


def known_shape(
    tensor: Tensor, value: Callable[[Tensor], np.ndarray | None] = known_value
) -> TensorShape:
    """Return the shape that an integer vector describes, as far as TensorFlow's shape functions
    know it; a scalar must be -1, which means any shape.

    value: a function that returns the known value of a tensor.
    """
    sizes = tensor._shape.sizes
    if sizes == ():
        scalar = value(tensor)
        if scalar is None or scalar != -1:
            raise ValueError(
                f"Received a scalar with {'unknown ' if scalar is None else ''}value "
                f"{'' if scalar is None else scalar} as shape; require a statically known scalar "
                "with value '-1' to describe an unknown shape."
            )
        return _UNKNOWN
    if sizes is not None and len(sizes) != 1:
        raise ValueError(f"Shape must be rank 1 but is rank {len(sizes)}")
    if sizes == (0,):
        return TensorShape.of(())
    rule = tensor.op.definition.as_shape
    found = None if rule is None else rule(tensor.op, tensor.value_index, value)
    if found is not None:
        return found
    known = value(tensor)
    if known is not None:
        return _shape_of(known.ravel().tolist())
    return _UNKNOWN if sizes is None or sizes[0] is None else TensorShape.of((None,) * sizes[0])


# -- The view of functions that build graphs -------------------------------------------------------


def constant_value(tensor: Tensor | Value, partial: bool = False) -> np.ndarray | None:
    """Return the value of `tensor` as `tf.get_static_value` does, else None.

    The caller may build the graph depending on the value, so the tensor can't be fed any more.

    partial: the elements of a Pack that aren't known are None.
    """
    if isinstance(tensor, Value):
        return _whole_value(tensor)
    value = _static(tensor, partial)
    if value is not None:
        tensor.graph.prevent_feeding(tensor)
    return value


def _static(tensor: Tensor, partial: bool) -> np.ndarray | None:
    if tensor.held is not None:
        return tensor.held
    op = tensor.op
    if not op._inputs and op.definition.fold is not None:
        return op.definition.fold(op)[tensor.value_index]
    rule = op.definition.static
    return None if rule is None else rule(op, constant_value, partial)


def constant_value_as_shape(tensor: Tensor) -> TensorShape:
    """Return the shape that an integer vector describes, as far as `constant_value` knows it."""
    return known_shape(tensor, constant_value)


def static_by_kernel(op: Operation, value: Callable[[Tensor], Any], partial: bool) -> Any:
    """The `static` rule of an op whose only output is known if its inputs are."""
    inputs = []
    for t in op._inputs:
        found = value(t)
        if found is None:
            return None
        inputs.append(found)
    results = run_kernel(op, inputs)
    return None if results is None else np.asarray(results[0])


# -- Known values of a step ------------------------------------------------------------------------


def _whole_value(tensor: Tensor | Value) -> np.ndarray | None:
    """Return the value of `tensor`, if all of it is known."""
    value = _evaluate(tensor, {})
    if value is None or (value.dtype == object and any(v is None for v in value.ravel().tolist())):
        return None
    if value.dtype == object and tensor.dtype.numpy.kind != "O":
        return value.astype(tensor.dtype.numpy)
    return value


def partial_value(tensor: Tensor | Value) -> np.ndarray | None:
    """Return the value of `tensor` with None for each unknown element: shapes are often partly
    known. None if nothing is known.
    """
    return _evaluate(tensor, {})


def _evaluate(tensor: Any, known: dict[Any, np.ndarray | None]) -> np.ndarray | None:
    """Return the value of `tensor`; `known` caches intermediate values, so that none is computed
    twice.
    """
    if tensor in known:
        return known[tensor]
    if len(known) >= _MOST_OPERATIONS:
        return None
    known[tensor] = None  # provisional, while its inputs are evaluated
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
        return None  # only the running step knows which values it passes on, and how often
    inputs = []
    for t in op._inputs:
        if t.dtype._is_ref_dtype:
            return None
        value = _evaluate(t, known)
        if value is None and definition.kind is Kind.MOVEMENT:
            value = _unknowns(t)  # elements moved next to it may be known
        if value is None or value.size > _MOST_ELEMENTS:
            return None
        inputs.append(value)
    return _run_kernel(tensor, inputs)


def _unknowns(tensor: Any) -> np.ndarray | None:
    """Return an array of unknown elements of the static shape of `tensor`, if that is known."""
    sizes = tensor._shape.sizes
    if sizes is None or None in sizes or not tensor.dtype.is_integer:
        return None
    return np.full(sizes, None, object)  # type: ignore[arg-type]


def _is_small(op: Operation | Node, most: int = _MOST_ELEMENTS) -> bool:
    for t in (*op._inputs, *op._outputs):
        count = t._shape.num_elements()
        if count is not None and count > most:
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
    """Return the results of a pure op's kernel for these inputs, one per output; None if it refuses
    them.
    """
    try:
        with np.errstate(all="ignore"):
            result = bind_kernel(op)(*inputs)
    except Exception:
        return None  # The kernel will raise the error when it runs; here the value is unknown.
    outputs = op.definition.schema.outputs
    return [result] if len(outputs) == 1 and not outputs[0].is_list else result


def _whole(value: np.ndarray, dtype: np.dtype) -> Any:
    """Return `value` in its own dtype if all of it is known, else None."""
    if value.dtype != object or dtype.kind == "O":
        return value
    return None if any(v is None for v in value.ravel().tolist()) else value.astype(dtype)
