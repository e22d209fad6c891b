"""Bias, batch and local response normalisation in NumPy. In: arrays, TF attributes. Out: arrays.

Sums over a batch have millions of terms per channel, which NumPy would add one after another when
the channel is the last axis: `_sums_on_channels` lets BLAS add blocks of them, and adds up the
blocks in float64. Large arrays with channels last are handed to generated code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import add
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import show_shape
from headrace._src.lowering import generated
from headrace._src.lowering.pointwise import Lane, Pointwise, Recorder, record
from headrace._src.ops.math.sum_precision import require_float, widened

_Arrays = Sequence[np.ndarray]

_BLOCK = 512  # the most terms to add in the array's own precision


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
    """Sum the gradient over everything except the channels."""
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
    moving averages), while y uses the biased one, which reserve_space_2 passes to the gradient.
    Otherwise the given statistics are used and returned unchanged (TensorFlow's CPU kernel leaves
    those outputs unset).
    """
    axis = _check_norm(x, data_format, scale=scale, offset=offset)
    if is_training:
        if mean.shape != (0,) or variance.shape != (0,):
            raise ValueError(
                "mean and variance must be empty in training, "
                f"got shapes {mean.shape} and {variance.shape}"
            )
        used_mean, used_variance, unbiased = _moments(x, axis, scale.dtype)
    else:
        _check_norm(x, data_format, mean=mean, variance=variance)
        used_mean, used_variance, unbiased = mean, variance, variance
    factor = scale / np.sqrt(used_variance + scale.dtype.type(epsilon))
    y = _on_channels(_normalised, axis, [widened(x)], [used_mean, factor, offset])
    # Copy: an output must not share memory with another, nor with the variable that was read.
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
    """Return gradients for x, scale and offset, and two scalar zeros for mean and variance.

    The reserved spaces are the mean and the biased variance that normalised x; in training they
    depend on x, which adds the two terms that remove the gradient's mean and its component along
    the normalised x.
    """
    axis = _check_norm(x, data_format, scale=scale, mean=reserve_space_1, variance=reserve_space_2)
    if y_backprop.shape != x.shape or y_backprop.dtype != x.dtype:
        raise ValueError(
            f"y_backprop is {y_backprop.dtype.name}{list(y_backprop.shape)}, "
            f"x is {x.dtype.name}{list(x.shape)}"
        )
    count = x.size // max(x.shape[axis], 1)
    inverse = 1 / np.sqrt(reserve_space_2 + scale.dtype.type(epsilon))
    dy, wide = widened(y_backprop), widened(x)
    sums = _sums_on_channels(_products, axis, [dy, wide], [reserve_space_1, inverse])
    d_offset, d_scale = (total.astype(scale.dtype) for total in sums)
    slope = scale * inverse
    if is_training and count:
        vectors = [reserve_space_1, inverse * d_scale / count, d_offset / count, slope]
        dx = _on_channels(_centred, axis, [dy, wide], vectors)
    else:
        dx = dy * _along(slope, axis, x.ndim)
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
    """As fused_batch_norm_grad; reserve_space_3 must be the scalar from the forward op."""
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
    y = _generated_lrn(x, depth_radius, bias, alpha, beta)
    if y is None:
        y = _window_sum(x * x, depth_radius)
        y *= alpha
        y += bias
        y **= -beta
        y *= x
    return y.astype(inputs.dtype, copy=False)


def _generated_lrn(
    x: np.ndarray, radius: int, bias: float, alpha: float, beta: float
) -> np.ndarray | None:
    """Return the result for a large array by generated code; None where there is none."""
    channels = x.shape[-1]
    radius = min(radius, channels - 1)
    if x.size < generated.LEAST or radius > _WIDEST:
        return None
    program = _lrn_program(radius, bias, alpha, beta, x.dtype.name)
    run = generated.elementwise(program, ("full",) * (2 * radius + 1))
    if run is None:
        return None
    spaced = _spaced(x.reshape(-1, channels), radius)
    size = spaced.size - 2 * radius
    (found,) = run(*(spaced[shift : shift + size] for shift in range(2 * radius + 1)))
    return found.reshape(-1, channels + radius)[:, :channels].reshape(x.shape)


@lru_cache
def _lrn_program(radius: int, bias: float, alpha: float, beta: float, dtype: str) -> Pointwise:
    """The formula for an element and its neighbours."""

    def formula(e: Recorder, *window: Lane) -> Lane:
        total = reduce(add, map(e.square, window)) * alpha + bias
        if beta == 0.75:  # the usual value, for which this is faster than a logarithm
            root = e.rsqrt(total)
            return root * e.sqrt(root) * window[radius]
        return e.pow(total, -beta) * window[radius]

    return record(formula, [dtype] * (2 * radius + 1))


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
    """The gradient of lrn: the direct term, minus x's contribution to its neighbours' divisors."""
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
    """Return `vector`, shaped to broadcast along `axis` of an array of `rank`."""
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
    """Return each channel's mean, biased variance and unbiased variance; NaN for an empty batch."""
    count = x.size // max(x.shape[axis], 1)
    wide = widened(x)
    with np.errstate(invalid="ignore"):
        mean = _channel_sum(wide, axis) / np.float64(count)
        (squares,) = _sums_on_channels(_squares, axis, [wide], [mean.astype(wide.dtype)])
        variance = squares / np.float64(count)
    unbiased = variance * (count / max(count - 1, 1))
    return mean.astype(dtype), variance.astype(dtype), unbiased.astype(dtype)


def _channel_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """Return the sum over everything except `axis`, in float64."""
    (total,) = _sums_on_channels(_same, axis, [x], [])
    return total


# Formulas on elements and their channels' vectors, as arrays or as lanes of native code.


def _same(x: Any) -> tuple[Any]:
    return (x,)


def _squares(x: Any, mean: Any) -> tuple[Any]:
    centred = x - mean
    return (centred * centred,)


def _normalised(x: Any, mean: Any, factor: Any, offset: Any) -> Any:
    return (x - mean) * factor + offset


def _products(dy: Any, x: Any, mean: Any, inverse: Any) -> tuple[Any, Any]:
    """The gradients of offset and scale that an element adds."""
    return dy, dy * ((x - mean) * inverse)


def _centred(dy: Any, x: Any, mean: Any, along: Any, offset: Any, slope: Any) -> Any:
    return (dy - (x - mean) * along - offset) * slope


@lru_cache
def _program(formula: Callable[..., Any], dtypes: tuple[str, ...]) -> Pointwise:
    return record(lambda e, *lanes: formula(*lanes), dtypes)


def _generated(
    make: Callable[..., Any], formula: Callable[..., Any], arrays: _Arrays, vectors: _Arrays
) -> Any:
    """Evaluate a formula on large channels-last arrays by generated code; return None
    for others.
    """
    if arrays[0].size < generated.LEAST or not all(a.flags.c_contiguous for a in arrays):
        return None
    program = _program(formula, tuple(a.dtype.name for a in (*arrays, *vectors)))
    run = make(program, ("full",) * len(arrays) + ("row",) * len(vectors))
    rows = [a.reshape(-1, a.shape[-1]) for a in arrays]
    return None if run is None else run(*rows, *map(np.ascontiguousarray, vectors))


def _on_channels(
    formula: Callable[..., Any], axis: int, arrays: _Arrays, vectors: _Arrays
) -> np.ndarray:
    """Evaluate the formula for all elements."""
    x = arrays[0]
    if axis != x.ndim - 1:
        return formula(*arrays, *(_along(v, axis, x.ndim) for v in vectors))
    found = _generated(generated.elementwise, formula, arrays, vectors)
    if found is not None:
        return found[0].reshape(x.shape)
    result = np.empty_like(x, order="C")
    rows = result.reshape(-1, x.shape[-1])
    for start, blocks in _blocks(arrays):
        rows[start : start + len(blocks[0])] = formula(*blocks, *vectors)
    return result


def _sums_on_channels(
    formula: Callable[..., tuple[Any, ...]], axis: int, arrays: _Arrays, vectors: _Arrays
) -> Sequence[np.ndarray]:
    """The sums of the formula's results over everything but `axis`, in float64: blocks by BLAS,
    then the blocks.
    """
    x = arrays[0]
    if axis != x.ndim - 1:
        ones = np.ones(math.prod(x.shape[2:]), x.dtype)
        found = formula(*arrays, *(_along(v, axis, x.ndim) for v in vectors))
        planes = (each.reshape(*x.shape[:2], ones.size) for each in found)
        return [(each @ ones).sum(axis=0, dtype=np.float64) for each in planes]
    found = _generated(generated.column_sums, formula, arrays, vectors)
    if found is not None:
        return found
    ones = np.ones(_BLOCK, x.dtype)
    sums = [
        [ones[: len(blocks[0])] @ each for each in formula(*blocks, *vectors)]
        for _, blocks in _blocks(arrays)
    ]
    return [np.asarray(parts, np.float64).sum(axis=0) for parts in zip(*sums, strict=True)]


def _blocks(arrays: _Arrays) -> Iterator[tuple[int, list[np.ndarray]]]:
    """The arrays' rows, channels last, in blocks that stay in cache: one, empty, of no rows."""
    rows = [a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) for a in arrays]
    for start in range(0, max(len(rows[0]), 1), _BLOCK):
        yield start, [r[start : start + _BLOCK] for r in rows]


def _check_lrn(depth_radius: int, *arrays: np.ndarray) -> None:
    require_float("lrn", *arrays)
    if depth_radius < 0:
        raise ValueError(f"depth_radius must not be negative, got {depth_radius}")
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 4:
        raise ValueError(f"lrn takes 4-D data of one shape, got {', '.join(map(str, shapes))}")


# The number of elements that `_window_sum` adds at once: they stay in cache.
_WINDOW_BLOCK = 1 << 16
_WIDEST = 8  # the largest depth radius for which generated code sums a window


def _window_sum(x: np.ndarray, radius: int) -> np.ndarray:
    """Sum over the channels at most `radius` away.

    Pixels are laid out flat with zeros between them, so that shifting all of them is one plain
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
        spaced = _spaced(pixels[start : start + step], radius)
        size = spaced.size - 2 * radius
        sums = spaced[:size].copy()
        for shift in range(1, 2 * radius + 1):
            sums += spaced[shift : shift + size]
        total[start : start + step] = sums.reshape(-1, width)[:, :channels]
    return total.reshape(x.shape)


def _spaced(pixels: np.ndarray, radius: int) -> np.ndarray:
    """Return the pixels in sequence, with `radius` zeros before, between and after them."""
    count, channels = pixels.shape
    width = channels + radius
    spaced = np.zeros(count * width + 2 * radius, pixels.dtype)
    spaced[radius : radius + count * width].reshape(-1, width)[:, :channels] = pixels
    return spaced
