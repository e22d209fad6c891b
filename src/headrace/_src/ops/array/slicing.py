"""Slices: contiguous ones, and those of Python's `x[1:, ..., ::-1, tf.newaxis]`.

Only `resolve_strided_slice` interprets the masks of a strided slice; the shape rule, the kernels
and sliced assignments all use it.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export, export_value
from headrace._src.core.tensor_shape import Dimension, TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Kind, Precision, Sample
from headrace._src.graph.inference import known_shape, partial_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.row_anchors import Cut
from headrace._src.lowering.rules import Anchor, Join, Site, View, row_major, traced, traced_view
from headrace._src.ops.array.filling import zero_array
from headrace._src.ops.base import infer, to_tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_movement_rules import sliced
from headrace._src.ops.base.simplify_rules import equals_input_if_same_size
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["newaxis", "resolve_strided_slice", "slice_", "slice_tensor", "strided_slice"]

newaxis = None
export_value(__name__, "newaxis", "newaxis")

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")

# -- Contiguous slices -----------------------------------------------------------------------------


def _slice_infer(c: Any, x: TensorShape, begin: TensorShape, size: TensorShape) -> Any:
    (length,) = infer.with_rank(begin, 1).merge_with(infer.with_rank(size, 1)).as_list()
    whole = x.sizes if length is None else infer.with_rank(x, length).sizes
    sizes = c.value(2)
    if sizes is None:
        known = c.shape_from(2)
        return known if whole is None or known.sizes is not None else (None,) * len(whole)
    if (sizes < -1).any():
        raise ValueError(f"Expected sizes to be at least -1, but got {sizes.tolist()}")
    begins = infer.with_rank(c.shape_from(1), len(sizes)).as_list()
    whole = (None,) * len(sizes) if whole is None else whole
    return tuple(
        int(n) if n != -1 else _rest(*entry) for n, *entry in zip(sizes, whole, begins, strict=True)
    )


def _rest(whole: int | None, begin: int | None) -> int | None:
    """Return the size of an axis from `begin` on."""
    if whole is None or begin is None:
        return None
    if begin > whole:
        raise ValueError(f"Negative dimension size caused by subtracting {begin} from {whole}")
    return whole - begin


def _slice_size(i: int, whole: int | None, begin: int | None, size: int | None) -> int | None:
    """Return the size of axis i of a slice, as far as it is known; ValueError if it is out of
    bounds.
    """
    if begin is not None and whole is not None and not 0 <= begin <= whole:
        raise ValueError(f"Expected begin[{i}] in [0, {whole}], but got {begin}")
    if size == -1:
        return None if whole is None or begin is None else whole - begin
    if size is not None and whole is not None:
        most = whole - (begin or 0)
        if not 0 <= size <= most:
            raise ValueError(f"Expected size[{i}] in [0, {most}], but got {size}")
    return size


def _slice_kernel(x: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    if not np.shape(begin) == np.shape(size) == (np.ndim(x),):
        raise ValueError(
            f"Expected begin and size arguments to be 1-D tensors of size {np.ndim(x)}, but got "
            f"shapes {list(np.shape(begin))} and {list(np.shape(size))} instead."
        )
    index = []
    for i, (whole, first, count) in enumerate(zip(x.shape, begin.tolist(), size.tolist())):
        count = _slice_size(i, whole, first, count)
        index.append(slice(first, first + count))
    return x[tuple(index)]


def _slice_cut(site: Site) -> Cut | None:
    """A slice whose beginning the step computes."""
    sizes, shape = site.constant_input(2), site.input_shapes[0]
    if sizes is None or sizes.shape != (len(shape),) or site.output_shapes[0] != (*sizes,):
        return None
    strides = row_major(shape)
    view = View(site.output_shapes[0], strides)
    moves = [
        (k, whole - size + 1, stride)
        for k, (whole, size, stride) in enumerate(zip(shape, sizes.tolist(), strides, strict=True))
    ]
    return Cut(view, tuple(moves), site.output_dtypes[0], site.input_dtypes[1])


@counted(12)
def _slice_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    x, begin, _ = op.inputs
    dtype = begin.dtype.base_dtype
    after = b.subtract(b.subtract(b.shape(x, out_type=dtype), b.shape(dy, out_type=dtype)), begin)
    return b.pad(dy, b.stack([begin, after], 1)), None, None


@define(
    "Slice",
    "input: T, begin: Index, size: Index -> output: T",
    "T: type; Index: {index}",
    infer=_slice_infer,
    kernel=_slice_kernel,
    gradient=_slice_gradient,
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(3, 4), [1, 0], [2, 3]),
        Sample(r(3, 4), [0, 2], [-1, -1]),
        Sample(r(3), [3], [0]),
    ],
    lower=traced(_slice_kernel, otherwise=Anchor("cut", _slice_cut)),
    simplify=equals_input_if_same_size,
    precision=Precision.EITHER,
)
def slice_op(input, begin, size, name=None):
    """Return the block of `size` that starts at `begin`; a size of -1 extends to the end."""


@composed
@export("slice")
def slice_(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """Return the block of `size` that starts at `begin`; a size of -1 extends to the end."""
    return slice_op(input_, begin, size, name=name)


# -- Strided slices --------------------------------------------------------------------------------


def resolve_strided_slice(
    shape: Any, begin: Any, end: Any, strides: Any, masks: tuple[int, int, int, int, int]
) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
    """Return a NumPy index for a strided slice of a tensor of `shape`, and the slice's shape.

    masks: begin, end, ellipsis, new axis, shrink axis. Sizes, begins and ends may be None where
    they are not known; then the index is unusable, and the shape is only partly known.
    """
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = masks
    if not len(begin) == len(end) == len(strides):
        raise ValueError(
            f"Expected begin, end and strides of one length, not {len(begin)}, {len(end)} and "
            f"{len(strides)}"
        )
    if ellipsis_mask & (ellipsis_mask - 1):
        raise ValueError("Multiple ellipses in slice spec not allowed")
    index: list[Any] = []
    result: list[int | None] = []
    axis = 0
    taken = sum(not (ellipsis_mask | new_axis_mask) >> i & 1 for i in range(len(begin)))
    for i in range(len(begin)):
        if ellipsis_mask >> i & 1:
            for _ in range(len(shape) - taken):
                index.append(slice(None))
                result.append(shape[axis])
                axis += 1
            continue
        if new_axis_mask >> i & 1:
            index.append(None)
            result.append(1)
            continue
        if axis >= len(shape):
            raise ValueError(
                f"Index out of range using input dim {axis}; input has only {len(shape)} dims"
            )
        if strides[i] == 0:
            raise ValueError(f"strides[{i}] must be non-zero")
        if shrink_mask >> i & 1:
            index.append(_shrink(shape[axis], begin[i], strides[i], axis))
        else:
            first = None if begin_mask >> i & 1 else (begin[i],)
            last = None if end_mask >> i & 1 else (end[i],)
            piece, count = _piece(shape[axis], first, last, strides[i])
            index.append(piece)
            result.append(count)
        axis += 1
    result.extend(shape[axis:])
    # A trailing ellipsis makes NumPy return an array even where all axes are shrunk.
    return (*index, ...), tuple(result)


def _shrink(size: int | None, at: int | None, stride: int | None, axis: int) -> int:
    """Return the index of the single element that is taken from an axis."""
    if stride is not None and stride <= 0:
        raise ValueError("only stride 1 allowed on non-range indexing.")
    if at is None or size is None:
        return 0
    if not -size <= at < size:
        raise ValueError(f"slice index {at} of dimension {axis} out of bounds.")
    return at % size


def _piece(
    size: int | None, first: tuple | None, last: tuple | None, stride: int | None
) -> tuple[slice, int | None]:
    """Return the slice of one axis and its length; `first` and `last` are None if omitted."""
    start = first[0] if first else None
    stop = last[0] if last else None
    if size is None and stride is not None and first and last and None not in (start, stop):
        # Equal ends give an empty slice; otherwise the unknown size may truncate the slice.
        return slice(0, 0), 0 if start == stop else None
    if size is None or stride is None or first == (None,) or last == (None,):
        whole = size if first is None and last is None and stride == 1 else None
        return slice(0, 0), whole
    piece = slice(start, stop, stride)
    return piece, len(range(*piece.indices(size)))


def _masks(attrs: Any) -> tuple[int, int, int, int, int]:
    return tuple(attrs[name] for name in MASKS)


def _strided_infer(c: Any, x: TensorShape, *ends: TensorShape) -> Any:
    lengths = {n for s in ends for n in s.with_rank(1).as_list() if n is not None}
    if len(lengths) > 1:
        a, other = sorted(lengths)
        raise ValueError(
            f"Dimension 0 in both shapes must be equal, but are {a} and {other}. "
            f"Shapes are [{a}] and [{other}]."
        )
    if x.sizes is None or not lengths:
        return None
    (length,) = lengths
    if not c.settled and c.value(3) is None:
        return None
    begin, end, strides = (c.ints(i) or [None] * length for i in (1, 2, 3))
    if not c.settled and (None in begin or None in end):
        begin = end = [None] * length  # TensorFlow uses both or neither
    return resolve_strided_slice(x.sizes, begin, end, strides, _masks(c.attrs))[1]


def _part_of_shape(op: Operation, index: int, value: Any) -> TensorShape | None:
    """Return the shape denoted by a slice of a vector, for a plain `vector[begin:end:stride]`."""
    vector, *ends = op._inputs
    begin_mask, end_mask, *others = _masks(op._attrs)
    if any(others) or begin_mask > 1 or end_mask > 1 or any(t._shape.sizes != (1,) for t in ends):
        return None
    begin, end, stride = (None if found is None else int(found[0]) for found in map(value, ends))
    begin = 0 if begin_mask else begin
    end = None if end_mask else end
    if stride is None or stride <= 0 or begin is None or (end is None and not end_mask):
        return None
    sizes = known_shape(vector, value).sizes
    return TensorShape(None) if sizes is None else TensorShape.of(sizes[begin:end:stride])


def _strided_kernel(
    x: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    strides: np.ndarray,
    *,
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> np.ndarray:
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    first, last, steps = _vectors(begin, end, strides)
    index, _ = resolve_strided_slice(x.shape, first, last, steps, masks)
    return x[index]


def _strided_cut(site: Site, into: bool = False) -> Cut | None:
    """A slice that takes one element of some axes, at an index from the step, and a known range of
    the others; or its gradient, which writes it `into` zeros.
    """
    strides = site.constant_input(3)
    if strides is None:
        return None
    shape = site.output_shapes[0] if into else site.input_shapes[0]
    masks = {name: site.attrs[name] for name in MASKS}
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = masks.values()
    free = ellipsis_mask | new_axis_mask
    begin = _known_ends(site, 1, free | shrink_mask | begin_mask)
    end = _known_ends(site, 2, free | shrink_mask | end_mask)
    if begin is None or end is None:
        return None
    view = traced_view(lambda whole: _strided_kernel(whole, begin, end, strides, **masks), shape)
    if view is None:
        return None
    steps, axis, moves = row_major(shape), 0, []
    taken = sum(not free >> i & 1 for i in range(len(strides)))
    for i in range(len(strides)):
        if (shrink_mask & ~free) >> i & 1:
            moves.append((i, shape[axis], steps[axis]))
        axis += len(shape) - taken if ellipsis_mask >> i & 1 else not new_axis_mask >> i & 1
    types = site.output_dtypes[0], site.input_dtypes[1]
    if into:
        return Cut(view, tuple(moves), *types, source=4, into=prod(shape), wraps=True)
    return Cut(view, tuple(moves), *types, wraps=True)


def _known_ends(site: Site, index: int, needless: int) -> np.ndarray | None:
    """Return the begins or ends of a slice, 0 for those whose bit is set in `needless`; None if any
    other isn't known.
    """
    found = partial_value(site.inputs[index])
    if found is None:
        found = np.full(site.input_shapes[index], None)
    entries = [0 if needless >> i & 1 else n for i, n in enumerate(found.tolist())]
    return None if None in entries else np.array(entries, site.input_dtypes[index])


def _vectors(*values: np.ndarray) -> list[list[int]]:
    found = []
    for v in values:
        if v.ndim != 1:
            raise ValueError(f"begin, end and strides must be vectors, not shape {list(v.shape)}")
        found.append(v.tolist())
        if v.dtype.kind == "O" and None in found[-1]:
            raise TypeError("a slice can't be taken before all its ends are known")
    return found


def _strided_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    x, begin, end, strides = op.inputs
    shape = b.shape(x, out_type=begin.dtype)
    masks = dict(zip(MASKS, _masks(op._attrs), strict=True))
    return b.strided_slice_grad(shape, begin, end, strides, dy, **masks), None, None, None


_ATTRS = "; ".join(["T: type; Index: {index}", *[f"{name}: int = 0" for name in MASKS]])


@define(
    "StridedSlice",
    "input: T, begin: Index, end: Index, strides: Index -> output: T",
    _ATTRS,
    infer=_strided_infer,
    kernel=_strided_kernel,
    as_shape=_part_of_shape,
    gradient=_strided_gradient,
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(3, 4), [1, 0], [3, 4], [1, 2]),
        Sample(r(3, 4), [-1], [0], [-1], end_mask=1),
        Sample(r(3, 4, 2), [0, 1], [0, 2], [1, 1], ellipsis_mask=1, shrink_axis_mask=2),
        Sample(r(3), [0, 1], [0, 3], [1, 1], new_axis_mask=1),
        Sample(r(3, 4), [-1, 2], [0, 3], [1, 1], shrink_axis_mask=3),
        Sample(r(3), [2], [1], [1]),
        Sample(r(3), [-9], [9], [2]),
    ],
    lower=traced(_strided_kernel, otherwise=Anchor("cut", _strided_cut)),
    simplify=sliced,
    precision=Precision.EITHER,
)
def strided_slice_op(
    input,
    begin,
    end,
    strides,
    begin_mask=None,
    end_mask=None,
    ellipsis_mask=None,
    new_axis_mask=None,
    shrink_axis_mask=None,
    name=None,
):
    """Return input[begin:end:strides]; bit i of a mask changes the meaning of entry i."""


def _grad_infer(c: Any, *shapes: TensorShape) -> TensorShape:
    return c.shape_from(0)


def _grad_kernel(
    shape: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    strides: np.ndarray,
    dy: np.ndarray,
    *,
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> np.ndarray:
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    sizes, first, last, steps = _vectors(shape, begin, end, strides)
    if min(sizes, default=0) < 0:
        raise ValueError(f"shape has a negative size: {sizes}")
    index, wanted = resolve_strided_slice(sizes, first, last, steps, masks)
    if tuple(np.shape(dy)) != wanted:
        raise ValueError(f"shape of dy was {list(np.shape(dy))} instead of {list(wanted)}")
    check_room(sizes, dy.dtype, "shape")
    whole = zero_array(sizes, dy.dtype)
    whole[index] = dy
    return whole


def _grad_pieces(site: Site) -> list[View | None] | None:
    """`dy` fills the elements of the output that the slice selects."""
    ends: list[Any] = [site.constant_input(i) for i in (1, 2, 3)]
    if any(end is None for end in ends):
        return None
    masks = {name: site.attrs[name] for name in MASKS}
    view = traced_view(lambda whole: _strided_kernel(whole, *ends, **masks), site.output_shapes[0])
    return None if view is None else [None, None, None, None, view]


def _grad_gradient(b: OpBuilder, op: Operation, dx: Any) -> Any:
    _, begin, end, strides, _ = op.inputs
    masks = dict(zip(MASKS, _masks(op._attrs), strict=True))
    return None, None, None, None, b.strided_slice_op(dx, begin, end, strides, **masks)


@define(
    "StridedSliceGrad",
    "shape: Index, begin: Index, end: Index, strides: Index, dy: T -> output: T",
    _ATTRS,
    infer=_grad_infer,
    kernel=_grad_kernel,
    gradient=_grad_gradient,
    samples=[
        Sample([3, 4], [1, 0], [3, 4], [1, 2], r(2, 2)),
        Sample([3], [-1], [0], [-1], r(3), end_mask=1),
        Sample([3, 4], [1, 0], [2, 1], [1, 1], r(1), shrink_axis_mask=1, new_axis_mask=0),
    ],
    lower=Join(
        _grad_pieces,
        fill=lambda site: 0,
        otherwise=Anchor("cut", lambda site: _strided_cut(site, into=True)),
    ),
    precision=Precision.EITHER,
)
def strided_slice_grad(
    shape,
    begin,
    end,
    strides,
    dy,
    begin_mask=None,
    end_mask=None,
    ellipsis_mask=None,
    new_axis_mask=None,
    shrink_axis_mask=None,
    name=None,
):
    """Return zeros of `shape` with `dy` at the slice's position."""


def _assign_to_no_variable(value: Any, name: str | None = None) -> Any:
    """`assign` of a slice of a tensor that isn't a variable."""
    raise ValueError("Sliced assignment is only supported for variables")


@composed
@export("strided_slice")
def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return input_[begin:end:strides]; bit i of a mask changes the meaning of entry i.

    var: the sliced variable; the result then has a method `assign` that sets the slice.

    begin_mask and end_mask: ignore begin or end, and take everything in that direction.
    ellipsis_mask: as many dimensions as necessary. new_axis_mask: a new dimension of size 1.
    shrink_axis_mask: the element at begin, without the dimension.
    """
    if strides is None:
        strides = b.ones_like(begin)
    masks = {
        "begin_mask": begin_mask,
        "end_mask": end_mask,
        "ellipsis_mask": ellipsis_mask,
        "new_axis_mask": new_axis_mask,
        "shrink_axis_mask": shrink_axis_mask,
    }
    result = strided_slice_op(input_, begin, end, strides, **masks, name=name)
    if var is None:
        result.assign = _assign_to_no_variable
    else:
        scope = f"{name or result.op.name}_assign"

        def assign(value: Any, name: str | None = None) -> Any:
            """Return an operation that sets the slice of the variable to `value`."""
            target = name or scope
            return var._strided_slice_assign(begin, end, strides, value, target, **masks)

        result.assign = assign
    return result


# -- x[...] ----------------------------------------------------------------------------------------


def _check_index(index: Any) -> None:
    if isinstance(index, int | np.integer | Dimension) and not isinstance(index, bool):
        return
    dtype = getattr(index, "dtype", None)
    rank = index.shape.rank if isinstance(index, Tensor) else np.ndim(index)
    name = getattr(getattr(dtype, "base_dtype", dtype), "name", None)
    if name not in ("int32", "int64") or rank not in (0, None):
        raise TypeError(
            "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar "
            f"tf.int32/tf.int64 tensors are valid indices, got {index!r}"
        )


def _is_mask(key: Any) -> bool:
    dtype = getattr(key, "dtype", None)
    return isinstance(key, bool) or dtype is dtypes.bool or dtype == np.bool_


@composed
def slice_tensor(tensor: Any, key: Any, var: Any = None) -> Any:
    """Return tensor[key] by Python's rules: numbers, slices, tf.newaxis, `...`, scalar tensors."""
    if _is_mask(key):
        return b.boolean_mask(tensor, key)
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    masks: dict[str, int] = dict.fromkeys(MASKS, 0)
    for i, item in enumerate(key if isinstance(key, list | tuple) else (key,)):
        bit = 1 << i
        if isinstance(item, slice):
            begin.append(_bound(item.start, "begin_mask", bit, masks))
            end.append(_bound(item.stop, "end_mask", bit, masks))
            if item.step is not None:
                _check_index(item.step)
            strides.append(1 if item.step is None else item.step)
            continue
        strides.append(1)
        if item is Ellipsis or item is newaxis:
            masks["ellipsis_mask" if item is Ellipsis else "new_axis_mask"] |= bit
            begin.append(0)
            end.append(0)
        else:
            _check_index(item)
            masks["shrink_axis_mask"] |= bit
            begin.append(item)
            end.append(item + 1)
    with name_scope(None, "strided_slice", [tensor, *begin, *end, *strides]) as scope:
        if begin:
            ends = [b.stack(v) for v in (begin, end, strides)]
            if any(t.dtype is dtypes.int64 for t in ends):
                ends = [b.cast(t, dtypes.int64) for t in ends]
        else:
            ends = [to_tensor.constant([], dtypes.int32)] * 3
        starts, stops, steps = ends
        return strided_slice(tensor, starts, stops, steps, **masks, var=var, name=scope)


def _bound(value: Any, mask: str, bit: int, masks: dict[str, int]) -> Any:
    """Return one end of a slice; an omitted one is marked in its mask."""
    if value is not None and (isinstance(value, Tensor) or value != sys.maxsize):
        _check_index(value)
        return value
    masks[mask] |= bit
    return 0
