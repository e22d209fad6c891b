"""Maximum and average pools and their gradients; conventions as in the package's docstring."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.onednn import library as c
from headrace._src.devices.onednn.onednn_window import OneDnnWindow, Pads, pairs
from headrace._src.devices.onednn.primitive_chains import (
    PlanBuilder,
    PrimitiveChain,
    Shape,
    cached,
    common_dtype,
    int64s,
    ready,
    require,
)


class _Pool:
    """Descriptors of a pool, and its forward primitive, which is a hint for backward ones."""

    def __init__(
        self,
        algorithm: int,
        propagation: int,
        dtype: int,
        x_shape: Shape,
        ksize: Shape,
        strides: Shape,
        pads: Any,
        data_format: str,
    ):
        window = OneDnnWindow(len(x_shape), ksize, strides, (1,) * len(ksize), pads, data_format)
        require(0 not in x_shape, "empty array")
        require(
            all(max(pad) < size for pad, size in zip(pads, ksize, strict=True)),
            f"pads {pads} leave windows of {ksize} with nothing but padding",
        )
        batch, channels, extents = window.split(x_shape)
        out = window.slide(extents)
        self.y_shape = window.join(batch, channels, out)
        # Memory bound: about 4 elements of a window per ns.
        self.builder = builder = PlanBuilder(math.prod(self.y_shape) * math.prod(ksize) / 4)
        order = window.order(window.channels_last)
        self.x = builder.dense((batch, channels, *extents), order, dtype)
        self.y = builder.dense((batch, channels, *out), order, dtype)
        self.geometry = (
            int64s(strides),
            int64s(ksize),
            int64s([0] * len(ksize)),  # oneDNN's dilation: 0 is dense
            *window.padding(),
        )
        self.forward = builder.primitive_desc(
            "pooling_forward", propagation, algorithm, self.x, self.y, *self.geometry
        )

    def backward(self, algorithm: int) -> int:
        return self.builder.primitive_desc(
            "pooling_backward", algorithm, self.x, self.y, *self.geometry, self.forward
        )


@cached
def _pool_plan(algorithm: int, *key: Any) -> tuple[PrimitiveChain, Shape]:
    pool = _Pool(algorithm, c.FORWARD_INFERENCE, *key)
    builder = pool.builder
    builder.execute(
        pool.forward, {c.ARG_SRC: builder.array(pool.x), c.ARG_DST: builder.array(pool.y)}
    )
    return builder.finish(), pool.y_shape


@cached
def _max_pool_backward_plan(dy_shape: Shape, *key: Any) -> tuple[PrimitiveChain, Shape]:
    """Plan the forward pass again, to record where each maximum was, then the backward one."""
    pool = _Pool(c.POOLING_MAX, c.FORWARD_TRAINING, *key)
    require(dy_shape == pool.y_shape, f"dy has shape {dy_shape}, the output {pool.y_shape}")
    builder = pool.builder
    x, dy, dx = builder.array(pool.x), builder.array(pool.y), builder.array(pool.x)
    places = builder.scratch(builder.query(pool.forward, c.QUERY_WORKSPACE))
    y = builder.scratch(pool.y)
    builder.execute(pool.forward, {c.ARG_SRC: x, c.ARG_DST: y, c.ARG_WORKSPACE: places})
    builder.execute(
        pool.backward(c.POOLING_MAX),
        {c.ARG_DIFF_DST: dy, c.ARG_WORKSPACE: places, c.ARG_DIFF_SRC: dx},
    )
    return builder.finish(), key[1]


@cached
def _avg_pool_backward_plan(dy_shape: Shape, *key: Any) -> tuple[PrimitiveChain, Shape]:
    pool = _Pool(c.POOLING_AVERAGE, c.FORWARD_TRAINING, *key)
    require(dy_shape == pool.y_shape, f"dy has shape {dy_shape}, the output {pool.y_shape}")
    builder = pool.builder
    dy, dx = builder.array(pool.y), builder.array(pool.x)
    builder.execute(pool.backward(c.POOLING_AVERAGE), {c.ARG_DIFF_DST: dy, c.ARG_DIFF_SRC: dx})
    return builder.finish(), key[1]


def _pool(
    algorithm: int,
    x: np.ndarray,
    ksize: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    data_format: str,
) -> np.ndarray:
    dtype = common_dtype(x)
    plan, shape = _pool_plan(
        algorithm, dtype, x.shape, tuple(ksize), tuple(strides), pairs(pads), data_format
    )
    y = empty_aligned(shape, x.dtype)
    plan.run(ready(x), y)
    return y


def max_pool(
    x: np.ndarray,
    ksize: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Return the largest element of each window; padding never counts.

    As in TensorFlow, NaN never counts either, and a window without any number above the lowest
    finite one (all -inf or NaN) gives that lowest finite number.
    """
    return _pool(c.POOLING_MAX, x, ksize, strides, pads, data_format)


def avg_pool(
    x: np.ndarray,
    ksize: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Return the mean of each window's elements; padding counts in neither the sum nor the size."""
    return _pool(c.POOLING_AVERAGE, x, ksize, strides, pads, data_format)


def max_pool_backward(
    x: np.ndarray,
    y: np.ndarray,
    dy: np.ndarray,
    ksize: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Return the gradient of `max_pool` for its input x and output y.

    Among equal maxima of a window the first in row-major order receives the gradient. The places of
    the maxima are computed again from x; of y, only the shape is checked.
    """
    dtype = common_dtype(x, y, dy)
    require(y.shape == dy.shape, f"y has shape {y.shape}, dy {dy.shape}")
    plan, shape = _max_pool_backward_plan(
        dy.shape, dtype, x.shape, tuple(ksize), tuple(strides), pairs(pads), data_format
    )
    dx = empty_aligned(shape, x.dtype)
    plan.run(ready(x), ready(dy), dx)
    return dx


def avg_pool_backward(
    x_shape: Shape,
    dy: np.ndarray,
    ksize: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Return the gradient of `avg_pool` for an input that had `x_shape`."""
    dtype = common_dtype(dy)
    plan, shape = _avg_pool_backward_plan(
        dy.shape, dtype, tuple(x_shape), tuple(ksize), tuple(strides), pairs(pads), data_format
    )
    dx = empty_aligned(shape, dy.dtype)
    plan.run(ready(dy), dx)
    return dx
