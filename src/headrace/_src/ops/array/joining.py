"""Concatenating and splitting along an axis: concat, split, tile.

Each op's gradient is its counterpart: that of concat splits, that of split concatenates.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, all_known, show_shape
from headrace._src.devices.room import check_room
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import Kind, Precision, Sample
from headrace._src.graph.inference import constant_value, known_shape, static_by_kernel
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import Join, Move, Site, View, row_major, traced
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.array.pack import check_axis
from headrace._src.ops.array.shape_ops import shape
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_movement_rules import joined, tiled
from headrace._src.ops.base.simplify_movement_rules import split as split_simplify
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.sum_precision import widened

__all__ = ["concat", "split", "tile"]


# -- Concat ----------------------------------------------------------------------------------------


def concat_shape(shapes: list[TensorShape], axis: Any) -> Any:
    known = [s for s in shapes if s.sizes is not None]
    if not known:
        return None
    rank = known[0].rank or 0
    for s in known:
        if not s.sizes:
            raise ValueError("Can't concatenate scalars (use tf.stack instead)")
        s.with_rank(rank)
    if axis is None:
        return (None,) * rank
    axis = int(axis)
    known[0].with_rank_at_least(axis + 1 if axis >= 0 else -axis)
    axis %= rank
    before, after = known[0][:axis], known[0][axis + 1 :]
    for s in known[1:]:
        before, after = before.merge_with(s[:axis]), after.merge_with(s[axis + 1 :])
    sizes = [*before.as_list(), None, *after.as_list()]
    joined = [s.sizes[axis] if s.sizes is not None else None for s in shapes]
    found = all_known(joined)
    sizes[axis] = None if found is None else sum(found)
    return tuple(sizes)


def _concat_v2_infer(c: Any, shapes: list[TensorShape], axis: TensorShape) -> Any:
    axis.with_rank(0)
    return concat_shape(shapes, c.value(len(shapes)))


def _joined_shape(vectors: list[Tensor], value: Any) -> TensorShape:
    """Return the shape that the concatenated vectors describe."""
    shape = TensorShape(())
    for vector in vectors:
        shape = shape.concatenate(known_shape(vector, value))
    return shape


def _scalar_axis(axis: Any, rank: int, what: str) -> int:
    if np.ndim(axis):
        shown = show_shape(np.shape(axis))
        raise ValueError(f"{what} tensor should be a scalar integer, but got shape {shown}")
    return check_axis(axis, rank, what)


def _concat(values: Any, axis: Any) -> np.ndarray:
    at = _scalar_axis(axis, np.ndim(values[0]), "concat_dim") if np.ndim(values[0]) else 0
    try:
        return np.concatenate(values, at)
    except ValueError as error:
        first = np.shape(values[0])
        for i, value in enumerate(values):
            if len(np.shape(value)) != len(first) or not first:
                raise ValueError(
                    f"ConcatOp : Ranks of all input tensors should match: shape[0] = "
                    f"{show_shape(first)} vs. shape[{i}] = {show_shape(np.shape(value))}"
                ) from None
        shapes = " vs. ".join(
            f"shape[{i}] = {show_shape(np.shape(v))}" for i, v in enumerate(values)
        )
        raise ValueError(
            f"ConcatOp : Dimensions of inputs should match: {shapes} ({error})"
        ) from None


def _cut_apart(b: OpBuilder, values: list[Tensor], axis: Any, dy: Any) -> list[Any]:
    """Split `dy` into pieces with the sizes of `values` along an axis."""
    known = convert_to_tensor(axis)
    if isinstance(dy, IndexedSlices):
        return _rows_apart(b, values, known, dy)
    static = _static_sizes(values, known)
    if static is not None:
        return b.split(dy, static, axis=axis)
    sizes = b.stack([shape(v)[axis] for v in values])
    return b.split(dy, sizes, axis=axis, num=len(values))


def _rows_apart(b: OpBuilder, values: list[Tensor], axis: Tensor, dy: IndexedSlices) -> list[Any]:
    """The gradient of each input of a concatenation when the gradient is IndexedSlices."""
    at, rank = constant_value(axis), values[0].shape.rank
    if at is None or (at < 0 and rank is None):
        raise ValueError("Can only compute IndexedSlices gradient with statically-known concat_dim")
    if int(at) % (rank or int(at) + 1):
        pieces = _cut_apart(b, values, axis, dy.values)
        return [
            IndexedSlices(piece, dy.indices, shape(v))
            for piece, v in zip(pieces, values, strict=True)
        ]
    found = []
    start: Any = b.constant(0, dy.indices.dtype)
    for v in values:
        stop = b.add_v2(start, b.cast(shape(v)[0], dy.indices.dtype))
        mine = b.logical_and(b.greater_equal(dy.indices, start), b.less(dy.indices, stop))
        places = b.squeeze(b.where(mine), [1])
        rows = b.subtract(b.gather(dy.indices, places), start)
        found.append(IndexedSlices(b.gather(dy.values, places), rows, shape(v)))
        start = stop
    return found


def _static_sizes(values: list[Tensor], axis: Tensor) -> list[int] | None:
    at = constant_value(axis)
    if at is None:
        return None
    return all_known(v.shape.sizes[int(at)] if v.shape.sizes else None for v in values)


def _concat_nodes(values: list[Tensor], dy: Any) -> int:
    """Return how many operations TensorFlow adds: it reads one shape after the other, and all of
    them in a step as soon as one isn't known; then it slices.
    """
    known = [v.shape.is_fully_defined() for v in values]
    shapes = len(values) if all(known) else known.index(False) + 2
    if isinstance(dy, IndexedSlices):
        return 3 + shapes + 13 * len(values)
    return 3 + shapes + len(values)


def _taken(values: list[Tensor], axis: Tensor) -> list[Tensor]:
    """Return what TensorFlow's gradient reads: all values, if the shape of one isn't known."""
    return [axis] if all(v.shape.is_fully_defined() for v in values) else [axis, *values]


@counted(
    lambda op, dy: _concat_nodes(op.inputs[:-1], dy),
    reads=lambda op: _taken(op.inputs[:-1], op.inputs[-1]),
)
def _concat_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    *values, axis = op.inputs
    return (*_cut_apart(b, values, axis, dy), None)


def _side_by_side(shapes: Any, axis: np.ndarray | None, to: Any) -> list[View | None] | None:
    """Return the part of an output of sizes `to` that each input fills."""
    if axis is None:
        return None
    at, strides = int(axis) % len(to), row_major(to)
    ends = accumulate(shape[at] for shape in shapes)
    return [
        View(shape, strides, (end - shape[at]) * strides[at])
        for shape, end in zip(shapes, ends, strict=True)
    ]


def _concat_v2_pieces(site: Site) -> list[View | None] | None:
    *shapes, _ = site.input_shapes
    pieces = _side_by_side(shapes, site.constant_input(len(shapes)), site.output_shapes[0])
    return None if pieces is None else [*pieces, None]


def _concat_old_pieces(site: Site) -> list[View | None] | None:
    pieces = _side_by_side(site.input_shapes[1:], site.constant_input(0), site.output_shapes[0])
    return None if pieces is None else [None, *pieces]


@define(
    "ConcatV2",
    "values: N*T, axis: Tidx -> output: T",
    "N: int >= 2; T: type; Tidx: {index} = int32",
    infer=_concat_v2_infer,
    kernel=_concat,
    fresh=True,
    gradient=_concat_gradient,
    as_shape=lambda op, index, value: _joined_shape(op._inputs[:-1], value),
    static=static_by_kernel,
    kind=Kind.MOVEMENT,
    samples=[
        Sample([r(2, 3), r(1, 3)], 0),
        Sample([r(2, 3), r(2, 2), r(2, 0)], -1),
        Sample([r(0), r(0)], 0),
    ],
    lower=Join(_concat_v2_pieces),
    simplify=joined,
    precision=Precision.EITHER,
)
def concat_v2(values, axis, name=None):
    """Concatenate tensors along an axis."""


def _concat_old_infer(c: Any, axis: TensorShape, shapes: list[TensorShape]) -> Any:
    axis.with_rank(0)
    return concat_shape(shapes, c.value(0))


@counted(
    lambda op, dy: _concat_nodes(op.inputs[1:], dy),
    reads=lambda op: _taken(op.inputs[1:], op.inputs[0]),
)
def _concat_old_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    axis, *values = op.inputs
    return (None, *_cut_apart(b, values, axis, dy))


@define(
    "Concat",
    "concat_dim: int32, values: N*T -> output: T",
    "N: int >= 2; T: type",
    infer=_concat_old_infer,
    kernel=lambda axis, values: _concat(values, axis),
    fresh=True,
    as_shape=lambda op, index, value: _joined_shape(op._inputs[1:], value),
    static=static_by_kernel,
    gradient=_concat_old_gradient,
    kind=Kind.MOVEMENT,
    samples=[Sample(0, [r(2, 3), r(1, 3)]), Sample(1, [r(2, 3), r(2, 2)])],
    lower=Join(_concat_old_pieces),
    simplify=joined,
)
def concat_old(concat_dim, values, name=None):
    """Concatenate tensors along an axis; the axis is the first input."""


def _offset_kernel(axis: Any, shapes: Any) -> list[np.ndarray]:
    first = shapes[0]
    if np.ndim(first) != 1 or any(s.shape != first.shape for s in shapes):
        raise ValueError("shapes must be vectors of one length")
    axis = _scalar_axis(axis, len(first), "concat_dim")
    table = [s.tolist() for s in shapes]
    outlines = [[*sizes[:axis], *sizes[axis + 1 :]] for sizes in table]
    if any(outline != outlines[0] for outline in outlines):
        raise ValueError(f"All dimensions except {axis} must match: {table}")
    offsets = np.zeros((len(shapes), len(first)), first.dtype)
    offsets[1:, axis] = list(accumulate(sizes[axis] for sizes in table[:-1]))
    return list(offsets)


@define(
    "ConcatOffset",
    "concat_dim: int32, shape: N*int32 -> offset: N*int32",
    "N: int >= 2",
    infer=lambda c, axis, shapes: shapes,
    kernel=_offset_kernel,
    samples=[Sample(1, [[2, 3], [2, 5], [2, 1]]), Sample(-1, [[4], [0]])],
)
def concat_offset(concat_dim, shape, name=None):
    """Return where tensors of given shapes begin in their concatenation."""


@composed
@dispatched
@export("concat")
def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """Concatenate tensors along an axis."""
    if not isinstance(values, list | tuple):
        values = [values]
    if len(values) == 1:
        with name_scope(name):
            convert_to_tensor(axis, dtypes.int32, "concat_dim").shape.assert_has_rank(0)
            return identity(values[0], name=name)
    return concat_v2(values, axis, name=name)


# -- Split -----------------------------------------------------------------------------------------


def _split_infer(c: Any, axis: TensorShape, value: TensorShape) -> Any:
    count, sizes, at = c.attrs["num_split"], value.sizes, c.value(0)
    if sizes is None:
        return [None] * count
    if at is None:
        return [(None,) * len(sizes)] * count
    at = check_axis(at, len(sizes), "split_dim")
    whole = sizes[at]
    if whole is not None and whole % count:
        raise ValueError(f"Dimension size must be evenly divisible by {count} but is {whole}")
    piece = None if whole is None else whole // count
    return [(*sizes[:at], piece, *sizes[at + 1 :])] * count


def _pieces(value: np.ndarray, axis: int, sizes: list[int]) -> list[np.ndarray]:
    before = (slice(None),) * axis
    ends = accumulate(sizes)
    return [value[(*before, slice(end - n, end))] for end, n in zip(ends, sizes, strict=True)]


def _split_kernel(axis: np.ndarray, value: np.ndarray, *, num_split: int) -> list[np.ndarray]:
    at = _scalar_axis(axis, np.ndim(value), "split_dim")
    if value.shape[at] % num_split:
        raise ValueError(
            "Number of ways to split should evenly divide the split dimension, but got split_dim "
            f"{at} (size = {value.shape[at]}) and num_split {num_split}"
        )
    return _pieces(value, at, [value.shape[at] // num_split] * num_split)


@define(
    "Split",
    "split_dim: int32, value: T -> output: num_split*T",
    "num_split: int >= 1; T: type",
    infer=_split_infer,
    kernel=_split_kernel,
    gradient=lambda b, op, *grads: (None, b.concat(list(grads), op.inputs[0])),
    kind=Kind.MOVEMENT,
    samples=[
        Sample(0, r(4, 3), num_split=2),
        Sample(-1, r(2, 3), num_split=3),
        Sample(0, r(2), num_split=1),
    ],
    lower=traced(_split_kernel, operand=1),
    simplify=split_simplify,
    precision=Precision.EITHER,
)
def split_op(split_dim, value, num_split, name=None):
    """Split a tensor into pieces of equal size."""


def _split_v_infer(c: Any, value: TensorShape, _: TensorShape, axis: TensorShape) -> Any:
    count, sizes = c.attrs["num_split"], value.sizes
    pieces, at = c.value(1), c.value(2)
    if sizes is None:
        return [None] * count
    if at is None:
        return [(None,) * len(sizes)] * count
    at = check_axis(at, len(sizes), "split_dim")
    if pieces is None:
        found: list[int | None] = [None] * count
    else:
        resolved = _resolved_sizes(pieces.ravel().tolist(), count, sizes[at])
        found = [None if n < 0 else n for n in resolved]
    return [(*sizes[:at], n, *sizes[at + 1 :]) for n in found]


def _resolved_sizes(pieces: Any, count: int, whole: int | None) -> list[int]:
    """Return the sizes of the pieces, with -1 replaced by the rest of `whole`."""
    if len(pieces) != count:
        raise ValueError(f"size_splits has {len(pieces)} sizes for {count} pieces")
    if pieces.count(-1) > 1 or any(n < -1 for n in pieces):
        raise ValueError(f"size_splits may have one -1 and no other negative size, unlike {pieces}")
    if whole is None:
        return pieces
    used = sum(n for n in pieces if n >= 0)
    if used > whole or (-1 not in pieces and used != whole):
        raise ValueError(
            f"can't split axis of size {whole} into pieces of size {show_shape(pieces)}"
        )
    return [whole - used if n == -1 else n for n in pieces]


def _split_v_kernel(value: Any, size_splits: Any, axis: Any, *, num_split: int) -> list[np.ndarray]:
    at = check_axis(axis, np.ndim(value), "split_dim")
    if np.ndim(size_splits) != 1:
        raise ValueError(f"size_splits must be a vector, not of shape {np.shape(size_splits)}")
    sizes = _resolved_sizes(size_splits.tolist(), num_split, value.shape[at])
    return _pieces(value, at, sizes)


@define(
    "SplitV",
    "value: T, size_splits: Tlen, split_dim: int32 -> output: num_split*T",
    "num_split: int >= 1; T: type; Tlen: {index} = int64",
    infer=_split_v_infer,
    kernel=_split_v_kernel,
    gradient=lambda b, op, *grads: (b.concat(list(grads), op.inputs[2]), None, None),
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(4, 3), [1, 3], 0, num_split=2),
        Sample(r(2, 5), [1, -1, 2], -1, num_split=3),
        Sample(r(2, 3), [0, 3], 1, num_split=2),
    ],
    lower=traced(_split_v_kernel),
    simplify=split_simplify,
    precision=Precision.EITHER,
)
def split_v(value, size_splits, split_dim, num_split, name=None):
    """Split a tensor into pieces of given sizes."""


@composed
@export("split")
def split(
    value: Any,
    num_or_size_splits: Any,
    axis: Any = 0,
    num: int | None = None,
    name: str = "split",
) -> list[Tensor]:
    """Split a tensor along an axis: into a number of equal pieces, or into pieces of given sizes.

    num: the number of sizes, where that isn't known statically.
    """
    sizes = convert_to_tensor(num_or_size_splits)
    if sizes.shape.rank == 0 and sizes.dtype.is_integer:
        return split_op(axis, value, num_split=num_or_size_splits, name=name)
    if num is None:
        if not sizes.shape.sizes or sizes.shape.sizes[0] is None:
            raise ValueError(f"Cannot infer num from shape {num_or_size_splits}")
        num = sizes.shape.sizes[0]
    return split_v(value, sizes, axis, num_split=num, name=name)


# -- Tile ------------------------------------------------------------------------------------------


def _tile_infer(c: Any, x: TensorShape, multiples: TensorShape) -> Any:
    times = c.shape_from(1)
    if x.sizes is None:
        sizes = times.sizes
        return None if sizes is None else tuple(0 if n == 0 else None for n in sizes)
    pairs: Any = zip(x.sizes, times.with_rank(len(x.sizes)).as_list(), strict=True)
    return tuple(0 if 0 in (n, m) else None if None in (n, m) else n * m for n, m in pairs)


def _check_multiples(times: list[Any]) -> None:
    if any(m is not None and m < 0 for m in times):
        raise ValueError(f"Expected multiples >= 0, but got {times}")


def _tile_kernel(x: np.ndarray, multiples: np.ndarray) -> np.ndarray:
    times = np.asarray(multiples).tolist()
    if np.ndim(multiples) != 1 or len(times) != np.ndim(x):
        raise ValueError(
            f"Expected multiples argument to be a vector of length {np.ndim(x)} but got length "
            f"{np.size(multiples)}"
        )
    _check_multiples(times)
    check_room([n * m for n, m in zip(x.shape, times, strict=True)], x.dtype, "multiples")
    apart = np.reshape(x, [n for size in x.shape for n in (1, size)])
    whole = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    return np.broadcast_to(apart, whole).reshape(
        [n * m for n, m in zip(x.shape, times, strict=True)]
    )


def _tile_view(site: Site) -> View:
    """Each axis becomes two: the repetitions, with stride 0 in the input, and the axis itself."""
    shape = site.input_shapes[0]
    sizes, strides = [], []
    for size, whole, stride in zip(shape, site.output_shapes[0], row_major(shape), strict=True):
        sizes += [whole // size if size else 0, size]
        strides += [0, stride]
    return View(tuple(sizes), tuple(strides))


@counted(12, reads=lambda op: op.inputs[1:], shapes=lambda op: op.inputs[:1])
def _tile_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    x, multiples = op.inputs
    sizes = b.shape(x, out_type=multiples.dtype)
    apart = b.reshape(b.transpose(b.stack([multiples, sizes])), [-1])
    axes = b.range(0, b.size(apart), 2)
    if isinstance(dy, IndexedSlices):
        dy = convert_to_tensor(dy)
    return b.reshape(b.reduce_sum(b.reshape(dy, apart), axes), b.shape(x)), None


@export("tile", "manip.tile")
@define(
    "Tile",
    "input: T, multiples: Tmultiples -> output: T",
    "T: type; Tmultiples: {index} = int32",
    infer=_tile_infer,
    kernel=_tile_kernel,
    gradient=_tile_gradient,
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(2, 3), [2, 1]),
        Sample(r(2), [3]),
        Sample(r(2), [0]),
        Sample(r(1, 2), [3, 2]),
    ],
    lower=Move(_tile_view),
    simplify=tiled,
    precision=Precision.EITHER,
)
def tile(input, multiples, name=None):
    """Repeat a tensor `multiples` times along each axis."""


def _tile_grad_infer(c: Any, x: TensorShape, multiples: TensorShape) -> Any:
    times = c.ints(1)
    if times is None or x.sizes is None:
        return None if x.sizes is None else (None,) * len(x.sizes)
    if len(times) != len(x.sizes):
        raise ValueError(f"Shape must be rank {len(x.sizes)} but is rank {len(times)}")
    if any(m is not None and m < 1 for m in times):
        raise ValueError(f"Expected multiples > 0, but got {times}")
    return tuple(None if None in (n, m) else n // m for n, m in zip(x.sizes, times, strict=True))


def _tile_grad_kernel(x: np.ndarray, multiples: np.ndarray) -> np.ndarray:
    times = np.asarray(multiples).tolist()
    if np.ndim(multiples) != 1 or len(times) != np.ndim(x):
        raise ValueError(f"multiples must be a vector of length {np.ndim(x)}, not {times}")
    if any(m < 1 or n % m for n, m in zip(x.shape, times, strict=True)):
        raise ValueError(f"multiples {times} don't divide the shape {list(x.shape)}")
    apart = x.reshape([k for n, m in zip(x.shape, times, strict=True) for k in (m, n // m)])
    axes = tuple(range(0, apart.ndim, 2))
    return widened(apart).sum(axes, dtype=widened(apart[:0]).dtype).astype(x.dtype)


@define(
    "TileGrad",
    "input: T, multiples: int32 -> output: T",
    "T: type",
    infer=_tile_grad_infer,
    kernel=_tile_grad_kernel,
    gradient=lambda b, op, dy: (b.tile(dy, op.inputs[1]), None),
    samples=[Sample(r(4, 3), [2, 1], T="float64"), Sample(r(4), [4], T="float32")],
)
def tile_grad(input, multiples, name=None):
    """Sum over the repetitions that Tile made; the gradient of Tile in old graphs."""
