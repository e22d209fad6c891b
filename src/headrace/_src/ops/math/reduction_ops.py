"""Reductions: sums, means, products, extremes and the like over some or all axes of a tensor.

The axes are a tensor too. Their static value, if known, determines the static shape; `axis=None`
means all of them. With `keepdims` they stay, as axes of size 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Reduce, Site
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted, is_complex, reduce_nodes
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_movement_rules import extreme_of_broadcast
from headrace._src.ops.base.simplify_rules import reduces_nothing
from headrace._src.ops.math.sum_precision import lowest, widened

__all__ = ["reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_sum"]

_SAMPLES = [
    Sample(r(2, 3), [1]),
    Sample(r(2, 3), 0, keep_dims=True),
    Sample(r(2, 3, 2), [-1, 0]),
    Sample(r(2, 3), [0, 1]),
    Sample(r(2, 3), []),
    Sample(r(), []),
    Sample(r(2, 0), [0]),
]


def reduction_op(
    op_type: str,
    kernel: Callable[..., Any],
    gradient: Any,
    samples: list[Sample] | None = None,
    lower: Reduce | None = None,
    simplify: Callable[..., Any] | None = reduces_nothing,
) -> Any:
    """Define a reduction of numbers to numbers of the same type; `kernel(x, axes, keep_dims)`."""
    return define(
        op_type,
        "input: T, reduction_indices: Tidx -> output: T",
        "keep_dims: bool = False; T: {numbers}; Tidx: {index} = int32",
        infer=infer.reduction,
        kernel=_over_axes(kernel),
        gradient=gradient,
        kind=Kind.REDUCTION,
        samples=_SAMPLES if samples is None else samples,
        lower=lower,
        simplify=simplify,
    )


def _over_axes(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
        given, rank = np.ravel(axes).tolist(), np.ndim(x)
        for axis in given:
            if not -rank <= axis < rank:  # TensorFlow's text, including its missing bracket
                raise ValueError(
                    f"Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
                )
        found = infer.resolve_axes(given, rank)
        result = reduce(x, tuple(dict.fromkeys(found)), keep_dims)
        return result.copy() if result is x else result

    return kernel


# Kernels: array, tuple of axes, whether to keep them


def _sum(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if not axes:
        return x
    wide = widened(x)
    return np.add.reduce(wide, axes, dtype=wide.dtype, keepdims=keep).astype(x.dtype, copy=False)


def _prod(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if not axes:
        return x
    wide = widened(x)
    return np.multiply.reduce(wide, axes, dtype=wide.dtype, keepdims=keep).astype(
        x.dtype, copy=False
    )


def _count(x: Any, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[i] for i in axes)


def _mean(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if not axes:
        return x
    count = _count(x, axes)
    if x.dtype.kind in "iu":
        # Integers are rounded towards zero; their sum must not overflow.
        total = np.add.reduce(x, axes, keepdims=keep)
        if not count:
            return np.zeros_like(total, x.dtype)
        return (np.sign(total) * (np.abs(total) // count)).astype(x.dtype)
    wide = widened(x)
    total = np.add.reduce(wide, axes, dtype=wide.dtype, keepdims=keep)
    return (total / wide.dtype.type(count)).astype(x.dtype, copy=False)


def _max(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if x.size:
        return np.maximum.reduce(x, axes, keepdims=keep) if axes else x
    return np.maximum.reduce(x, axes, keepdims=keep, initial=_end(x.dtype, -1))


def _min(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if x.size:
        return np.minimum.reduce(x, axes, keepdims=keep) if axes else x
    return np.minimum.reduce(x, axes, keepdims=keep, initial=_end(x.dtype, 1))


def _end(dtype: np.dtype, sign: int) -> Any:
    """The extreme of an empty reduction: the end of the dtype's range."""
    if dtype.kind not in "iu":
        return dtype.type(sign * np.inf)
    return dtype.type(lowest(dtype) if sign < 0 else np.iinfo(dtype).max)


def _euclidean_norm(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if not axes:
        return x  # as in TensorFlow: without axes to reduce, x stays as it is
    wide = widened(x)
    if wide.dtype.kind in "iu":
        wide = wide.astype(np.float64)
    squares = np.real(wide * np.conj(wide)) if wide.dtype.kind == "c" else wide * wide
    return np.sqrt(np.sum(squares, axes, dtype=squares.dtype, keepdims=keep)).astype(x.dtype)


# Lowering


def _wide(e: Any, x: Any) -> Any:
    return e.wide(x)


def _wide_float(e: Any, x: Any) -> Any:
    return e.wide(x) if x.is_floating else None


def _any_axes(site: Site) -> tuple[int, ...] | None:
    """Return the axes, if there are any: without axes, a norm isn't the root of a sum
    of squares.
    """
    axes = site.constant_input(1)
    if axes is None or not axes.size:
        return None
    rank = len(site.input_shapes[0])
    return tuple(sorted({int(axis) % rank for axis in axes.ravel()}))


def _norm_square(e: Any, x: Any) -> Any:
    return e.square(e.wide(x) if x.is_floating else e.cast(x, "float64"))


# Gradients


def _static_axes(op: Any) -> list[int] | None:
    """Return the reduced axes, in order, if they and the input's rank are known."""
    axes, rank = constant_value(op.inputs[1]), op.inputs[0].shape.ndims
    if axes is None or rank is None:
        return None
    return sorted(set(infer.resolve_axes(axes.ravel().tolist(), rank)))


def _restored(b: OpBuilder, op: Any, *tensors: Tensor) -> list[Tensor]:
    """Reshape tensors of the output's shape to broadcast: the reduced axes have size 1."""
    if op.get_attr("keep_dims"):
        return list(tensors)
    axes = _static_axes(op)
    if axes is not None and len(axes) == op.inputs[0].shape.ndims:
        return list(tensors)  # a scalar broadcasts by itself
    if axes is None:
        shape = _kept_shape(b, b.shape(op.inputs[0]), op.inputs[1])
        return [b.reshape(t, shape) for t in tensors]
    restored = []
    for t in tensors:
        for axis in axes:
            t = b.expand_dims(t, axis)
        restored.append(t)
    return restored


def _kept_shape(b: OpBuilder, shape: Tensor, axes: Tensor) -> Tensor:
    """Return `shape` with 1 at each of the axes, all of them known only in a step."""
    shape = b.cast(shape, "int32")
    rank = b.size(shape)
    axes = b.reshape(b.floormod(b.add_v2(b.cast(axes, "int32"), rank), rank), [-1])
    return b.dynamic_stitch([b.range(rank), axes], [shape, b.ones_like(axes)])


def _sum_nodes(op: Any, dy: Any) -> int:
    """Return how many operations TensorFlow adds to broadcast a sum's gradient.

    It computes the repetitions in a step unless shapes and axes are known: then once for the whole
    graph, by operations that never run, or never if all axes are reduced in order.
    """
    x, axes = op.inputs
    known = constant_value(axes)
    if known is not None and x.shape.ndims is not None:
        if known.tolist() == list(range(x.shape.ndims)):
            return 4
        if x.shape.is_fully_defined():
            return 4 + reduce_nodes(x.graph, x.shape.sizes, tuple(known.ravel().tolist()))
    return 16 + _cast_nodes(op)


def _cast_nodes(op: Any) -> int:
    return int(op.inputs[1].dtype.base_dtype is not dtypes.int32)


def _mean_nodes(op: Any, dy: Any) -> int:
    known = None not in (op.inputs[0].shape.num_elements(), op.outputs[0].shape.num_elements())
    return _sum_nodes(op, dy) + (2 if known else 11)


@counted(_sum_nodes)
def _sum_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    return _spread(b, op, dy), None


def _spread(b: OpBuilder, op: Any, dy: Any) -> Tensor:
    (dy,) = _restored(b, op, dy)
    return b.broadcast_to(dy, b.shape(op.inputs[0]))


@counted(_mean_nodes)
def _mean_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x, y = op.inputs[0], op.outputs[0]
    spread = _spread(b, op, dy)
    sizes = x.shape.num_elements(), y.shape.num_elements()
    if None not in sizes:
        factor = b.constant(sizes[0] // max(sizes[1], 1), dy.dtype.base_dtype)
    else:
        count = b.floor_div(b.size(x), b.maximum(b.size(y), 1))
        factor = b.cast(count, dy.dtype.base_dtype)
    return b.realdiv(spread, factor), None


@counted(lambda op, dy: 49 + 2 * is_complex(op))
def _prod_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """Return dy times the product of all other elements, by cumulative products from both ends."""
    x = op.inputs[0]
    (dy,) = _restored(b, op, dy)
    shape = b.shape(x)
    reduced, others = _split_axes(b, op)
    order = b.concat([reduced, others], 0)
    moved = b.transpose(x, order)
    rows = b.reduce_prod(b.gather(shape, reduced))
    columns = b.reduce_prod(b.gather(shape, others))
    flat = b.reshape(moved, b.stack([rows, columns]))
    before = b.cumprod(flat, axis=0, exclusive=True)
    after = b.cumprod(flat, axis=0, exclusive=True, reverse=True)
    rest = b.reshape(b.multiply(b.conj(before), b.conj(after)), b.shape(moved))
    rest = b.transpose(rest, b.invert_permutation(order))
    return b.multiply(dy, b.reshape(rest, shape)), None


def _split_axes(b: OpBuilder, op: Any) -> tuple[Tensor, Tensor]:
    """Return the reduced axes and the others."""
    known, rank = _static_axes(op), op.inputs[0].shape.ndims
    if known is not None:
        rest = [i for i in range(rank) if i not in known]
        return b.constant(known, "int32"), b.constant(rest, "int32")
    rank = b.rank(op.inputs[0])
    every = b.range(rank)
    axes = b.reshape(b.floormod(b.add_v2(b.cast(op.inputs[1], "int32"), rank), rank), [-1])
    others = b.setdiff1d(every, axes)[0]
    return b.setdiff1d(every, others)[0], others  # setdiff1d twice, because axes may be repeated


@counted(lambda op, dy: 19 + _cast_nodes(op))
def _extreme_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """Send dy to the elements that are the extreme, in equal shares if there are several."""
    x = op.inputs[0]
    y, dy = _restored(b, op, op.outputs[0], dy)
    chosen = b.cast(b.equal(y, x), dy.dtype.base_dtype)
    share = b.realdiv(chosen, b.reduce_sum(chosen, op.inputs[1], keepdims=True))
    return b.multiply(share, dy), None


@counted(0)
def _norm_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    y, dy = _restored(b, op, op.outputs[0], dy)
    return b.multiply(op.inputs[0], b.realdiv(dy, y)), None


@reduction_op("Sum", _sum, _sum_gradient, lower=Reduce("sum", _wide))
def sum_op(input, reduction_indices, keep_dims=None, name=None):
    """Return the sum over the axes."""


@reduction_op(
    "Mean",
    _mean,
    _mean_gradient,
    lower=Reduce("sum", _wide_float, lambda e, total, count: total / count),
)
def mean_op(input, reduction_indices, keep_dims=None, name=None):
    """Return the mean over the axes; integers are rounded towards zero."""


@reduction_op("Prod", _prod, _prod_gradient, lower=Reduce("prod", _wide))
def prod_op(input, reduction_indices, keep_dims=None, name=None):
    """Return the product over the axes."""


@reduction_op("Max", _max, _extreme_gradient, lower=Reduce("max"), simplify=extreme_of_broadcast)
def max_op(input, reduction_indices, keep_dims=None, name=None):
    """Return the largest element over the axes; the lowest number for an empty reduction."""


@reduction_op("Min", _min, _extreme_gradient, lower=Reduce("min"), simplify=extreme_of_broadcast)
def min_op(input, reduction_indices, keep_dims=None, name=None):
    """Return the smallest element over the axes; the highest number for an empty reduction."""


@reduction_op(
    "EuclideanNorm",
    _euclidean_norm,
    _norm_gradient,
    lower=Reduce("sum", _norm_square, lambda e, total, count: e.sqrt(total), _any_axes),
)
def euclidean_norm(input, reduction_indices, keep_dims=None, name=None):
    """Return the square root of the sum of squared magnitudes over the axes."""


def _logical_reduction(op_type: str, reduce: Callable[..., Any], lower: Reduce) -> Any:
    return define(
        op_type,
        "input: bool, reduction_indices: Tidx -> output: bool",
        "keep_dims: bool = False; Tidx: {index} = int32",
        infer=infer.reduction,
        kernel=_over_axes(lambda x, axes, keep: reduce(x, axes, keepdims=keep)),
        kind=Kind.REDUCTION,
        samples=_SAMPLES,
        lower=lower,
    )


@_logical_reduction("All", np.all, lower=Reduce("all"))
def all_op(input, reduction_indices, keep_dims=None, name=None):
    """Return whether all elements over the axes are true."""


@_logical_reduction("Any", np.any, lower=Reduce("any"))
def any_op(input, reduction_indices, keep_dims=None, name=None):
    """Return whether any element over the axes is true."""


# Public functions


def all_axes(x: Any, axis: Any) -> Any:
    """Return `axis` or, if it is None, a tensor with all axes of x."""
    if axis is not None:
        return axis
    if isinstance(x, Tensor) and x.shape.ndims is not None:
        return b.constant(np.arange(x.shape.ndims, dtype=np.int32))
    return b.range(0, b.rank(x))


def scalar_if_all(axis: Any, keepdims: bool | None, result: Tensor) -> Tensor:
    """Return the result with its static shape, which is known if all axes were reduced."""
    if axis is None and not keepdims:
        result.set_shape(())
    return result


def _reduce(
    op: Callable[..., Any],
    x: Any,
    axis: Any,
    keepdims: bool | None,
    name: str | None,
    reduction_indices: Any,
    keep_dims: bool | None,
) -> Tensor:
    axis = renamed_argument("axis", axis, "reduction_indices", reduction_indices)
    keepdims = renamed_argument("keepdims", keepdims, "keep_dims", keep_dims)
    return scalar_if_all(
        axis, keepdims, op(x, all_axes(x, axis), keep_dims=bool(keepdims), name=name)
    )


@composed
@dispatched
@export("reduce_sum", "math.reduce_sum")
def reduce_sum(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the sum over `axis` (all axes if None)."""
    return _reduce(sum_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composed
@dispatched
@export("reduce_mean", "math.reduce_mean")
def reduce_mean(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the mean over `axis` (all axes if None)."""
    return _reduce(mean_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composed
@dispatched
@export("reduce_prod", "math.reduce_prod")
def reduce_prod(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the product over `axis` (all axes if None)."""
    return _reduce(prod_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composed
@dispatched
@export("reduce_max", "math.reduce_max")
def reduce_max(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the largest element over `axis` (all axes if None)."""
    return _reduce(max_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composed
@dispatched
@export("reduce_min", "math.reduce_min")
def reduce_min(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the smallest element over `axis` (all axes if None)."""
    return _reduce(min_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composed
@dispatched
@export("reduce_all", "math.reduce_all")
def reduce_all(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return whether all elements are true, over `axis` (all axes if None)."""
    return _reduce(all_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composed
@dispatched
@export("reduce_any", "math.reduce_any")
def reduce_any(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return whether any element is true, over `axis` (all axes if None)."""
    return _reduce(any_op, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)
