"""Selecting by condition: where, boolean_mask, one_hot, sequence_mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Precision, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import Elementwise, Site, View, broadcast_view
from headrace._src.ops.base import infer, to_tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_movement_rules import chosen
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["boolean_mask", "one_hot", "sequence_mask", "where", "where_v2"]


def _where_kernel(x: np.ndarray) -> np.ndarray:
    if np.ndim(x) == 0:
        raise ValueError("WhereOp : Unhandled input dimensions: 0")
    places = np.flatnonzero(x)
    return np.stack(np.unravel_index(places, x.shape), 1).astype(np.int64, copy=False)


@define(
    "Where",
    "input: T -> index: int64",
    "T: {numbers|bool} = bool",
    infer=lambda c, x: (None, x.rank),
    kernel=_where_kernel,
    samples=[Sample([[1, 0], [0, 1]]), Sample([0, 0]), Sample(np.zeros((0, 2)))],
)
def where_op(input, name=None):
    """Return the coordinates of the elements that are true, or not zero, in row-major order."""


# -- Select ----------------------------------------------------------------------------------------


def _select_infer(c: Any, condition: TensorShape, t: TensorShape, e: TensorShape) -> TensorShape:
    shape = t.merge_with(e)
    if condition.rank == 0 or condition.sizes is None or shape.sizes is None:
        return shape
    if condition.rank == 1 and len(shape.sizes) > 1:
        (count,), (rows, *_) = condition.sizes, shape.sizes
        if rows != count and None not in (rows, count):
            raise ValueError(
                f"Dimension 0 in both shapes must be equal, but are {count} and {rows}. "
                f"Shapes are [{count}] and [{rows}]."
            )
        return shape
    return condition.merge_with(shape)


def _select_kernel(condition: np.ndarray, t: np.ndarray, e: np.ndarray) -> np.ndarray:
    if np.shape(t) != np.shape(e):
        raise ValueError(
            f"'then' and 'else' must have the same size, but got {list(np.shape(t))} vs. "
            f"{list(np.shape(e))}"
        )
    if np.ndim(condition) == 1 and np.ndim(t) > 1:
        if len(condition) != len(t):
            raise ValueError(
                "Number of batches of 'then' must match size of 'cond', but saw: "
                f"{len(t)} vs. {len(condition)}"
            )
        condition = condition.reshape(-1, *[1] * (np.ndim(t) - 1))
    elif np.ndim(condition) and np.shape(condition) != np.shape(t):
        raise ValueError(
            f"'then' must have the shape of 'cond', but saw: {list(np.shape(t))} vs. "
            f"{list(np.shape(condition))}"
        )
    return _choose(condition, t, e)


_BITS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
# The number of elements to select at once: the mask stays in cache.
_BLOCK = 1 << 15


def _choose(condition: np.ndarray, t: np.ndarray, e: np.ndarray) -> np.ndarray:
    """np.where, several times faster for large arrays of one shape: it mixes bits
    without branches.
    """
    bits = None if t.dtype.kind in "OV" else _BITS.get(t.dtype.itemsize)
    if bits is None or t.size < 1000 or not np.shape(condition) == np.shape(t) == np.shape(e):
        return np.where(condition, t, e)
    ours, other = np.ascontiguousarray(t).view(bits), np.ascontiguousarray(e).view(bits)
    chosen = np.ascontiguousarray(condition).view(np.int8)
    result = np.empty(t.shape, bits)
    flat: list[Any] = [array.reshape(-1) for array in (ours, other, chosen, result)]
    for start in range(0, t.size, _BLOCK):
        yes, no, choice, mixed = (array[start : start + _BLOCK] for array in flat)
        np.bitwise_xor(yes, no, out=mixed)
        mixed &= np.negative(choice).astype(bits)  # all ones where true
        np.bitwise_xor(mixed, no, out=mixed)
    return result.view(t.dtype)


def _unknown_like(op: Operation) -> list[Tensor]:
    """Return the values that TensorFlow's gradient reads: one, only to make zeros of its shape."""
    condition, t, _ = op.inputs
    return [condition] if t.shape.is_fully_defined() else [condition, t]


@counted(lambda op, dy: 3 + 5 * isinstance(dy, IndexedSlices), reads=_unknown_like)
def _select_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    condition = op.inputs[0]
    dy = convert_to_tensor(dy)
    zeros = b.zeros_like(dy)
    return None, b.select(condition, dy, zeros), b.select(condition, zeros, dy)


def _choose_lowered(e: Any, condition: Any, t: Any, e_: Any) -> Any:
    return e.select(condition, t, e_)


def _select_views(site: Site) -> list[View | None]:
    """Align a vector of conditions with the first axis, not the last."""
    condition, *values = site.input_shapes
    to = site.output_shapes[0]
    if len(condition) == 1 and len(to) > 1:
        condition += (1,) * (len(to) - 1)
    return [broadcast_view(shape, to) for shape in (condition, *values)]


@define(
    "Select",
    "condition: bool, t: T, e: T -> output: T",
    "T: type",
    infer=_select_infer,
    kernel=_select_kernel,
    fresh=True,
    gradient=_select_gradient,
    samples=[
        Sample([[True, False], [False, True]], r(2, 2), r(2, 2)),
        Sample([True, False], r(2, 3), r(2, 3)),
        Sample(False, r(2), r(2)),
        Sample(np.zeros((0, 2)), r(0, 2), r(0, 2)),
    ],
    lower=Elementwise(_choose_lowered, views=_select_views),
    simplify=chosen,
    precision=Precision.EITHER,
)
def select(condition, t, e, name=None):
    """Take elements of `t` where the condition is true, of `e` elsewhere; a vector chooses rows."""


@counted(12)
def _select_v2_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    condition, t, e = op.inputs
    dy = convert_to_tensor(dy)
    zeros = b.zeros_like(dy)
    dt = b.sum_to(b.select_v2(condition, dy, zeros), t)
    return None, dt, b.sum_to(b.select_v2(condition, zeros, dy), e)


@define(
    "SelectV2",
    "condition: bool, t: T, e: T -> output: T",
    "T: type",
    infer=infer.broadcasting,
    kernel=_choose,
    gradient=_select_v2_gradient,
    kind=Kind.ELEMENTWISE,
    samples=[
        Sample([[True, False], [False, True]], r(2, 2), r(2, 2)),
        Sample([[True], [False]], r(2, 3), r()),
        Sample(True, r(2), r(3, 1)),
    ],
    lower=Elementwise(_choose_lowered),
    simplify=chosen,
    precision=Precision.EITHER,
)
def select_v2(condition, t, e, name=None):
    """Take elements of `t` where the condition is true, of `e` elsewhere, with broadcasting."""


@composed
@dispatched
@export("where")
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Return x where the condition is true and y elsewhere; without x and y, the coordinates of the
    true elements.

    The condition has the shape of x and y, or is a vector that selects rows.
    """
    return _where(condition, x, y, name, select)


@composed
@export("where_v2")
def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """As `where`, but the condition, x and y broadcast."""
    return _where(condition, x, y, name, select_v2)


def _where(condition: Any, x: Any, y: Any, name: str | None, build: Any) -> Tensor:
    if (x is None) != (y is None):
        raise ValueError("x and y must both be non-None or both be None.")
    if x is not None:
        return build(condition, x, y, name=name)
    with name_scope(name, "Where", [condition]) as scope:
        condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
        return where_op(condition, name=scope)


# -- Masks -----------------------------------------------------------------------------------------


@composed
@export("boolean_mask")
def boolean_mask(
    tensor: Any, mask: Any, name: str = "boolean_mask", axis: int | None = None
) -> Tensor:
    """Return the slices of `tensor` for which `mask` is true, concatenated.

    The mask's shape is that of the tensor's dimensions from `axis` on.
    """
    with name_scope(name, values=[tensor, mask]):
        tensor = convert_to_tensor(tensor, name="tensor")
        mask = convert_to_tensor(mask, name="mask")
        rank = mask.shape.rank
        if rank == 0:
            raise ValueError("mask cannot be scalar.")
        if rank is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None.  "
                "E.g. shape=[None] is ok, but shape=None is not."
            )
        at = _static_axis(axis)
        tensor.shape[at : at + rank].assert_is_compatible_with(mask.shape)
        count = b.reduce_prod(b.shape(tensor)[at : at + rank], [0])
        front, back = b.shape(tensor)[:at], b.shape(tensor)[at + rank :]
        flat = b.reshape(tensor, b.concat([front, [count], back], 0))
        known = tensor.shape
        if known.sizes is not None:
            masked = known[at : at + rank].num_elements()
            flat.set_shape((*known.sizes[:at], masked, *known.sizes[at + rank :]))
        chosen = b.squeeze(where_op(b.reshape(mask, [-1])), [1])
        return b.gather(flat, chosen, axis=at if axis is not None else 0)


def _static_axis(axis: Any) -> int:
    if axis is None:
        return 0
    value = constant_value(axis) if isinstance(axis, Tensor) else axis
    if value is None:
        raise ValueError("tf.boolean_mask needs to know the axis when the graph is built")
    return int(value)


@composed
@export("sequence_mask")
def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool, name: str | None = None
) -> Tensor:
    """Return rows whose first lengths[i] elements are true; `maxlen` defaults to the largest
    length.
    """
    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            longest = b.reduce_max(lengths, _all_axes(lengths))
            maxlen = b.maximum(to_tensor.constant(0, longest.dtype), longest)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.shape.rank not in (0, None):
            raise ValueError("maxlen must be scalar for sequence_mask")
        ends = [to_tensor.constant(n, maxlen.dtype) for n in (0, 1)]
        places = b.range_op(ends[0], maxlen, ends[1])
        limits = b.cast_op(b.expand_dims(lengths, -1), DstT=maxlen.dtype)
        result = b.less(places, limits)
        if result.dtype.base_dtype is as_dtype(dtype).base_dtype:
            return result
        return b.cast(result, dtype)


def _all_axes(x: Tensor) -> Tensor:
    if x.shape.rank is not None:
        return to_tensor.constant(np.arange(x.shape.rank), dtypes.int32)
    return b.range_op(0, b.rank_op(x), 1)


# -- One-hot ---------------------------------------------------------------------------------------


def _one_hot_infer(c: Any, indices: TensorShape, *scalars: TensorShape) -> Any:
    if scalars[0].rank:
        raise ValueError(f"Input must be scalar but has rank {scalars[0].rank}")
    for shape in scalars[1:]:
        shape.with_rank(0)
    if indices.sizes is None:
        return None
    depth = c.value(1)
    if depth is not None:
        depth = int(depth)
        if depth < 0:
            raise ValueError(
                "Dimension size, given by scalar input 1, must be non-negative but is " + str(depth)
            )
    at = _one_hot_axis(c.attrs["axis"], len(indices.sizes))
    return (*indices.sizes[:at], depth, *indices.sizes[at:])


def _one_hot_axis(axis: int, rank: int) -> int:
    if not -1 <= axis <= rank:
        raise ValueError(
            f"Expected axis to be -1 or between [0, {rank + 1}).  But received: {axis}"
        )
    return rank if axis == -1 else axis


def _one_hot_kernel(
    indices: np.ndarray, depth: np.ndarray, on: np.ndarray, off: np.ndarray, *, axis: int
) -> np.ndarray:
    if np.ndim(depth) or np.ndim(on) or np.ndim(off):
        raise ValueError("depth, on_value and off_value must be scalars")
    count = int(depth)
    if count < 0:
        raise ValueError(f"depth must be non-negative, got: {count}")
    shape = np.shape(indices)
    at = _one_hot_axis(axis, len(shape))
    inner = max(math.prod(shape[at:]), 1)
    flat = np.asarray(indices).reshape(-1)
    check_room((*shape, count), np.asarray(on).dtype, "depth")
    result = np.full((*shape[:at], count, *shape[at:]), off, np.asarray(on).dtype)
    place = np.arange(flat.size)
    hot = (flat >= 0) & (flat < count)
    if not hot.all():
        flat, place = flat[hot], place[hot]
    # Element i of the indices is at i % inner of block i // inner, whose rows have inner elements.
    place += place // inner * (inner * (count - 1))
    place += flat * np.intp(inner)
    result.reshape(-1)[place] = on
    return result


def _one_hot_lowered(e: Any, i: Any, on: Any, off: Any, *, axis: int, site: Site) -> Any:
    at = _one_hot_axis(axis, len(site.input_shapes[0]))
    return e.select(e.eq(e.cast(i, "int64"), e.index(at)), on, off)


def _one_hot_views(site: Site) -> list[View | None] | None:
    indices, *scalars = site.input_shapes
    if any(scalars):
        return None
    to = site.output_shapes[0]
    at = _one_hot_axis(site.attrs["axis"], len(indices))
    spread = broadcast_view((*indices[:at], 1, *indices[at:]), to)
    return [spread, broadcast_view((), to), broadcast_view((), to)]


@define(
    "OneHot",
    "indices: TI, depth: int32, on_value: T, off_value: T -> output: T",
    "axis: int = -1; T: type; TI: {uint8|int32|int64} = int64",
    infer=_one_hot_infer,
    kernel=_one_hot_kernel,
    fresh=True,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([0, 2, 9], 3, r(), r()),
        Sample([[0, 1]], 3, r(), r(), axis=1),
        Sample([1, 0], 2, r(), r(), axis=0),
        Sample(1, 4, r(), r()),
        Sample(np.zeros((0, 2)), 2, r(), r()),
    ],
    lower=Elementwise(_one_hot_lowered, operands=(0, 2, 3), views=_one_hot_views),
)
def one_hot_op(indices, depth, on_value, off_value, axis=None, name=None):
    """Return on_value at each index and off_value elsewhere along a new axis of size `depth`."""


@composed
@dispatched
@export("one_hot")
def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return on_value (1) at each index and off_value (0) elsewhere, along a new axis.

    depth: the size of the new axis. axis: its position, by default last. Indices out of range give
    rows of off_value.
    """
    with name_scope(name, "one_hot", [indices, depth, on_value, off_value, axis, dtype]) as scope:
        given = None if dtype is None else as_dtype(dtype).base_dtype
        types = []
        for value in (on_value, off_value):
            if value is not None:
                types.append(convert_to_tensor(value).dtype.base_dtype)
        if given is not None:
            for found in types:
                if found is not given:
                    raise TypeError(
                        f"dtype {found.name} of on_value or off_value does not match dtype "
                        f"parameter {given.name}"
                    )
        elif len(types) == 2 and types[0] is not types[1]:
            raise TypeError(
                f"dtype {types[0].name} of on_value does not match dtype {types[1].name} of "
                "off_value"
            )
        found = given or (types[0] if types else dtypes.float32)
        if on_value is None:
            on_value = convert_to_tensor(1, found, name="on_value")
        if off_value is None:
            off_value = convert_to_tensor(0, found, name="off_value")
        return one_hot_op(indices, depth, on_value, off_value, axis=axis, name=scope)
