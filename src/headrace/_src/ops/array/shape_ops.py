"""Shapes: reading them, reshaping, broadcasting.

Results that follow from static shapes are computed while the graph is built: `shape`, `rank` and
`size` then add constants, as in TensorFlow; `fold` rules give inference even partly known values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape, show_shape
from headrace._src.core.tensor_shape import broadcast as broadcast_shapes
from headrace._src.devices.room import check_room
from headrace._src.graph.composite import SparseTensor, SparseTensorValue
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Precision, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import Move, Site, View, broadcast_view, row_major
from headrace._src.ops.base import infer, to_tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r, unary
from headrace._src.ops.base.simplify_movement_rules import broadcast, relabelled
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "broadcast_to",
    "expand_dims",
    "rank",
    "reshape",
    "shape",
    "shape_internal",
    "shape_n",
    "size",
    "squeeze",
]

# -- Reading shapes --------------------------------------------------------------------------------


def _sizes_array(sizes: tuple[int | None, ...], dtype: Any) -> np.ndarray:
    """Return sizes as a vector: an object array with None where a size isn't known."""
    return np.array(sizes, object if None in sizes else dtype.numpy)


def _shape_fold(op: Operation) -> list[np.ndarray] | None:
    sizes = op._inputs[0]._shape.sizes
    return None if sizes is None else [_sizes_array(sizes, op._attrs["out_type"])]


def _static_fold(op: Operation, value: Any, partial: bool) -> np.ndarray | None:
    """Return the folded value of the only output, if it is fully known."""
    folded = op.definition.fold(op)  # type: ignore[misc]
    return None if folded is None or folded[0].dtype == object else folded[0]


def _shape_kernel(x: Any, *, out_type: Any) -> np.ndarray:
    return np.array(np.shape(x), out_type.numpy)


@define(
    "Shape",
    "input: T -> output: out_type",
    "T: type; out_type: {index} = int32",
    infer=lambda c, x: (x.rank,),
    kernel=_shape_kernel,
    fold=_shape_fold,
    as_shape=lambda op, index, value: op._inputs[index]._shape,
    static=_static_fold,
    samples=[Sample(r(2, 3)), Sample(r()), Sample(r(0, 2))],
)
def shape_op(input, out_type=None, name=None):
    """Return the shape of a tensor as a vector."""


def _shape_n_fold(op: Operation) -> list[Any] | None:
    dtype = op._attrs["out_type"]
    shapes = [t._shape.sizes for t in op._inputs]
    return None if None in shapes else [_sizes_array(s, dtype) for s in shapes if s is not None]


@export("shape_n")
@define(
    "ShapeN",
    "input: N*T -> output: N*out_type",
    "N: int >= 1; T: type; out_type: {index} = int32",
    infer=lambda c, xs: [(x.rank,) for x in xs],
    kernel=lambda xs, *, out_type: [np.array(np.shape(x), out_type.numpy) for x in xs],
    fold=_shape_n_fold,
    as_shape=lambda op, index, value: op._inputs[index]._shape,
    samples=[Sample([r(2, 3), r(4)])],
)
def shape_n(input, out_type=dtypes.int32, name=None):
    """Return the shapes of several tensors."""


def _rank_fold(op: Operation) -> list[np.ndarray] | None:
    rank = op._inputs[0]._shape.rank
    return None if rank is None else [np.array(rank, np.int32)]


@define(
    "Rank",
    "input: T -> output: int32",
    "T: type",
    infer=infer.scalar,
    kernel=lambda x: np.array(np.ndim(x), np.int32),
    fold=_rank_fold,
    static=_static_fold,
    samples=unary(),
)
def rank_op(input, name=None):
    """Return the number of dimensions of a tensor."""


def _size_fold(op: Operation) -> list[np.ndarray] | None:
    count = op._inputs[0]._shape.num_elements()
    return None if count is None else [np.array(count, op._attrs["out_type"].numpy)]


@define(
    "Size",
    "input: T -> output: out_type",
    "T: type; out_type: {index} = int32",
    infer=infer.scalar,
    kernel=lambda x, *, out_type: np.array(np.size(x), out_type.numpy),
    fold=_size_fold,
    static=_static_fold,
    samples=unary(),
)
def size_op(input, out_type=None, name=None):
    """Return the number of elements of a tensor."""


@composed
@export("shape")
def shape(
    input: Any,
    name: str | None = None,
    out_type: Any = dtypes.int32,
) -> Tensor:
    """Return the shape of a tensor as a vector; a constant if it is fully known already."""
    return shape_internal(input, name, True, out_type)


@composed
def shape_internal(
    value: Any, name: str | None = None, optimize: bool = True, out_type: Any = dtypes.int32
) -> Tensor:
    """As `shape`; without `optimize`, always the op."""
    with name_scope(name, "Shape", [value]) as scope:
        if isinstance(value, SparseTensor | SparseTensorValue):
            return b.cast(value.dense_shape, out_type)
        tensor = convert_to_tensor(value)
        if optimize and tensor.shape.is_fully_defined():
            return to_tensor.constant(tensor.shape.as_list(), out_type, name=scope)
        return shape_op(tensor, out_type=out_type, name=scope)


@composed
@dispatched
@export("rank")
def rank(input: Any, name: str | None = None) -> Tensor:
    """Return the number of dimensions of a tensor; a constant if it is known already."""
    with name_scope(name, "Rank", [input]) as scope:
        if isinstance(input, SparseTensor | SparseTensorValue):
            return size_op(input.dense_shape, name=scope)
        tensor = convert_to_tensor(input)
        if tensor.shape.rank is not None:
            return to_tensor.constant(tensor.shape.rank, dtypes.int32, name=scope)
        return rank_op(tensor, name=scope)


@composed
@dispatched
@export("size")
def size(
    input: Any,
    name: str | None = None,
    out_type: Any = dtypes.int32,
) -> Tensor:
    """Return the number of elements of a tensor; a constant if it is known already."""
    with name_scope(name, "Size", [input]) as scope:
        if isinstance(input, SparseTensor | SparseTensorValue):
            return b.reduce_prod(b.cast(input.dense_shape, out_type), 0, name=scope)
        tensor = convert_to_tensor(input)
        if tensor.shape.is_fully_defined():
            return to_tensor.constant(tensor.shape.num_elements(), out_type, name=scope)
        return size_op(tensor, out_type=out_type, name=scope)


# -- Reshaping -------------------------------------------------------------------------------------


def _reshape_infer(c: Any, x: TensorShape, shape: TensorShape) -> TensorShape:
    shape.with_rank(1)
    wanted = c.shape_from(1)
    if x.sizes is None or wanted.sizes is None:
        return wanted
    given = math.prod(n for n in x.sizes if n is not None)
    known = math.prod(n for n in wanted.sizes if n is not None)
    # A size of 0 decides the number of elements, whatever the unknown sizes are.
    open_given = x.sizes.count(None) if given else 0
    open_wanted = wanted.sizes.count(None) if known else 0
    if open_given == 1 and not open_wanted:
        _check_divisible(known, given)
    if open_given:
        return wanted
    if not open_wanted and known != given:
        raise ValueError(
            f"Cannot reshape a tensor with {given} elements to shape "
            f"{show_shape(wanted)} ({known} elements)"
        )
    if open_wanted != 1:
        return wanted
    _check_divisible(given, known)
    return TensorShape.of(tuple(given // known if n is None else n for n in wanted.sizes))


def _check_divisible(count: int, divisor: int) -> None:
    if count % divisor:
        raise ValueError(f"Dimension size must be evenly divisible by {divisor} but is {count}")


def _reshape_kernel(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    sizes = shape.tolist()
    try:
        if x.size and min(sizes, default=0) >= -1:
            return x.reshape(sizes)
        return x.reshape(_completed(x.shape, sizes))
    except (ValueError, TypeError):
        raise ValueError(_reshape_problem(x, np.asarray(shape))) from None


def _completed(sizes: tuple[int, ...], wanted: list[int]) -> list[int]:
    """Return the sizes `wanted` of an empty tensor with -1 replaced. If `wanted` has a 0, -1 is the
    quotient of the products of both shapes' nonzero sizes, otherwise 0.
    """
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1:
        raise ValueError
    whole = math.prod(n for n in sizes if n)
    known = math.prod(n for n in wanted if n > 0)
    if -1 in wanted and (0 in wanted or 0 not in sizes) and whole % known:
        raise ValueError
    missing = whole // known if 0 in wanted else 0
    return [missing if n == -1 else n for n in wanted]


def _reshape_problem(x: np.ndarray, shape: np.ndarray) -> str:
    if shape.ndim != 1:
        return f"the new shape must be a vector, not of shape {list(shape.shape)}"
    sizes = shape.tolist()
    for i, n in enumerate(sizes):
        if n < -1:
            return f"Size {i} must be non-negative, not {n}"
    if sizes.count(-1) > 1:
        first = sizes.index(-1)
        second = sizes.index(-1, first + 1)
        return f"Only one input size may be -1, not both {first} and {second}"
    count = math.prod(n for n in sizes if n != -1)
    if -1 not in sizes:
        return (
            f"Input to reshape is a tensor with {x.size} values, "
            f"but the requested shape has {count}"
        )
    if not count:
        return (
            "reshape cannot infer the missing input size for an empty tensor unless all specified "
            "input sizes are non-zero"
        )
    return (
        f"Input to reshape is a tensor with {x.size} values, but the requested shape requires a "
        f"multiple of {count}"
    )


def _reshape_back(b: OpBuilder, op: Operation, dy: Any) -> Any:
    """The gradient of every op that only reshapes its first input."""
    return (b.reshape(dy, b.shape(op.inputs[0])), *[None] * (len(op.inputs) - 1))


def _same_elements(site: Site) -> View:
    """The view of every op that only reshapes its first input."""
    return View(site.output_shapes[0], row_major(site.output_shapes[0]))


def _reshaped_view(site: Site) -> View | None:
    """Return a view if the shape is known; a shape computed in the step may not match
    the elements.
    """
    return None if site.constant_input(1) is None else _same_elements(site)


@export("reshape", "manip.reshape")
@define(
    "Reshape",
    "tensor: T, shape: Tshape -> output: T",
    "T: type; Tshape: {index} = int32",
    infer=_reshape_infer,
    kernel=_reshape_kernel,
    gradient=_reshape_back,
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(2, 6), [3, -1]),
        Sample(r(2, 3), [6]),
        Sample(r(0, 2), [-1, 2]),
        Sample(r(), [1, 1]),
    ],
    lower=Move(_reshaped_view),
    simplify=relabelled,
    precision=Precision.EITHER,
)
def reshape(tensor, shape, name=None):
    """Return the same elements in another shape; one size may be -1, and is then inferred."""


def _expand_infer(c: Any, x: TensorShape, dim: TensorShape) -> Any:
    axis = c.value(1)
    if x.sizes is None or axis is None:
        return None
    position = _new_axis(len(x.sizes), axis)
    return (*x.sizes[:position], 1, *x.sizes[position:])


def _new_axis(rank: int, dim: Any) -> int:
    if np.size(dim) != 1:
        raise ValueError(
            f"'dim' must be a tensor with a single value, not of shape {np.shape(dim)}"
        )
    axis = int(np.asarray(dim).item())
    if not -rank - 1 <= axis <= rank:
        raise ValueError(f"dim {axis} not in the interval [{-rank - 1}, {rank}].")
    return axis if axis >= 0 else axis + rank + 1


def _expand_kernel(x: np.ndarray, dim: np.ndarray) -> np.ndarray:
    rank = np.ndim(x)
    if np.size(dim) == 1 and not -rank - 1 <= np.asarray(dim).item() <= rank:
        index = np.asarray(dim).item()
        raise ValueError(f"Tried to expand dim index {index} for tensor with {rank} dimensions.")
    position = _new_axis(rank, dim)
    return x.reshape((*x.shape[:position], 1, *x.shape[position:]))


@define(
    "ExpandDims",
    "input: T, dim: Tdim -> output: T",
    "T: type; Tdim: {index} = int32",
    infer=_expand_infer,
    kernel=_expand_kernel,
    gradient=_reshape_back,
    kind=Kind.MOVEMENT,
    samples=[Sample(r(2, 3), 0), Sample(r(2, 3), -1), Sample(r(2, 3), [1]), Sample(r(), 0)],
    lower=Move(_same_elements),
    simplify=relabelled,
    precision=Precision.EITHER,
)
def expand_dims_op(input, dim, name=None):
    """Insert a dimension of size 1."""


@composed
@dispatched
@export("expand_dims")
def expand_dims(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dim: Any = None,
) -> Tensor:
    """Insert a dimension of size 1 at `axis` (formerly `dim`)."""
    axis = renamed_argument("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    return expand_dims_op(input, axis, name=name)


def _squeezed_axes(sizes: tuple[int | None, ...], dims: tuple[int, ...]) -> set[int] | None:
    """Return the axes to remove, or None if they aren't known."""
    rank = len(sizes)
    if not dims:
        return None if None in sizes else {i for i, n in enumerate(sizes) if n == 1}
    for axis in dims:
        if not -rank <= axis < rank:
            raise ValueError(
                f"Tried to squeeze dim index {axis} for tensor with {rank} dimensions."
            )
        if sizes[axis] not in (1, None):
            raise ValueError(
                f"Can not squeeze dim[{axis}], expected a dimension of 1, got {sizes[axis]}"
            )
    return {axis % rank for axis in dims}


def _squeeze_infer(c: Any, x: TensorShape) -> Any:
    if x.sizes is None:
        return None
    axes = _squeezed_axes(x.sizes, c.attrs["squeeze_dims"])
    return None if axes is None else tuple(n for i, n in enumerate(x.sizes) if i not in axes)


def _squeeze_kernel(x: np.ndarray, *, squeeze_dims: tuple[int, ...]) -> np.ndarray:
    axes = _squeezed_axes(np.shape(x), squeeze_dims) or ()
    return x.reshape([n for i, n in enumerate(np.shape(x)) if i not in axes])


@define(
    "Squeeze",
    "input: T -> output: T",
    "T: type; squeeze_dims: list(int) >= 0 = []",
    infer=_squeeze_infer,
    kernel=_squeeze_kernel,
    gradient=_reshape_back,
    kind=Kind.MOVEMENT,
    samples=[
        Sample(r(1, 2, 1, 3)),
        Sample(r(1, 2, 1), squeeze_dims=[0]),
        Sample(r(1, 2, 1), squeeze_dims=[-1, 0]),
        Sample(r(2, 3)),
        Sample(r(1, 0)),
    ],
    lower=Move(_same_elements),
    simplify=relabelled,
    precision=Precision.EITHER,
)
def squeeze_op(input, squeeze_dims=None, name=None):
    """Remove dimensions of size 1."""


@composed
@dispatched
@export("squeeze")
def squeeze(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    squeeze_dims: Any = None,
) -> Tensor:
    """Remove the dimensions `axis` (formerly `squeeze_dims`), or all that have size 1."""
    axis = renamed_argument("axis", axis, "squeeze_dims", squeeze_dims)
    if axis is not None and np.isscalar(axis):
        axis = [axis]
    return squeeze_op(input, squeeze_dims=axis, name=name)


# -- Broadcasting ----------------------------------------------------------------------------------


def _broadcast_infer(c: Any, x: TensorShape, _: TensorShape) -> TensorShape:
    wanted = c.shape_from(1)
    if x.sizes is None or wanted.sizes is None:
        return wanted
    x.with_rank_at_most(len(wanted.sizes))
    for m, n in zip(reversed(x.sizes), reversed(wanted.sizes), strict=False):
        if m not in (1, None, n) and n is not None:
            raise ValueError(f"Dimensions must be equal, but are {m} and {n}")
    # An unknown size may be 0, to which anything broadcasts; TensorFlow ignores that.
    if c.settled:
        return wanted
    pairs = zip(broadcast_shapes(x, wanted).as_list(), wanted.sizes, strict=True)
    return TensorShape.of(tuple(m if n is None else n for m, n in pairs))


def _broadcast_kernel(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    if 0 in shape.tolist() and np.ndim(x) <= len(shape):
        return np.empty(shape.tolist(), x.dtype)  # an empty result, whatever the input
    check_room(shape.tolist(), x.dtype, "shape", spelled=True)
    try:
        return np.broadcast_to(x, tuple(shape.tolist()))
    except (ValueError, TypeError):
        raise ValueError(
            f"Incompatible shapes: {list(np.shape(x))} vs. {np.asarray(shape).tolist()}"
        ) from None


@export("broadcast_to")
@define(
    "BroadcastTo",
    "input: T, shape: Tidx -> output: T",
    "T: type; Tidx: {index} = int32",
    infer=_broadcast_infer,
    kernel=_broadcast_kernel,
    gradient=counted(4, lambda b, op, dy: (b.sum_to(dy, op.inputs[0]), None)),
    kind=Kind.MOVEMENT,
    samples=[Sample(r(1, 3), [2, 3]), Sample(r(3), [4, 2, 3]), Sample(r(), [2]), Sample(r(1), [0])],
    lower=Move(lambda site: broadcast_view(site.input_shapes[0], site.output_shapes[0])),
    simplify=broadcast,
    precision=Precision.EITHER,
)
def broadcast_to(input, shape, name=None):
    """Repeat dimensions of size 1, and add leading ones, until the shape is `shape`."""


@composed
@export("broadcast_static_shape")
def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """Return the static shape that two static shapes broadcast to."""
    return broadcast_shapes(as_shape(shape_x), as_shape(shape_y))


@composed
@export("broadcast_dynamic_shape")
def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """Return the shape that two shapes, given as vectors, broadcast to."""
    return b.broadcast_args(shape_x, shape_y)


# -- Bitcast ---------------------------------------------------------------------------------------


def _bitcast_infer(c: Any, x: TensorShape) -> Any:
    old, new = c.attrs["T"].size, c.attrs["type"].size
    if x.sizes is None:
        return None
    if old >= new:
        return x.sizes if old == new else (*x.sizes, old // new)
    if not x.sizes or x.sizes[-1] not in (new // old, None):
        last = x.sizes[-1] if x.sizes else "a scalar"
        raise ValueError(f"Cannot bitcast due to shape. {last} does not match {new // old}")
    return x.sizes[:-1]


def _bitcast_kernel(x: np.ndarray, *, type: Any) -> np.ndarray:
    old, new = x.dtype.itemsize, type.numpy.itemsize
    shape = np.shape(x)
    if old > new:
        shape = (*shape, old // new)
    elif old < new:
        if not shape or shape[-1] != new // old:
            last = shape[-1] if shape else "a scalar"
            raise ValueError(f"Cannot bitcast from {new // old} to {last}")
        shape = shape[:-1]
    return np.ascontiguousarray(x).reshape(-1).view(type.numpy).reshape(shape)


_BITS = (
    "{bfloat16|float16|float32|float64|int64|int32|uint8|uint16|uint32|uint64|int8|int16|complex64"
    "|complex128|qint8|quint8|qint16|quint16|qint32}"
)


@export("bitcast")
@define(
    "Bitcast",
    "input: T -> output: type",
    f"T: {_BITS}; type: {_BITS}",
    infer=_bitcast_infer,
    kernel=_bitcast_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(r(2, 3), T="float32", type="int32"),
        Sample(r(2), T="float64", type="uint8"),
        Sample([[1, 2, 3, 4]], T="uint8", type="float32"),
        Sample(r(), T="int64", type="float64"),
        Sample(r(3), T="bfloat16", type="int16"),
    ],
)
def bitcast(input, type, name=None):
    """Return the same bytes as another type; a different element size adds or removes a last
    dimension.
    """


@composed
@export("meshgrid")
def meshgrid(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Return one grid of coordinates per vector; indexing="xy" swaps the first two axes."""
    indexing = kwargs.pop("indexing", "xy")
    name = kwargs.pop("name", "meshgrid")
    if kwargs:
        raise TypeError(f"'{next(iter(kwargs))}' is an invalid keyword argument for this function")
    if indexing not in ("xy", "ij"):
        raise ValueError("indexing parameter must be either 'xy' or 'ij'")
    with name_scope(name, "meshgrid", args):
        count = len(args)
        ones = (1,) * count
        grids = [reshape(b.stack(x), (*ones[:i], -1, *ones[i + 1 :])) for i, x in enumerate(args)]
        sizes = [size(x) for x in args]
        dtype = convert_to_tensor(args[0]).dtype.base_dtype if args else as_dtype("float32")
        if indexing == "xy" and count > 1:
            grids[0] = reshape(grids[0], (1, -1, *ones[2:]))
            grids[1] = reshape(grids[1], (-1, 1, *ones[2:]))
            sizes[0], sizes[1] = sizes[1], sizes[0]
        full = b.ones(sizes, dtype)
        return [b.multiply(grid, full, name="mul") for grid in grids]
