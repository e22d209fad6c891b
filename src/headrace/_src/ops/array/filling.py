"""Tensors made from a shape: fill, zeros, ones, range, linspace.

Small constants stay constants in the graph; large ones are a Fill, so that a GraphDef doesn't
contain them. The limit and the nodes are TensorFlow's.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Kind, Precision, Sample
from headrace._src.graph.inference import static_by_kernel
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import Elementwise, Site
from headrace._src.ops.array.shape_ops import reshape, shape_internal
from headrace._src.ops.base import infer, to_tensor
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r, unary
from headrace._src.ops.base.simplify_rules import filled
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_lists import ZEROS

__all__ = [
    "fill",
    "linspace",
    "ones",
    "ones_like",
    "range_",
    "zero_array",
    "zeros",
    "zeros_like",
]

_MOST_CONSTANT = 1000  # the most elements that TensorFlow writes into the graph


def zero_array(shape: Any, dtype: np.dtype) -> np.ndarray:
    """Return an array of zeros, or of empty strings."""
    return np.full(shape, b"", object) if dtype.hasobject else np.zeros(shape, dtype)


def _fill_infer(c: Any, dims: TensorShape, value: TensorShape) -> TensorShape:
    dims.with_rank(1)
    value.with_rank(0)
    known = c.value(0)
    if known is not None and known.size and known.min() < 0:
        raise ValueError("Fill dimensions must be >= 0")
    return c.shape_from(0)


def _fill_kernel(dims: np.ndarray, value: np.ndarray) -> np.ndarray:
    sizes = dims.tolist()
    if np.ndim(dims) != 1 or np.ndim(value) != 0:
        raise ValueError(
            f"dims must be a vector and value a scalar, not of shapes {np.shape(dims)} and "
            f"{np.shape(value)}"
        )
    if min(sizes, default=0) < 0:
        raise ValueError(f"Dimension {min(sizes)} must be >= 0")
    dtype = np.asarray(value).dtype
    check_room(sizes, dtype, "dims", spelled=True)
    if not dtype.hasobject and not any(np.asarray(value).tobytes()):
        return np.zeros(sizes, dtype)  # memory that exists once it is written; not for -0.0
    return np.full(sizes, value, dtype)


def _fill_static(op: Operation, value: Any, partial: bool) -> np.ndarray | None:
    shape, element = op._outputs[0]._shape, value(op._inputs[1])
    if element is None or not shape.is_fully_defined():
        return None
    try:
        return _fill_kernel(np.array(shape.sizes, np.int64), element)
    except MemoryError:
        return None


@export("fill")
@define(
    "Fill",
    "dims: index_type, value: T -> output: T",
    "T: type; index_type: {index} = int32",
    infer=_fill_infer,
    kernel=_fill_kernel,
    fresh=True,
    static=_fill_static,
    gradient=lambda b, op, dy: (None, b.reduce_sum(dy)),
    samples=[Sample([2, 3], r()), Sample(np.zeros(0), r()), Sample([0, 2], r())],
    lower=Elementwise(lambda e, value: value, operands=(1,)),
)
def fill(dims, value, name=None):
    """Return a tensor of shape `dims` whose elements are all `value`."""


def _filled_lowered(value: int) -> Any:
    return lambda e, *, site: e.const(value, site.output_dtypes[0])


def _simpler_zeros(node: Any) -> Any:
    if node.types[0].dtype is dtypes.variant:
        return replace(node, definition=ZEROS, attrs={})
    return filled(node, 0)


def _zeros_like(x: Any) -> Any:
    return x.zeros() if hasattr(x, "zeros") else zero_array(np.shape(x), x.dtype)


@define(
    "ZerosLike",
    "x: T -> y: T",
    "T: type",
    infer=infer.same_as(0),
    kernel=_zeros_like,
    gradient=NOT_DIFFERENTIABLE,
    samples=unary(),
    lower=Elementwise(_filled_lowered(0), operands=()),
    simplify=_simpler_zeros,
    precision=Precision.EITHER,
)
def zeros_like_op(x, name=None):
    """Return zeros of the input's shape and type."""


@define(
    "OnesLike",
    "x: T -> y: T",
    "T: {bfloat16|float16|float32|float64|int8|uint8|int16|uint16|int32|int64|complex64|complex128"
    "|bool}",
    infer=infer.same_as(0),
    kernel=lambda x: np.ones(np.shape(x), x.dtype),
    gradient=NOT_DIFFERENTIABLE,
    samples=unary(),
    lower=Elementwise(_filled_lowered(1), operands=()),
    simplify=lambda node: filled(node, 1),
)
def ones_like_op(x, name=None):
    """Return ones of the input's shape and type."""


def _empty_infer(c: Any, shape: TensorShape) -> TensorShape:
    shape.with_rank(1)
    return c.shape_from(0)


def _empty_kernel(shape: np.ndarray, *, dtype: DType) -> np.ndarray:
    sizes = np.asarray(shape).tolist()
    if np.ndim(shape) != 1 or min(sizes, default=0) < 0:
        raise ValueError(f"shape must be a vector of sizes, not {sizes}")
    check_room(sizes, dtype.numpy, "shape", spelled=True)
    # Always zeros: a program's result must not depend on uninitialised memory.
    return zero_array(sizes, dtype.numpy)


@define(
    "Empty",
    "shape: int32 -> output: dtype",
    "dtype: type; init: bool = False",
    infer=_empty_infer,
    kernel=_empty_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=[Sample([2, 3], dtype="float32"), Sample([0], dtype="string", init=True)],
)
def empty(shape, dtype, init=None, name=None):
    """Return a new tensor of a shape, filled with zeros."""


# -- zeros and ones --------------------------------------------------------------------------------


@composed
@export("zeros")
def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Return zeros (False, empty strings) of a shape, which may be a tensor or hold tensors."""
    dtype = as_dtype(dtype).base_dtype
    zero = "" if dtype is dtypes.string else False if dtype is dtypes.bool else 0
    return _filled(shape, zero, dtype, name, "zeros")


@composed
@export("ones")
def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Return ones (True) of a shape, which may be a tensor or hold tensors."""
    dtype = as_dtype(dtype).base_dtype
    return _filled(shape, True if dtype is dtypes.bool else 1, dtype, name, "ones")


def _filled(shape: Any, value: Any, dtype: DType, name: str | None, default_name: str) -> Tensor:
    with name_scope(name, default_name, [shape]) as scope:
        if not isinstance(shape, Tensor):
            if _is_small(shape):
                return to_tensor.constant(value, dtype, shape=shape, name=scope)
            shape = _shape_tensor(shape)
        if not shape.shape.sizes:
            shape = reshape(shape, [-1])
        return fill(shape, to_tensor.constant(value, dtype), name=scope)


def _is_small(shape: Any) -> bool:
    """Whether a shape, given as a sequence, is known and small enough for a constant."""
    if isinstance(shape, TensorShape):
        shape = shape.as_list() if shape.rank is not None else [None]
    if not isinstance(shape, list | tuple) and not (isinstance(shape, np.ndarray) and shape.ndim):
        return False
    sizes = [getattr(n, "value", n) for n in shape]
    if any(hasattr(n, "graph") for n in sizes):
        # TensorFlow multiplies the sizes, which are tensors here, and compares the product. The
        # result is unused, but its nodes count for names and random seeds of later operations.
        b.less(functools.reduce(operator.mul, sizes), _MOST_CONSTANT)
        return False
    if any(n is None or n < 0 for n in sizes):
        return False
    return functools.reduce(operator.mul, sizes, 1) < _MOST_CONSTANT


def _shape_tensor(shape: Any) -> Tensor:
    if isinstance(shape, list | tuple) and any(n is None for n in shape):
        raise TypeError("Expected int32, got None of type 'NoneType' instead.")
    try:
        known = TensorShape(shape)
    except (TypeError, ValueError):
        return convert_to_tensor(shape, dtypes.int32)
    return convert_to_tensor(known)  # int64 if a size needs it


@composed
@dispatched
@export("zeros_like")
def zeros_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Return zeros of a tensor's shape; with `optimize`, a constant if the shape is known."""
    with name_scope(name, "zeros_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        wanted = tensor.dtype.base_dtype if dtype is None else as_dtype(dtype).base_dtype
        if optimize and tensor.shape.is_fully_defined() and wanted is not dtypes.variant:
            return zeros(tensor.shape, wanted, name=scope)
        if wanted is not tensor.dtype.base_dtype and wanted is not dtypes.variant:
            return zeros(shape_internal(tensor, optimize=optimize), wanted, name=scope)
        return zeros_like_op(tensor, name=scope)


@composed
@dispatched
@export("ones_like")
def ones_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Return ones of a tensor's shape; without `optimize`, read even a known shape in the step."""
    with name_scope(name, "ones_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        shape = shape_internal(tensor, optimize=optimize)
        wanted = tensor.dtype if dtype is None else dtype
        result = ones(shape, wanted, name=scope)
        result.set_shape(tensor.shape)
        return result


# -- Sequences -------------------------------------------------------------------------------------


def _range_size(start: Any, limit: Any, delta: Any) -> int:
    if delta == 0:
        raise ValueError(f"Requires delta != 0: {delta}")
    if delta > 0 and start > limit:
        raise ValueError(f"Requires start <= limit when delta > 0: {start}/{limit}")
    if delta < 0 and start < limit:
        raise ValueError(f"Requires start >= limit when delta < 0: {start}/{limit}")
    if isinstance(start, int):
        return -((start - limit) // delta)
    return int(np.ceil(np.abs((limit - start) / delta)))


def _scalar(value: Any, name: str) -> Any:
    if np.ndim(value):
        raise ValueError(f"{name} must be a scalar, not shape {list(np.shape(value))}")
    # Use Python integers, which don't overflow; floats keep their own precision.
    value = np.asarray(value)
    return int(value) if value.dtype.kind == "i" else value[()]


def _range_infer(c: Any, *shapes: TensorShape) -> Any:
    for shape in shapes:
        shape.with_rank(0)
    values = [c.value(i) for i in (0, 1, 2)]
    if any(v is None for v in values):
        return (None,)
    return (_range_size(*(_scalar(v, "an end of a range") for v in values)),)


def _range_kernel(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    dtype = np.asarray(start).dtype
    first = _scalar(start, "start")
    step = _scalar(delta, "delta")
    count = _range_size(first, _scalar(limit, "limit"), step)
    check_room([count], dtype, "the distance from start to limit in steps of delta")
    if dtype.kind == "i":
        return np.arange(first, first + count * step, step, dtype=dtype)
    # TensorFlow adds step by step: its rounding errors are part of the result.
    values = np.full(count, delta, dtype)
    values[:1] = start
    return np.add.accumulate(values, dtype=dtype)


def _range_lowered(e: Any, start: Any, delta: Any) -> Any:
    if start.is_floating:
        return None  # each element is a sum of those before
    return start + e.cast(e.index(0), start.dtype) * delta


@define(
    "Range",
    "start: Tidx, limit: Tidx, delta: Tidx -> output: Tidx",
    "Tidx: {bfloat16|float32|float64|int32|int64} = int32",
    infer=_range_infer,
    kernel=_range_kernel,
    static=static_by_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(0, 5, 1), Sample(9, 2, -3), Sample(3, 3, 1)],
    lower=Elementwise(_range_lowered, operands=(0, 2)),
)
def range_op(start, limit, delta, name=None):
    """Return start, start + delta, ... up to but not including limit."""


_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


@composed
@export("range")
def range_(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"
) -> Tensor:
    """Return start, start + delta, ... before limit; with one argument, 0, 1, ... before it."""
    if limit is None:
        start, limit = 0, start
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        ends = [
            convert_to_tensor(value, dtype, name=end)
            for value, end in ((start, "start"), (limit, "limit"), (delta, "delta"))
        ]
        if dtype is None:
            types = [t.dtype.base_dtype for t in ends]
            if any(t not in _RANGE_TYPES for t in types):
                raise ValueError(
                    f"tf.range takes integers and floats, not {[t.name for t in types]}"
                )
            widest = max(types, key=_RANGE_TYPES.index)
            ends = [b.cast(t, widest) for t in ends]
        return range_op(*ends, name=scope)


def _linspace_infer(c: Any, start: TensorShape, stop: TensorShape, num: TensorShape) -> Any:
    for shape in (start, stop, num):
        shape.with_rank(0)
    count = c.value(2)
    return (None,) if count is None else (_linspace_count(count),)


def _linspace_count(num: Any) -> int:
    count = int(_scalar(num, "num"))
    if count <= 0:
        raise ValueError(f"Requires num > 0: {count}")
    return count


def _linspace_kernel(start: np.ndarray, stop: np.ndarray, num: np.ndarray) -> np.ndarray:
    count = _linspace_count(num)
    first, last = _scalar(start, "start"), _scalar(stop, "stop")
    dtype = np.asarray(start).dtype
    check_room([count], np.float64, "num")
    if count == 1:
        return np.array([first], dtype)
    step = (last - first) / dtype.type(count - 1)
    result = (first + step * np.arange(count).astype(dtype)).astype(dtype)
    result[0], result[-1] = first, last  # exact even where the steps between them are infinite
    return result


def _linspace_lowered(e: Any, start: Any, stop: Any, *, site: Site) -> Any:
    (count,) = site.output_shapes[0]
    if count == 1:
        return start
    place = e.index(0)
    between = start + (stop - start) / (count - 1) * e.cast(place, start.dtype)
    inner = e.select(e.eq(place, 0), start, between)
    return e.select(e.eq(place, count - 1), stop, inner)


@export("linspace", "lin_space")
@define(
    "LinSpace",
    "start: T, stop: T, num: Tidx -> output: T",
    "T: {bfloat16|float32|float64}; Tidx: {index} = int32",
    infer=_linspace_infer,
    kernel=_linspace_kernel,
    gradient=NOT_DIFFERENTIABLE,
    kind=Kind.OTHER,
    samples=[Sample(r(low=0, high=1), r(low=2, high=3), 5), Sample(1.0, 2.0, 1)],
    lower=Elementwise(_linspace_lowered, operands=(0, 1)),
)
def linspace(start, stop, num, name=None):
    """Return `num` evenly spaced numbers from start to stop."""
