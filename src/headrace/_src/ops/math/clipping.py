"""Clipping: by value, and by the norm of one or many tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm"]


def _clip(t: Any, low: Any, high: Any) -> Any:
    for end in (low, high):
        if np.ndim(end) and np.shape(end) != np.shape(t):
            raise ValueError(
                "clip_value_min and clip_value_max must be either of the same shape as input, or a "
                f"scalar. input shape: {np.shape(t)} clip_value_min shape: {np.shape(low)} "
                f"clip_value_max shape: {np.shape(high)}"
            )
    return np.maximum(np.minimum(t, high), low)


def _clip_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    t, low, high = op.inputs
    zeros = b.zeros_like(dy)
    below, above = b.less(t, low), b.greater(t, high)
    return (
        b.where(b.logical_or(below, above), zeros, dy),
        b.sum_to(b.where(below, dy, zeros), low),
        b.sum_to(b.where(above, dy, zeros), high),
    )


@define(
    "ClipByValue",
    "t: T, clip_value_min: T, clip_value_max: T -> output: T",
    "T: {numbers}",
    infer=infer.same_as(0),
    kernel=_clip,
    gradient=_clip_gradient,
    kind=Kind.ELEMENTWISE,
    samples=typed(
        [Sample(r(2, 3), r(low=-1, high=0), r(low=1, high=2)), Sample(r(3), r(3), 2)],
        *("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"),
    ),
    lower=Elementwise(lambda e, t, low, high: e.max(e.min(t, high), low)),
)
def clip_by_value_op(t, clip_value_min, clip_value_max, name=None):
    """Return t with each element clipped to the range of the two values."""


def _values(t: Any, name: str = "t") -> Tensor:
    return convert_to_tensor(t.values if isinstance(t, IndexedSlices) else t, name=name)


def _like(t: Any, values: Tensor) -> Any:
    """Return the clipped values in the form of the input: a tensor or IndexedSlices."""
    if isinstance(t, IndexedSlices):
        return IndexedSlices(values, t.indices, t.dense_shape)
    return values


@composed
@dispatched
@export("clip_by_value")
def clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Tensor:
    """Return t with each element clipped to [clip_value_min, clip_value_max]."""
    given = [t, clip_value_min, clip_value_max]
    with name_scope(name, "clip_by_value", given) as scope:
        values = _values(t)
        smaller = b.minimum(values, clip_value_max)
        values.shape.assert_is_compatible_with(smaller.shape)
        clipped = b.maximum(smaller, clip_value_min, name=scope)
        values.shape.assert_is_compatible_with(clipped.shape)
        return _like(t, clipped)


@composed
@export("clip_by_norm")
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """Return t scaled down where necessary, so that its norm over `axes` is at most `clip_norm`."""
    with name_scope(name, "clip_by_norm", [t, clip_norm]) as scope:
        values = _values(t)
        squares = b.reduce_sum(values * values, axes, keepdims=True)
        positive = squares > 0
        # sqrt has no gradient at 0: take the root of 1 there, and don't use it.
        safe = b.where(positive, squares, b.ones_like(squares))
        norm = b.where(positive, b.sqrt(safe), squares)
        scaled = values * clip_norm
        values.shape.assert_is_compatible_with(scaled.shape)
        return _like(t, b.identity(scaled / b.maximum(norm, clip_norm), name=scope))


@composed
@export("clip_by_average_norm")
def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """Return t scaled down if necessary, so that its norm per element is at most `clip_norm`."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        t = convert_to_tensor(t, name="t")
        count = b.cast(b.size(t), dtypes.float32)
        inverse = b.rsqrt(b.reduce_sum(t * t, b.range(b.rank(t))))
        scaled = t * clip_norm
        factor = b.minimum(inverse * count, b.constant(1.0) / clip_norm)
        return b.identity(scaled * factor, name=scope)


def _checked_list(t_list: Any) -> list[Any]:
    if not isinstance(t_list, Sequence) or isinstance(t_list, str | bytes):
        raise TypeError("t_list should be a sequence")
    return list(t_list)


def _all_values(t_list: list[Any]) -> list[Tensor | None]:
    return [None if t is None else _values(t, f"t_{i}") for i, t in enumerate(t_list)]


@composed
@export("global_norm", "linalg.global_norm")
def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """Return the norm of all tensors of a list together; None entries are ignored."""
    t_list = _checked_list(t_list)
    with name_scope(name, "global_norm", t_list):
        halves = []
        for v in _all_values(t_list):
            if v is not None:
                with v.graph.colocate_with(v.op):
                    halves.append(b.l2_loss(v))
        half = b.reduce_sum(b.stack(halves))
        return b.sqrt(half * b.constant(2.0, dtype=half.dtype), name="global_norm")


@composed
@export("clip_by_global_norm")
def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Tensor]:
    """Return tensors scaled by one factor to a norm of at most `clip_norm`, and their original
    norm.

    use_norm: the original norm, if it is known already. If it isn't finite, the results are NaN.
    """
    t_list = _checked_list(t_list)
    if use_norm is None:
        use_norm = global_norm(t_list, name)
    with name_scope(name, "clip_by_global_norm", [*t_list, clip_norm]) as scope:
        inverse = 1.0 / use_norm
        most = b.constant(1.0, dtype=use_norm.dtype) / clip_norm
        factor = clip_norm * b.minimum(inverse, most)
        finite = b.is_finite(use_norm)
        factor = b.where(finite, factor, b.constant(float("nan"), dtype=use_norm.dtype))
        clipped: list[Any] = []
        for i, (t, v) in enumerate(zip(t_list, _all_values(t_list), strict=True)):
            if v is None:
                clipped.append(None)
                continue
            with v.graph.colocate_with(v.op):
                clipped.append(_like(t, b.identity(v * factor, name=f"{scope}_{i}")))
    return clipped, use_norm
