"""Layers on quantized values. In: integers, and the range of floats that they stand for. Out: the
same. The arithmetic is TensorFlow's reference.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype, qint32, quint8
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.ops.array.joining import concat_shape
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.math.quantization_kernels import (
    Levels,
    as_quantized,
    dequantized_min_first,
    integers,
    quantized_min_first,
    scalar,
)
from headrace._src.ops.nn import conv_kernels, pool_kernels
from headrace._src.ops.nn.conv_ops import forward_infer
from headrace._src.ops.nn.pool_ops import pool_infer

__all__ = [
    "quantized_avg_pool",
    "quantized_concat",
    "quantized_conv2d",
    "quantized_max_pool",
    "quantized_relu",
    "quantized_relu6",
    "quantized_relu_x",
]

_TYPES = "{qint8|quint8|qint32|qint16|quint16}"
_RANGE = "min_output: float32, max_output: float32"


def _level_of(value: Any, levels: Levels) -> int:
    """Return the integer that stands for a float; not clipped."""
    if levels.low == levels.high:
        return 0
    steps = levels.steps + 1
    width = float(levels.high - levels.low) * (steps / (steps - 1.0))
    scale = steps / width
    return _away(float(value) * scale) - _away(float(levels.low) * scale) + levels.lowest


def _away(value: float) -> int:
    return int(np.trunc(value + np.copysign(0.5, value)))


# -- Joining


def _quantized_concat_kernel(concat_dim, values, input_mins, input_maxes, *, T):
    axis = int(scalar(concat_dim, "concat_dim"))
    dtype = as_dtype(T)
    lows = [scalar(v, "input_mins") for v in input_mins]
    highs = [scalar(v, "input_maxes") for v in input_maxes]
    rank = np.ndim(values[0])
    if rank and not -rank <= axis < rank:
        raise ValueError(
            f"ConcatOp : Expected concatenating dimensions in the range [{-rank}, {rank}), but "
            f"got {axis}"
        )
    for value in values:
        shapes = [list(np.shape(v)) for v in (value, values[0])]
        for shape in shapes:
            if rank and len(shape) == rank:
                shape[axis] = 0
        if shapes[0] != shapes[1] or not rank:
            raise ValueError(
                f"ConcatOp : Dimensions of inputs should match: {show_shape(values[0].shape)} and "
                f"{show_shape(value.shape)}"
            )
    low, high = min(lows), max(highs)
    if np.iinfo(integers(values[0]).dtype).min < 0:  # so that zero is exact
        high = max(abs(low), abs(high))
        low = -high
    target = Levels.of(dtype, low, high)
    parts = []
    for value, start, stop in zip(values, lows, highs, strict=True):
        part = integers(value)
        if (start, stop) != (low, high):
            floats = dequantized_min_first(part, Levels.of(dtype, start, stop))
            part = quantized_min_first(floats, target)
        parts.append(part)
    return as_quantized(np.concatenate(parts, axis), dtype), low, high


def _quantized_concat_infer(c: Any, axis: Any, values: Any, lows: Any, highs: Any) -> Any:
    infer.with_rank(axis, 0)
    for shape in (*lows, *highs):
        infer.with_rank(shape, 0)
    return [concat_shape(values, c.value(0)), (), ()]


@export("quantized_concat", "quantization.quantized_concat")
@define(
    "QuantizedConcat",
    "concat_dim: int32, values: N*T, input_mins: N*float32, input_maxes: N*float32 -> "
    "output: T, output_min: float32, output_max: float32",
    "N: int >= 2; T: type",
    infer=_quantized_concat_infer,
    kernel=_quantized_concat_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(
            1,
            [r(2, 1, low=0, high=90), r(2, 2, low=0, high=90)],
            [0.0, -1.0],
            [1.0, 2.0],
            T=kind,
            N=2,
        )
        for kind in ("quint8", "qint8", "qint32")
    ],
)
def quantized_concat(concat_dim, values, input_mins, input_maxes, name=None):
    """Return quantized tensors, joined along an axis, in a range that holds all of theirs; and the
    range.
    """


# -- Clipping


def _relu(features, top, low, high, out_type):
    low, high = scalar(low, "min_features"), scalar(high, "max_features")
    levels = Levels.of(as_dtype_of(features), low, high)
    first = _level_of(0.0, levels)
    last = levels.highest if top is None else _level_of(top, levels)
    bounds = [min(max(v, levels.lowest), levels.highest) for v in (first, last)]
    found = np.minimum(np.maximum(integers(features).astype(np.int64), bounds[0]), bounds[1])
    limits = Levels.of(out_type, 0, 0)
    found = np.clip(found, limits.lowest, limits.highest)
    return as_quantized(found, as_dtype(out_type)), low, high


def as_dtype_of(values: np.ndarray) -> Any:
    return as_dtype(values.dtype)


def _relu_kernel(features, min_features, max_features, *, out_type):
    return _relu(features, None, min_features, max_features, out_type)


def _relu6_kernel(features, min_features, max_features, *, out_type):
    return _relu(features, 6.0, min_features, max_features, out_type)


def _relu_x_kernel(features, max_value, min_features, max_features, *, out_type):
    top = scalar(max_value, "max_value")
    return _relu(features, top, min_features, max_features, out_type)


def _relu_infer(c: Any, features: Any, *scalars: Any) -> Any:
    for shape in scalars:
        infer.with_rank(shape, 0)
    return [features, (), ()]


_RELU = f"Tinput: {_TYPES}; out_type: {_TYPES} = quint8"
_ACTIVATIONS = "activations: out_type, min_activations: float32, max_activations: float32"


def _relu_samples(*more: float) -> list[Sample]:
    return [
        Sample(r(2, 3, low=0, high=120), *more, -1.0, 8.0, Tinput=kind, out_type=kind)
        for kind in ("quint8", "qint8")
    ]


@define(
    "QuantizedRelu",
    f"features: Tinput, min_features: float32, max_features: float32 -> {_ACTIVATIONS}",
    _RELU,
    infer=_relu_infer,
    kernel=_relu_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_relu_samples(),
)
def quantized_relu(features, min_features, max_features, out_type=quint8, name=None):
    """Return quantized values of at least zero, and their range."""


@define(
    "QuantizedRelu6",
    f"features: Tinput, min_features: float32, max_features: float32 -> {_ACTIVATIONS}",
    _RELU,
    infer=_relu_infer,
    kernel=_relu6_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_relu_samples(),
)
def quantized_relu6(features, min_features, max_features, out_type=quint8, name=None):
    """Return quantized values from zero to six, and their range."""


@export("nn.quantized_relu_x")
@define(
    "QuantizedReluX",
    "features: Tinput, max_value: float32, min_features: float32, max_features: float32 -> "
    f"{_ACTIVATIONS}",
    _RELU,
    infer=_relu_infer,
    kernel=_relu_x_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_relu_samples(3.0),
)
def quantized_relu_x(features, max_value, min_features, max_features, out_type=quint8, name=None):
    """Return quantized values from zero to max_value, and their range."""


# -- Windows


def _with_format(c: Any) -> Any:
    """The attributes that shape rules of other layers expect."""
    return SimpleNamespace(attrs={**c.attrs, "data_format": "NHWC"})


def _pool_infer(c: Any, x: Any, low: Any, high: Any) -> Any:
    infer.with_rank(low, 0)
    infer.with_rank(high, 0)
    return [pool_infer(_with_format(c), x), (), ()]


def _max_pool_kernel(input, min_input, max_input, *, T, ksize, strides, padding):
    low, high = scalar(min_input, "min_input"), scalar(max_input, "max_input")
    found = pool_kernels.max_pool(
        integers(input).astype(np.float64), ksize=ksize, strides=strides, padding=padding
    )
    lowest = np.iinfo(integers(input).dtype).min  # of windows without elements
    return as_quantized(np.maximum(found, lowest), as_dtype(T)), low, high


def _avg_pool_kernel(input, min_input, max_input, *, T, ksize, strides, padding):
    low, high = scalar(min_input, "min_input"), scalar(max_input, "max_input")
    found = pool_kernels.avg_pool(
        integers(input).astype(np.float64), ksize=ksize, strides=strides, padding=padding
    )
    return as_quantized(np.nan_to_num(np.trunc(found)), as_dtype(T)), low, high


_POOL = f"T: {_TYPES}; ksize: list(int); strides: list(int); padding: {{'SAME'|'VALID'}}"
_POOL_SAMPLES = [
    Sample(
        r(1, 4, 5, 2, low=0, high=100),
        0.0,
        1.0,
        ksize=[1, 2, 3, 1],
        strides=[1, 2, 2, 1],
        padding=padding,
    )
    for padding in ("SAME", "VALID")
]


@export("nn.quantized_max_pool")
@define(
    "QuantizedMaxPool",
    f"input: T, min_input: float32, max_input: float32 -> output: T, {_RANGE}",
    _POOL,
    infer=_pool_infer,
    kernel=_max_pool_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_POOL_SAMPLES,
)
def quantized_max_pool(input, min_input, max_input, ksize, strides, padding, name=None):
    """Return the largest quantized value of each window, and the range."""


@export("nn.quantized_avg_pool")
@define(
    "QuantizedAvgPool",
    f"input: T, min_input: float32, max_input: float32 -> output: T, {_RANGE}",
    _POOL,
    infer=_pool_infer,
    kernel=_avg_pool_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_POOL_SAMPLES,
)
def quantized_avg_pool(input, min_input, max_input, ksize, strides, padding, name=None):
    """Return the mean of the quantized values of each window, rounded towards zero, and the
    range.
    """


def _conv_kernel(
    input,
    filter,
    min_input,
    max_input,
    min_filter,
    max_filter,
    *,
    out_type,
    strides,
    padding,
    dilations,
):
    ends = (min_input, max_input, min_filter, max_filter)
    names = ("min_input", "max_input", "min_filter", "max_filter")
    low, high, filter_low, filter_high = map(scalar, ends, names)
    if input.ndim != 4 or filter.ndim != 4:
        raise ValueError(
            f"input and filter must be 4-dimensional: {show_shape(input.shape)} and "
            f"{show_shape(filter.shape)}"
        )
    data = Levels.of(as_dtype_of(input), low, high)
    weights = Levels.of(as_dtype_of(filter), filter_low, filter_high)
    found = conv_kernels.conv2d(
        integers(input).astype(np.float64) - _level_of(0.0, data),
        integers(filter).astype(np.float64) - _level_of(0.0, weights),
        strides=strides,
        padding=padding,
        dilations=dilations,
    )
    target = Levels.of(out_type, 0, 0)
    found = np.clip(found, target.lowest, target.highest)
    step = data.step * weights.step
    return (
        as_quantized(found, as_dtype(out_type)),
        step * np.float32(target.lowest),
        step * np.float32(target.highest),
    )


def _conv_infer(c: Any, x: Any, w: Any, *scalars: Any) -> Any:
    for shape in scalars:
        infer.with_rank(shape, 0)
    return [forward_infer()(_with_format(c), x, w), (), ()]


@export("nn.quantized_conv2d")
@define(
    "QuantizedConv2D",
    "input: Tinput, filter: Tfilter, min_input: float32, max_input: float32, "
    f"min_filter: float32, max_filter: float32 -> output: out_type, {_RANGE}",
    f"Tinput: {_TYPES}; Tfilter: {_TYPES}; out_type: {_TYPES} = qint32; strides: list(int); "
    "padding: {'SAME'|'VALID'}; dilations: list(int) = [1, 1, 1, 1]",
    infer=_conv_infer,
    kernel=_conv_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(
            r(1, 4, 5, 2, low=0, high=100),
            r(2, 3, 2, 3, low=0, high=100),
            *(-1.0, 1.0, -2.0, 2.0),
            Tinput="quint8",
            Tfilter=kind,
            strides=[1, 2, 1, 1],
            padding=padding,
        )
        for padding, kind in (("SAME", "quint8"), ("VALID", "qint8"))
    ],
)
def quantized_conv2d(
    input,
    filter,
    min_input,
    max_input,
    min_filter,
    max_filter,
    strides,
    padding,
    out_type=qint32,
    dilations=[1, 1, 1, 1],  # noqa: B006  TensorFlow's default
    name=None,
):
    """Return the convolution of quantized images and filters in a wider type, and the range of
    floats that its integers stand for.
    """
