"""Rules for ops that only move elements: moves that cancel out, and moves that change nothing. In
and out as in ops.base.simplify_rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core.errors import ShapeError
from headrace._src.graph.dataflow import Node, Value
from headrace._src.graph.definition import Definition, lookup
from headrace._src.graph.inference import inferred_shapes
from headrace._src.lowering.rules import Pass
from headrace._src.ops.base.simplify_rules import Answer, as_constant, same_type, uniform

__all__ = [
    "broadcast",
    "chosen",
    "extreme_of_broadcast",
    "joined",
    "passes_on",
    "relabelled",
    "sliced",
    "split",
    "stacked",
    "tiled",
    "transposed",
    "unstacked",
]


def _made_by(value: Value, *rules: Any) -> Node | None:
    """Return the node that made a value, if it is of one of these ops."""
    producer = value.producer
    if isinstance(producer, Node) and producer.inputs and producer.definition.simplify in rules:
        return producer
    return None


# -- The same elements in the same order -----------------------------------------------------------


def relabelled(node: Node) -> Answer:
    """Reshape, ExpandDims, Squeeze: only the last of several counts, and none if it restores the
    shape. A Reshape that makes a vector of a vector of any length counts for nothing either.
    """
    value = node.inputs[0]
    if len(node.inputs) == 2:
        shape = node.constant_input(1)
        if shape is None:
            return None  # the check that the elements match the step's shape must stay
        # The axis of an ExpandDims may be [-1], too.
        flattens = shape.tolist() == [-1] and node.definition is lookup("Reshape")
        if flattens and _is_vector(value):
            return [value]
    while True:
        if same_type(value, node):
            return [value]
        inner = _made_by(value, relabelled)
        if inner is None or inner.types[0].sizes is None or inner.controls:
            break
        value = inner.inputs[0]
    # A reshape determines its own result; the others depend on the sizes of their input.
    if value is node.inputs[0] or value.type.sizes is None or not _says_shape(node):
        return None
    return replace(node, inputs=(value, *node.inputs[1:]))


def passes_on(definition: Definition) -> bool:
    """Return whether the result of an op is in the memory of its first input, and takes no time."""
    return isinstance(definition.lower, Pass) or definition.simplify is relabelled


def _is_vector(value: Value) -> bool:
    """Return whether a value of unknown size is a vector, whatever a program has declared: its op's
    shape rule says so, for inputs of known sizes.
    """
    producer = value.producer
    if value.type.sizes is not None or not isinstance(producer, Node):
        return False
    if any(v.type.sizes is None for v in producer.inputs):
        return False
    try:
        return inferred_shapes(producer)[value.index].rank == 1
    except ShapeError:
        return False  # the kernel will report it


def _says_shape(node: Node) -> bool:
    shape = node.constant_input(1) if len(node.inputs) == 2 else None
    return shape is not None and shape.shape == (len(node.types[0].sizes or ()),) != (0,)


def sliced(node: Node) -> Answer:
    """A strided slice that takes all elements, with stride 1, is its input."""
    strides = node.constant_input(3)
    if strides is None or not (strides == 1).all() or not same_type(node.inputs[0], node):
        return None
    return [node.inputs[0]]


# -- Axes in another order -------------------------------------------------------------------------


def transposed(node: Node) -> Answer:
    """Two transpositions are one; a transposition that keeps the order of all axes longer than 1
    moves nothing.
    """
    perm = _permutation(node)
    if perm is None:
        return None
    value = node.inputs[0]
    if perm == sorted(perm):
        return [value]
    inner = _made_by(value, transposed)
    before = None if inner is None or inner.controls else _permutation(inner)
    if inner is None or before is None:
        return None
    together = [before[i] for i in perm]
    source = inner.inputs[0]
    if together == sorted(together):
        return [source]
    order = np.array(together, node.inputs[1].dtype.numpy)
    return replace(node, inputs=(source, as_constant(node, order, "perm")))


def _permutation(node: Node) -> list[int] | None:
    perm = node.constant_input(1)
    if perm is None or node.types[0].sizes is None or perm.ndim != 1:
        return None
    found = perm.tolist()
    rank = len(node.types[0].sizes)
    found = [i + rank if i < 0 else i for i in found]
    return found if sorted(found) == list(range(rank)) else None


# -- Repeated elements -----------------------------------------------------------------------------


def broadcast(node: Node) -> Answer:
    """Only the last of several broadcasts counts, and none if it repeats nothing."""
    value = node.inputs[0]
    if same_type(value, node):
        return [value]
    inner = _made_by(value, broadcast)
    if inner is None or inner.controls or node.types[0].sizes is None:
        return None
    return replace(node, inputs=(inner.inputs[0], *node.inputs[1:]))


def tiled(node: Node) -> Answer:
    """Tiling an axis of size 1 is a broadcast, which needs no memory."""
    value, sizes = node.inputs[0], node.types[0].sizes
    if same_type(value, node):
        return [value]
    given = value.type.sizes
    if sizes is None or given is None or 0 in sizes:
        return None
    if any(n not in (1, size) for n, size in zip(given, sizes, strict=True)):
        return None
    shape = as_constant(node, np.array(sizes, np.int64), "shape")
    attrs = {"T": value.dtype, "Tidx": shape.dtype}
    inputs = (value, shape)
    return replace(node, definition=lookup("BroadcastTo"), attrs=attrs, inputs=inputs)


def extreme_of_broadcast(node: Node) -> Answer:
    """The largest (or smallest) of a repeated element is the element."""
    axes, value = node.constant_input(1), node.inputs[0]
    if axes is not None and not axes.size:
        return [value]
    inner = _made_by(value, broadcast)
    given = None if inner is None or inner.controls else inner.inputs[0].type.sizes
    sizes = value.type.sizes
    if inner is None or given is None or sizes is None or axes is None or 0 in sizes:
        return None
    rank = len(sizes)
    ones = (*[1] * (rank - len(given)), *given)
    reduced = {int(a) % rank for a in axes.reshape(-1)}
    if any(ones[d] != (1 if d in reduced else sizes[d]) for d in range(rank)):
        return None
    shape = as_constant(node, np.array(node.types[0].sizes, np.int64), "shape")
    attrs = {"T": value.dtype, "Tshape": shape.dtype}
    return replace(node, definition=lookup("Reshape"), attrs=attrs, inputs=(inner.inputs[0], shape))


# -- Pieces ----------------------------------------------------------------------------------------


def joined(node: Node) -> Answer:
    """Concatenating all outputs of a split gives the split's input."""
    values, axis = _pieces(node)
    source = _made_by(values[0], split) if values else None
    if source is None or axis is None or source.controls:
        return None
    whole, split_axis = _whole(source)
    in_order = tuple(values) == source.outputs
    return [whole] if in_order and axis == split_axis and same_type(whole, node) else None


def split(node: Node) -> Answer:
    """Splitting a concatenation where it was joined gives the pieces."""
    whole, axis = _whole(node)
    if len(node.types) == 1:
        return [whole] if same_type(whole, node) else None
    source = _made_by(whole, joined)
    if source is None or axis is None or source.controls:
        return None
    values, joined_axis = _pieces(source)
    fits = len(values) == len(node.types) and all(
        same_type(v, node, i) for i, v in enumerate(values)
    )
    return values if fits and axis == joined_axis else None


def _pieces(node: Node) -> tuple[list[Value], int | None]:
    """Return the inputs of a concatenation and its axis, if that is known."""
    position = next(i for i, a in enumerate(node.definition.schema.inputs) if not a.is_list)
    values = list(node.inputs[1:] if position == 0 else node.inputs[:-1])
    return values, _axis(node.inputs[0 if position == 0 else -1], node.types[0].sizes)


def _whole(node: Node) -> tuple[Value, int | None]:
    """Return the input of a split and its axis, if that is known."""
    names = [a.name for a in node.definition.schema.inputs]
    whole = node.inputs[names.index("value")]
    return whole, _axis(node.inputs[names.index("split_dim")], whole.type.sizes)


def _axis(value: Value, sizes: tuple[int, ...] | None) -> int | None:
    axis = value.constant
    return None if axis is None or not sizes else int(axis.flat[0]) % len(sizes)


def stacked(node: Node) -> Answer:
    """Stacking all outputs of an unstack gives the unstack's input."""
    source = _made_by(node.inputs[0], unstacked)
    if source is None or source.controls or node.inputs != source.outputs:
        return None
    whole = source.inputs[0]
    same_axis = _stack_axis(node, node.types[0]) == _stack_axis(source, whole.type)
    return [whole] if same_axis and same_type(whole, node) else None


def unstacked(node: Node) -> Answer:
    """Unstacking a stack gives its inputs."""
    source = _made_by(node.inputs[0], stacked)
    if source is None or source.controls:
        return None
    if _stack_axis(node, node.inputs[0].type) != _stack_axis(source, source.types[0]):
        return None
    fits = len(source.inputs) == len(node.types) and all(
        same_type(v, node, i) for i, v in enumerate(source.inputs)
    )
    return source.inputs if fits else None


def _stack_axis(node: Node, whole: Any) -> int | None:
    axis = node.attrs["axis"]
    return axis if whole.sizes is None else axis % len(whole.sizes)


# -- Selections ------------------------------------------------------------------------------------


def chosen(node: Node) -> Answer:
    """A selection by a constant condition is one of its operands."""
    condition = uniform(node.inputs[0])
    if condition is None:
        return None
    branch = node.inputs[1 if condition else 2]
    return [branch] if same_type(branch, node) else None
