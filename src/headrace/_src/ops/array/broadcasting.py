"""Broadcasting of shapes, and its inverse.

The gradient of a broadcast input is summed over the axes along which the input was broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape, broadcast
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.counted import broadcast_nodes
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.to_tensor import convert_to_tensor

__all__ = ["same_shapes", "settle_axes", "sum_to", "unbroadcast"]


Restore = Callable[[Any], Tensor]


@composed
def unbroadcast(x: Tensor, y: Tensor, dz: Any = None) -> tuple[Restore, Restore]:
    """Return two functions that sum a gradient with the shape of `x op y` over the axes along which
    x, or y, was broadcast.

    Ops whose gradients use static shapes in TensorFlow also pass the gradient of their result,
    `dz`. Where the static shapes suffice, the step computes no axes.
    """
    if _is_known(x, y) and (isinstance(dz, Tensor) or x.graph.executes):
        if not same_shapes(x, y, dz):
            settle_axes(x, y)
        shape = broadcast(x.shape, y.shape)
        return _to_known(x.shape, shape), _to_known(y.shape, shape)
    optimize = not isinstance(dz, Tensor)
    shapes = [b.shape_internal(t, optimize=optimize) for t in (x, y)]
    axes = broadcast_gradient_args(*shapes)
    return _to_computed(shapes[0], axes[0]), _to_computed(shapes[1], axes[1])


def same_shapes(*tensors: Any) -> bool:
    """Whether all are tensors of the same known shape."""
    return _is_known(*tensors) and len({t.shape.sizes for t in tensors}) == 1


def settle_axes(x: Tensor, y: Tensor) -> None:
    """Count the operations that TensorFlow adds to compute how two known shapes broadcast."""
    with x.graph.counted_as(broadcast_nodes(x.graph, x.shape.sizes, y.shape.sizes)):
        return


def _is_known(*tensors: Any) -> bool:
    return all(isinstance(t, Tensor) and t.shape.is_fully_defined() for t in tensors)


def _to_known(shape: TensorShape, target: TensorShape) -> Restore:
    if shape.sizes == target.sizes:
        return _dense
    sizes = shape.as_list()
    leading = len(target) - len(sizes)
    stretched = zip([1] * leading + sizes, target.as_list(), strict=True)
    axes = [axis for axis, (m, n) in enumerate(stretched) if axis < leading or m != n]
    return lambda grad: b.reshape(b.reduce_sum(_dense(grad), axes), sizes)


def _to_computed(shape: Tensor, axes: Tensor) -> Restore:
    return lambda grad: b.reshape(b.reduce_sum(_dense(grad), axes), shape)


def _dense(grad: Any) -> Tensor:
    return convert_to_tensor(grad) if isinstance(grad, IndexedSlices) else grad


@composed
def sum_to(grad: Tensor, like: Tensor) -> Tensor:
    """Return `grad` summed over the axes along which `like` was broadcast to its shape."""
    grad = _dense(grad)
    axes = _stretched_axes(like.shape.sizes, grad.shape.sizes)
    if axes is None:
        shape = b.shape(like)
        reduced, _ = broadcast_gradient_args(shape, b.shape(grad))
        return b.reshape(b.reduce_sum(grad, reduced), shape)
    if not axes:
        return grad
    total = b.reduce_sum(grad, axes)
    sizes = like.shape.as_list()
    return total if len(axes) + len(sizes) == len(grad.shape) else b.reshape(total, sizes)


def _stretched_axes(source: Any, target: Any) -> list[int] | None:
    """Return the axes of `target` to sum over to get `source`; None if only a step can tell."""
    if source is None or target is None:
        return None
    leading = len(target) - len(source)
    axes = list(range(leading))
    for axis, (m, n) in enumerate(zip(source, target[leading:]), leading):
        if m == 1 and n != 1:
            axes.append(axis)
        elif m is None and n != 1:
            return None
    if len(axes) > leading and None in source:
        return None  # a reshape is needed, and its shape is known only in a step
    return axes


def _checked_vectors(*shapes: np.ndarray) -> None:
    for shape in shapes:
        if np.ndim(shape) != 1:
            raise ValueError(f"a shape must be a vector, but has {np.ndim(shape)} dimensions")


def _incompatible(s0: np.ndarray, s1: np.ndarray) -> ValueError:
    return ValueError(f"Incompatible shapes: {s0.tolist()} vs. {s1.tolist()}")


def _gradient_args(s0: np.ndarray, s1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _checked_vectors(s0, s1)
    # Shapes are short: lists are faster than arrays here.
    x, y = s0.tolist(), s1.tolist()
    if x == y:
        return np.empty(0, s0.dtype), np.empty(0, s0.dtype)
    rank = max(len(x), len(y))
    x, y = [1] * (rank - len(x)) + x, [1] * (rank - len(y)) + y
    if any(m != n and m != 1 and n != 1 for m, n in zip(x, y, strict=True)):
        raise _incompatible(s0, s1)
    ones = ([axis for axis in range(rank) if sizes[axis] == 1] for sizes in (x, y))
    reduced = [np.array(axes, s0.dtype) for axes in ones]
    return reduced[0], reduced[1]


def _gradient_args_infer(c: Any, s0: TensorShape, s1: TensorShape) -> list[Any]:
    s0.assert_has_rank(1)
    s1.assert_has_rank(1)
    return [(None,), (None,)]


@define(
    "BroadcastGradientArgs",
    "s0: T, s1: T -> r0: T, r1: T",
    "T: {index} = int32",
    infer=_gradient_args_infer,
    kernel=_gradient_args,
    samples=[Sample([2, 3], [3]), Sample([2, 1], [1, 3]), Sample([2], [2]), Sample([1], [1, 1])],
)
def broadcast_gradient_args(s0, s1, name=None):
    """Return, for each of two shapes, the axes to sum a broadcast result over to restore it."""


def _broadcast_args(s0: np.ndarray, s1: np.ndarray) -> np.ndarray:
    _checked_vectors(s0, s1)
    try:
        return np.array(np.broadcast_shapes(tuple(s0), tuple(s1)), s0.dtype)
    except ValueError:
        raise _incompatible(s0, s1) from None


def _broadcast_args_infer(c: Any, s0: TensorShape, s1: TensorShape) -> Any:
    m, n = (s.with_rank(1).as_list()[0] for s in (s0, s1))
    return (None if m is None or n is None else max(m, n),)


@define(
    "BroadcastArgs",
    "s0: T, s1: T -> r0: T",
    "T: {index} = int32",
    infer=_broadcast_args_infer,
    kernel=_broadcast_args,
    samples=[Sample([2, 1], [3]), Sample([], [4])],
)
def broadcast_args(s0, s1, name=None):
    """Return the shape that two shapes broadcast to."""
