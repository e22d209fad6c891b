"""Bias, batch and local response normalisation in NumPy. In: arrays, TF attributes. Out: arrays.

Sums over a batch have millions of terms per channel, which NumPy would add one after another when
the channel is the last axis: `_channel_sum` lets BLAS add blocks of them, and adds up the blocks in
float64.
"""

from __future__ import annotations

import math

import numpy as np

from headrace.core.shapes import show_shape
from headrace.ops.accumulation import require_float, widened

_BLOCK = 512  # as many terms as may be added in the array's own precision


def bias_add(value: np.ndarray, bias: np.ndarray, *, data_format: str = "NHWC") -> np.ndarray:
    """Add bias[c] to every element of channel c: the last axis, or axis 1 for NCHW."""
    axis = _channel_axis(value.shape, data_format)
    if bias.dtype != value.dtype:
        raise TypeError(f"bias_add: value is {value.dtype.name}, bias is {bias.dtype.name}")
    if bias.shape != (value.shape[axis],):
        which = "last" if axis == value.ndim - 1 else "channel"
        raise ValueError(
            f"Must provide as many biases as the {which} dimension of the input tensor: "
            f"{show_shape(bias.shape)} vs. {show_shape(value.shape)}"
        )
    return value + (bias if axis == value.ndim - 1 else _along(bias, axis, value.ndim))


def bias_add_grad(out_backprop: np.ndarray, *, data_format: str = "NHWC") -> np.ndarray:
    """Sum the gradient over everything but the channels."""
    axis = _channel_axis(out_backprop.shape, data_format)
    dy = widened(out_backprop)
    if dy.dtype.kind == "f":
        total = _channel_sum(dy, axis)
    else:
        total = dy.sum(axis=_others(dy.ndim, axis), dtype=dy.dtype)
    return total.astype(out_backprop.dtype, copy=False)


def fused_batch_norm(
    x: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    *,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[np.ndarray, ...]:
    """Normalise each channel: (y, batch_mean, batch_variance, reserve_space_1, reserve_space_2).

    In training the statistics are the batch's own: batch_variance is the unbiased estimate (for
    moving averages), while y uses the biased one, which is what reserve_space_2 hands to the
    gradient. Otherwise they are the given ones, and come back unchanged (TensorFlow's CPU kernel
    leaves those outputs unset).
    """
    axis = _check_norm(x, data_format, scale=scale, offset=offset)
    if is_training:
        if mean.size or variance.size:
            raise ValueError(
                "mean and variance must be empty in training, "
                f"got shapes {mean.shape} and {variance.shape}"
            )
        used_mean, used_variance, unbiased = _moments(x, axis, scale.dtype)
    else:
        _check_norm(x, data_format, mean=mean, variance=variance)
        used_mean, used_variance, unbiased = mean, variance, variance
    factor = scale / np.sqrt(used_variance + scale.dtype.type(epsilon))
    y = widened(x) - _along(used_mean, axis, x.ndim)
    y *= _along(factor, axis, x.ndim)
    y += _along(offset, axis, x.ndim)
    # Copies: an output must not share memory with another, nor with the variable that was read.
    statistics = (used_mean, unbiased, used_mean, used_variance)
    return y.astype(x.dtype, copy=False), *(vector.copy() for vector in statistics)


def fused_batch_norm_v3(
    x: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    *,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[np.ndarray, ...]:
    """As fused_batch_norm, with reserve_space_3: a GPU's scratch memory, a scalar zero on a CPU."""
    outputs = fused_batch_norm(
        x,
        scale,
        offset,
        mean,
        variance,
        epsilon=epsilon,
        data_format=data_format,
        is_training=is_training,
    )
    return *outputs, np.zeros((), scale.dtype)


def fused_batch_norm_grad(
    y_backprop: np.ndarray,
    x: np.ndarray,
    scale: np.ndarray,
    reserve_space_1: np.ndarray,
    reserve_space_2: np.ndarray,
    *,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[np.ndarray, ...]:
    """Gradients for x, scale and offset, and two scalar zeros for mean and variance.

    The reserved spaces are the mean and the biased variance with which x was normalised; in
    training they depend on x, which adds the two terms that remove the gradient's mean and its part
    along the normalised x.
    """
    axis = _check_norm(x, data_format, scale=scale, mean=reserve_space_1, variance=reserve_space_2)
    if y_backprop.shape != x.shape or y_backprop.dtype != x.dtype:
        raise ValueError(
            f"y_backprop is {y_backprop.dtype.name}{list(y_backprop.shape)}, "
            f"x is {x.dtype.name}{list(x.shape)}"
        )
    count = x.size // max(x.shape[axis], 1)
    inverse = 1 / np.sqrt(reserve_space_2 + scale.dtype.type(epsilon))
    dy = widened(y_backprop)
    normal = widened(x) - _along(reserve_space_1, axis, x.ndim)
    normal *= _along(inverse, axis, x.ndim)
    d_offset = _channel_sum(dy, axis).astype(scale.dtype)
    d_scale = _channel_sum(dy * normal, axis).astype(scale.dtype)
    if is_training and count:
        normal *= _along(-d_scale / count, axis, x.ndim)
        normal += dy
        normal -= _along(d_offset / count, axis, x.ndim)
        dx = normal
        dx *= _along(scale * inverse, axis, x.ndim)
    else:
        dx = dy * _along(scale * inverse, axis, x.ndim)
    unused = np.zeros((), scale.dtype)
    return dx.astype(x.dtype, copy=False), d_scale, d_offset, unused, unused.copy()


def fused_batch_norm_grad_v3(
    y_backprop: np.ndarray,
    x: np.ndarray,
    scale: np.ndarray,
    reserve_space_1: np.ndarray,
    reserve_space_2: np.ndarray,
    reserve_space_3: np.ndarray,
    *,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[np.ndarray, ...]:
    """As fused_batch_norm_grad; reserve_space_3 must be the scalar that the forward op made."""
    if reserve_space_3.size > 1:
        raise ValueError(f"reserve_space_3 holds no statistics, got shape {reserve_space_3.shape}")
    return fused_batch_norm_grad(
        y_backprop,
        x,
        scale,
        reserve_space_1,
        reserve_space_2,
        epsilon=epsilon,
        data_format=data_format,
        is_training=is_training,
    )


def lrn(
    inputs: np.ndarray,
    *,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> np.ndarray:
    """Divide by (bias + alpha * sum of squares over the channels within depth_radius) ** beta."""
    _check_lrn(depth_radius, inputs)
    x = widened(inputs)
    scale = _window_sum(x * x, depth_radius)
    scale *= alpha
    scale += bias
    scale **= -beta
    scale *= x
    return scale.astype(inputs.dtype, copy=False)


def lrn_grad(
    input_grads: np.ndarray,
    input_image: np.ndarray,
    output_image: np.ndarray,
    *,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> np.ndarray:
    """Gradient of lrn: the direct term, less what x contributes to its neighbours' divisors."""
    _check_lrn(depth_radius, input_grads, input_image, output_image)
    dy, x, y = widened(input_grads), widened(input_image), widened(output_image)
    scale = bias + alpha * _window_sum(x * x, depth_radius)
    through_divisors = x * _window_sum(dy * y / scale, depth_radius)
    dx = dy * scale**-beta - 2 * alpha * beta * through_divisors
    return dx.astype(input_grads.dtype, copy=False)


def _channel_axis(shape: tuple[int, ...], data_format: str) -> int:
    least = {"NHWC": 2, "NCHW": 3}.get(data_format)
    if least is None:
        raise ValueError(f"data_format must be NHWC or NCHW, got {data_format!r}")
    if len(shape) < least:
        raise ValueError(f"{data_format} data needs at least {least} dimensions, got {len(shape)}")
    return 1 if data_format == "NCHW" else len(shape) - 1


def _along(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """`vector`, shaped to broadcast along `axis` of an array of `rank`."""
    return np.expand_dims(vector, _others(rank, axis))


def _others(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(rank) if other != axis)


def _check_norm(x: np.ndarray, data_format: str, **vectors: np.ndarray) -> int:
    require_float("fused_batch_norm", x)
    if x.ndim != 4:
        raise ValueError(f"fused_batch_norm takes 4-D data, got shape {x.shape}")
    axis = _channel_axis(x.shape, data_format)
    statistics = widened(x[:0]).dtype
    for name, vector in vectors.items():
        if vector.shape != (x.shape[axis],):
            raise ValueError(f"{name} must have shape ({x.shape[axis]},), got {vector.shape}")
        if vector.dtype != statistics:
            raise TypeError(f"{name} must be {statistics.name}, got {vector.dtype.name}")
    return axis


def _moments(x: np.ndarray, axis: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Each channel's mean, biased variance and unbiased variance; NaN for an empty batch."""
    count = x.size // max(x.shape[axis], 1)
    wide = widened(x)
    with np.errstate(invalid="ignore"):
        mean = _channel_sum(wide, axis) / np.float64(count)
        variance = _squares_sum(wide, mean.astype(wide.dtype), axis) / np.float64(count)
    unbiased = variance * (count / max(count - 1, 1))
    return mean.astype(dtype), variance.astype(dtype), unbiased.astype(dtype)


def _squares_sum(x: np.ndarray, mean: np.ndarray, axis: int) -> np.ndarray:
    """The sum of squared distances from each channel's mean, in float64."""
    if axis != x.ndim - 1:
        centred = x - _along(mean, axis, x.ndim)
        return _channel_sum(np.square(centred, out=centred), axis)
    # Block by block: a block stays in cache, which makes it twice as fast.
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    total = np.zeros(x.shape[-1], np.float64)
    ones = np.ones(_BLOCK, x.dtype)
    for start in range(0, len(rows), _BLOCK):
        centred = rows[start : start + _BLOCK] - mean
        centred *= centred
        total += ones[: len(centred)] @ centred
    return total


def _channel_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """The sum over everything but `axis`, in float64: blocks by BLAS, then the blocks."""
    if axis != x.ndim - 1:
        planes = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
        return (planes @ np.ones(planes.shape[2], x.dtype)).sum(axis=0, dtype=np.float64)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if len(rows) < _BLOCK:
        return np.ones(len(rows), x.dtype) @ rows
    whole = len(rows) // _BLOCK * _BLOCK
    blocks = rows[:whole].reshape(whole // _BLOCK, _BLOCK, x.shape[-1])
    ones = np.ones(_BLOCK, x.dtype)
    total = (ones @ blocks).sum(axis=0, dtype=np.float64)
    return total + ones[: len(rows) - whole] @ rows[whole:]


def _check_lrn(depth_radius: int, *arrays: np.ndarray) -> None:
    require_float("lrn", *arrays)
    if depth_radius < 0:
        raise ValueError(f"depth_radius must not be negative, got {depth_radius}")
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 4:
        raise ValueError(f"lrn takes 4-D data of one shape, got {', '.join(map(str, shapes))}")


# Elements to add up at once in `_window_sum`: they stay in cache.
_WINDOW_BLOCK = 1 << 16


def _window_sum(x: np.ndarray, radius: int) -> np.ndarray:
    """Sum over the channels at most `radius` away.

    Pixels are laid out flat with zeros between them, so that a shift of all of them is one plain
    addition (8 x 28 x 28 x 64 and radius 5: 0.9 ms, 3.8 with slices of the channels).
    """
    if not x.size:
        return x
    channels = x.shape[-1]
    radius = min(radius, channels - 1)
    pixels, width = x.reshape(-1, channels), channels + radius
    total = np.empty_like(pixels)
    step = max(_WINDOW_BLOCK // width, 1)
    for start in range(0, len(pixels), step):
        block = pixels[start : start + step]
        spaced = np.zeros(len(block) * width + 2 * radius, x.dtype)
        size = spaced.size - 2 * radius
        spaced[radius : radius + size].reshape(-1, width)[:, :channels] = block
        sums = spaced[:size].copy()
        for shift in range(1, 2 * radius + 1):
            sums += spaced[shift : shift + size]
        total[start : start + step] = sums.reshape(-1, width)[:, :channels]
    return total.reshape(x.shape)
