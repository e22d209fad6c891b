"""Convolutions and poolings as JAX functions. In: geometries (lowering.window_anchors) and images.
Out: images, or the gradient of filters.

Gradients are transposes of the linear functions, which is what JAX itself would differentiate to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.core.windows import Window
from headrace._src.lowering.window_anchors import Convolution, Pooling, Pooling3D

__all__ = ["convolution", "pool", "pool_gradient", "pooling", "pooling_3d", "wide"]


def wide(dtype: Any) -> Any:
    """The type that sums of a type are taken in."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def convolution(g: Convolution, first: Any, second: Any) -> list[Any]:
    """One direction of a 2-D convolution."""
    dtype = wide(first.dtype)
    first, second = first.astype(dtype), second.astype(dtype)
    images = (g.n, g.h.size, g.w.size, g.c)
    images = images if g.data_format == "NHWC" else (g.n, g.c, g.h.size, g.w.size)
    multiplier = g.k // g.c if g.depthwise else g.k
    filters = (g.h.taps, g.w.taps, g.c, multiplier)

    def convolve(x: Any, w: Any) -> Any:
        w = w.reshape(g.h.taps, g.w.taps, 1, g.k) if g.depthwise else w
        return jax.lax.conv_general_dilated(
            x,
            w,
            window_strides=(g.h.stride, g.w.stride),
            padding=[(a.before, a.after) for a in (g.h, g.w)],
            rhs_dilation=(g.h.dilation, g.w.dilation),
            dimension_numbers=(g.data_format, "HWIO", g.data_format),
            feature_group_count=g.c if g.depthwise else 1,
        )

    if g.direction == "forward":
        return [convolve(first, second)]
    if g.direction == "input":
        like = jax.ShapeDtypeStruct(images, dtype)
        return list(jax.linear_transpose(lambda x: convolve(x, first), like)(second))
    like = jax.ShapeDtypeStruct(filters, dtype)
    return list(jax.linear_transpose(lambda w: convolve(first, w), like)(second))


def pooling(g: Pooling, *operands: Any) -> list[Any]:
    """A 2-D pooling, or its gradient."""
    axes = _all_axes((g.h, g.w), g.n, g.c, g.data_format == "NCHW")
    dtype = wide(operands[0].dtype)
    images = [x.astype(dtype) for x in operands]
    if g.direction == "forward":
        return [pool(g.kind, axes, images[0])]
    if g.kind == "max":
        return [pool_gradient("max", axes, images[0], images[2])]
    return [pool_gradient("mean", axes, jnp.zeros([a.size for a in axes], dtype), images[0])]


def pooling_3d(g: Pooling3D, x: Any) -> list[Any]:
    """A 3-D pooling."""
    axes = _all_axes((g.d, g.h, g.w), g.n, g.c, False)
    return [pool(g.kind, axes, x.astype(wide(x.dtype)))]


def _all_axes(
    axes: Sequence[Window[int]], n: int, c: int, channels_first: bool
) -> tuple[Window[int], ...]:
    """The windows of all axes of images."""
    one, channel = (Window(k, 1, 1, 1, 0, 0, k) for k in (n, c))
    return (one, channel, *axes) if channels_first else (one, *axes, channel)


def pool(kind: str, axes: Sequence[Window[int]], x: Any) -> Any:
    """The "max" or the "mean" of each window; padding is not counted."""
    if kind == "max":
        lowest = jnp.finfo(x.dtype).min if jnp.issubdtype(x.dtype, jnp.floating) else None
        # A NaN is greater than nothing, so it never wins.
        if lowest is not None:
            x = jnp.where(jnp.isnan(x), np.asarray(lowest, x.dtype), x)
        return _reduced(jax.lax.max, _lowest(x.dtype), axes, x)
    return _reduced(jax.lax.add, np.zeros((), x.dtype), axes, x) / _counts(axes, x.dtype)


def pool_gradient(kind: str, axes: Sequence[Window[int]], x: Any, dy: Any) -> Any:
    """The gradient of a pooling's input: of the maxima, the first of each window gets it."""
    if kind == "max":

        def maxima(x: Any) -> Any:
            return _reduced(jax.lax.max, np.asarray(-np.inf, x.dtype), axes, x)

        return jax.vjp(maxima, x)[1](dy)[0]

    def sums(x: Any) -> Any:
        return _reduced(jax.lax.add, np.zeros((), x.dtype), axes, x)

    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (dx,) = jax.linear_transpose(sums, like)(dy / _counts(axes, x.dtype))
    return dx


def _lowest(dtype: Any) -> Any:
    info = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype)
    return np.asarray(info.min, dtype)


def _reduced(combine: Any, initial: Any, axes: Sequence[Window[int]], x: Any) -> Any:
    # What no window sees is cut off first: JAX has no gradient of negative padding.
    x = jax.lax.slice(x, [0] * x.ndim, [a.size + min(a.after, 0) for a in axes])
    return jax.lax.reduce_window(
        x,
        initial,
        combine,
        tuple(a.taps for a in axes),
        tuple(a.stride for a in axes),
        [(a.before, max(a.after, 0)) for a in axes],
        window_dilation=tuple(a.dilation for a in axes),
    )


def _counts(axes: Sequence[Window[int]], dtype: Any) -> np.ndarray:
    """How many elements each window sees."""
    result = np.ones((), np.int64)
    for d, axis in enumerate(axes):
        along = [-1 if i == d else 1 for i in range(len(axes))]
        result = result * axis.coverage().reshape(along)
    return result.astype(dtype)
