"""Stacking: pack and unpack, tensors of one shape to and from the rows of a larger one."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, show_shape, words_of_op
from headrace._src.graph.definition import Kind, Precision, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import Join, Site, View, row_major, traced
from headrace._src.ops.array.shape_ops import expand_dims
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_movement_rules import stacked, unstacked
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["check_axis", "pack", "parallel_stack", "stack", "unstack"]


def check_axis(axis: Any, rank: int, what: str = "axis") -> int:
    """Return a checked, non-negative axis."""
    value = int(np.asarray(axis).item()) if np.size(axis) == 1 else None
    if value is None:
        raise ValueError(f"{what} must be a scalar, not of shape {list(np.shape(axis))}")
    if not -rank <= value < rank:
        raise ValueError(f"{what} = {value} not in [{-rank}, {rank})")
    return value % rank


def _pack_infer(c: Any, shapes: list[TensorShape]) -> Any:
    merged = shapes[0]
    for i, other in enumerate(shapes[1:]):
        try:
            merged = merged.merge_with(other)
        except ValueError as error:
            raise ValueError(
                f"{words_of_op(error)}\n\tFrom merging shape {i} with other shapes."
            ) from None
    if merged.sizes is None:
        return None
    axis = check_axis(c.attrs["axis"], len(merged.sizes) + 1)
    return (*merged.sizes[:axis], len(shapes), *merged.sizes[axis:])


def _pack_kernel(values: Any, *, axis: int) -> np.ndarray:
    if not hasattr(values[0], "shape"):
        values = [np.asarray(v, object) for v in values]  # handles
    first = values[0]
    for i, value in enumerate(values):
        if value.shape != first.shape:
            raise ValueError(
                f"Shapes of all inputs must match: values[0].shape = {show_shape(first.shape)} "
                f"!= values[{i}].shape = {show_shape(value.shape)}"
            )
    axis = check_axis(axis, len(first.shape) + 1)
    result = np.empty((*first.shape[:axis], len(values), *first.shape[axis:]), first.dtype)
    before = (slice(None),) * axis
    for i, value in enumerate(values):
        result[(*before, i, ...)] = value
    return result


def _packed_shape(op: Operation, index: int, value: Any) -> TensorShape:
    """Return the shape whose sizes are the inputs; negative sizes are unknown."""
    known = [value(t) for t in op._inputs]
    return TensorShape([None if n is None or n < 0 else int(n) for n in known])


def _pack_static(op: Operation, value: Any, partial: bool) -> np.ndarray | None:
    if op._attrs["axis"] != 0:
        return None
    rows = [value(t, partial) for t in op._inputs]
    if all(row is not None for row in rows):
        return np.stack(rows)
    if not partial:
        return None
    known = np.empty(len(rows), object)
    for i, row in enumerate(rows):
        known[i] = row if row is None or np.ndim(row) else row[()]
    return known


def _pack_pieces(site: Site) -> list[View | None]:
    """Each input fills one index along the new axis."""
    to = site.output_shapes[0]
    axis, strides = site.attrs["axis"] % len(to), row_major(to)
    within = strides[:axis] + strides[axis + 1 :]
    return [View(shape, within, i * strides[axis]) for i, shape in enumerate(site.input_shapes)]


@define(
    "Pack",
    "values: N*T -> output: T",
    "N: int >= 1; T: type; axis: int = 0",
    infer=_pack_infer,
    kernel=_pack_kernel,
    fresh=True,
    as_shape=_packed_shape,
    static=_pack_static,
    gradient=lambda b, op, dy: b.unstack(dy, len(op.inputs), op._attrs["axis"]),
    kind=Kind.MOVEMENT,
    samples=[
        Sample([r(2, 3), r(2, 3)]),
        Sample([r(2, 3), r(2, 3), r(2, 3)], axis=-1),
        Sample([r(2), r(2)], axis=1),
        Sample([r()]),
        Sample([r(0), r(0)]),
    ],
    lower=Join(_pack_pieces),
    simplify=stacked,
    precision=Precision.EITHER,
)
def pack(values, axis=None, name=None):
    """Stack tensors of the same shape along a new axis."""


def _unpack_infer(c: Any, value: TensorShape) -> Any:
    count, sizes = c.attrs["num"], value.sizes
    if sizes is None:
        return [None] * count
    axis = check_axis(c.attrs["axis"], len(sizes))
    if sizes[axis] not in (count, None):
        raise ValueError(f"Dimension must be {count} but is {sizes[axis]}")
    return [(*sizes[:axis], *sizes[axis + 1 :])] * count


def _unpack_kernel(value: np.ndarray, *, num: int, axis: int) -> list[np.ndarray]:
    axis = check_axis(axis, np.ndim(value))
    if value.shape[axis] != num:
        raise ValueError(
            f"Input shape axis {axis} must equal {num}, got shape {show_shape(value.shape)}"
        )
    before = (slice(None),) * axis
    return [value[(*before, i, ...)] for i in range(num)]


@define(
    "Unpack",
    "value: T -> output: num*T",
    "num: int >= 0; T: type; axis: int = 0",
    infer=_unpack_infer,
    kernel=_unpack_kernel,
    gradient=lambda b, op, *grads: b.stack(grads, op._attrs["axis"]),
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(2, 3), num=2),
        Sample(r(2, 3), num=3, axis=-1),
        Sample(r(2), num=2),
        Sample(r(0, 2), num=0),
    ],
    lower=traced(_unpack_kernel),
    simplify=unstacked,
    precision=Precision.EITHER,
)
def unpack(value, num, axis=None, name=None):
    """Split a tensor into its rows along an axis."""


@composed
@dispatched
@export("stack")
def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """Stack tensors of the same shape along a new axis."""
    # Arrays keep their types; one constant of all of them would not.
    arrays = isinstance(values, list | tuple) and values and isinstance(values[0], np.ndarray)
    if axis == 0 and not (arrays and values[0].ndim):
        try:  # numbers become one constant, tensors (perhaps in nested lists) one Pack
            return convert_to_tensor(values, name=name)
        except (TypeError, ValueError):
            pass  # the op's own message is clearer
    rank = convert_to_tensor(values[0], name=name).shape.rank
    if rank is not None and not -rank - 1 <= axis < rank + 1:
        raise ValueError(f"axis = {axis} not in [{-rank - 1}, {rank + 1})")
    return pack(values, axis=axis, name=name)


@composed
@export("unstack")
def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str = "unstack"
) -> list[Tensor]:
    """Split a tensor into its rows along an axis; `num` is needed if the size isn't known."""
    if num is None:
        value = convert_to_tensor(value)
        sizes = value.shape.sizes
        if sizes is not None:
            if not -len(sizes) <= axis < len(sizes):
                raise ValueError(f"axis = {axis} not in [{-len(sizes)}, {len(sizes)})")
            num = sizes[axis]
        if num is None:
            raise ValueError(f"Cannot infer num from shape {value.shape}")
    return unpack(value, num=num, axis=axis, name=name)


def _parallel_infer(c: Any, shapes: list[TensorShape]) -> TensorShape:
    whole = c.attrs["shape"]
    if not whole.is_fully_defined():
        raise ValueError(f"shape attr must be fully defined, not {whole}")
    if whole.sizes[0] != len(shapes):
        raise ValueError(f"shape attr asks for {whole.sizes[0]} rows of {len(shapes)} inputs")
    for each in shapes:
        each.merge_with((1, *whole.sizes[1:]))
    return whole


def _parallel_gradient(b: OpBuilder, op: Operation, dy: Tensor) -> Any:
    return b.split(dy, len(op.inputs), 0)


def _rows(site: Site) -> list[View | None]:
    strides = row_major(site.output_shapes[0])
    return [View(shape, strides, i * strides[0]) for i, shape in enumerate(site.input_shapes)]


@define(
    "ParallelConcat",
    "values: N*T -> output: T",
    "N: int >= 1; T: type; shape: shape",
    infer=_parallel_infer,
    kernel=lambda values: np.concatenate(values, 0),
    gradient=_parallel_gradient,
    kind=Kind.MOVEMENT,
    samples=[Sample([r(1, 2), r(1, 2)], shape=[2, 2])],
    lower=Join(_rows),
)
def parallel_concat(values, shape, name=None):
    """Concatenate rows of known shape."""


@composed
@export("parallel_stack")
def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """Stack tensors of the same, known shape along a new first axis."""
    with name_scope(name):
        shape_of_one = convert_to_tensor(values[0]).shape
        whole = TensorShape([len(values)]).concatenate(shape_of_one)
        return parallel_concat([expand_dims(v, 0) for v in values], shape=whole)
