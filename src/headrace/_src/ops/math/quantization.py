"""Quantization. In: floats and a range, or quantized values. Out: the reverse, or floats that were
rounded to the levels of few bits.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.math.quantization_kernels import (
    Levels,
    as_quantized,
    dequantized_min_first,
    integers,
    nudged,
    quantized_min_first,
    rounded,
    scalar,
    storage,
)

__all__ = [
    "dequantize",
    "fake_quant_with_min_max_args",
    "fake_quant_with_min_max_args_gradient",
    "fake_quant_with_min_max_vars",
    "fake_quant_with_min_max_vars_gradient",
    "fake_quant_with_min_max_vars_per_channel",
    "fake_quant_with_min_max_vars_per_channel_gradient",
    "quantize",
    "quantize_and_dequantize",
    "quantize_v2",
]

_QUANTIZED = "{qint8|quint8|qint32|qint16|quint16}"
_MODES = "{'MIN_COMBINED'|'MIN_FIRST'|'SCALED'}"
_F32 = np.float32
_MOST = np.finfo(np.float32).max

# -- Quantized types


def _scaled(lowest: int, highest: int, low: Any, high: Any, kind: Any) -> Any:
    """Return the largest factor that keeps a range within integers, zero staying zero."""
    most = np.finfo(kind).max
    from_low = kind(lowest / low) if lowest * low > 0 else most
    from_high = kind(highest / high) if highest * high > 0 else most
    return from_low, from_high


def _quantize_kernel(input, min_range, max_range, *, T, mode, round_mode):
    low, high = scalar(min_range, "min_range"), scalar(max_range, "max_range")
    if mode != "SCALED" and round_mode == "HALF_TO_EVEN":
        raise ValueError(
            f"Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{mode}'."
        )
    if not low <= high:
        raise ValueError("max_range must be larger than min_range.")
    dtype = as_dtype(T)
    # Zero is always in the range, which is never too narrow.
    epsilon = max(_F32(1), max(abs(low), abs(high))) / _F32(100)
    low = min(_F32(0), low)
    high = max(_F32(0), max(high, low + epsilon))
    limits = np.iinfo(storage(dtype))
    lowest, highest = int(limits.min), int(limits.max)
    with np.errstate(invalid="ignore"):
        if mode == "MIN_COMBINED":
            scale = _F32(np.float64(highest - lowest) / np.float64(high - low))
            found = (np.clip(input, low, high) - low) * scale
            if lowest < 0:
                found = rounded(found - _half_range(lowest, highest))
            else:
                found = np.floor(found + _F32(0.5))
        elif mode == "MIN_FIRST":
            found = quantized_min_first(input, Levels(lowest, highest, low, high))
        else:
            scale = min(_scaled(lowest, highest, low, high, _F32))
            low, high = _F32(lowest / scale), _F32(highest / scale)
            turn = np.rint if round_mode == "HALF_TO_EVEN" else rounded
            found = turn(np.clip(input, low, high) * scale)
        found = np.clip(np.asarray(found, np.float64), lowest, highest)
        return as_quantized(found.astype(storage(dtype)), dtype), low, high


def _half_range(lowest: int, highest: int) -> np.float32:
    return _F32((highest - lowest + 1) / 2) if lowest < 0 else _F32(0)


def _scalars_infer(first: int, count: int, outputs: int) -> Any:
    """The shape rule of ops whose inputs from `first` on are `count` scalars, and whose last
    `outputs` outputs are scalars too.
    """

    def rule(c: Any, *shapes: Any) -> Any:
        for shape in shapes[first : first + count]:
            infer.with_rank(shape, 0)
        return [shapes[0], *[()] * outputs] if outputs else shapes[0]

    return rule


@define(
    "QuantizeV2",
    "input: float32, min_range: float32, max_range: float32 -> "
    "output: T, output_min: float32, output_max: float32",
    f"T: {_QUANTIZED}; mode: {_MODES} = 'MIN_COMBINED'; "
    "round_mode: {'HALF_AWAY_FROM_ZERO'|'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'",
    infer=_scalars_infer(1, 2, 2),
    kernel=_quantize_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(r(2, 3), -1.0, 2.0),
        Sample(r(3), -1.0, 2.0, mode="MIN_FIRST"),
        Sample(r(), 0.0, 1.5, mode="SCALED"),
        Sample(r(0, 2), -2.0, 2.0, mode="SCALED", round_mode="HALF_TO_EVEN"),
    ],
)
def quantize_op(
    input,
    min_range,
    max_range,
    T,
    mode="MIN_COMBINED",
    round_mode="HALF_AWAY_FROM_ZERO",
    name=None,
):
    """Return floats in a quantized type, and the range that its integers stand for."""


_Quantized = namedtuple("QuantizeV2", ["output", "output_min", "output_max"])


@composed
@export("quantize", "quantization.quantize")
def quantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    name: str | None = None,
) -> _Quantized:
    """Return (output, output_min, output_max): floats from min_range to max_range as integers of
    the quantized type T, and the range that these stand for.

    mode: "MIN_COMBINED": the range becomes that of the integers. "MIN_FIRST": so that zero is
    exact. "SCALED": zero stays zero, and numbers are multiplied by one factor. round_mode: where
    halves go, "HALF_AWAY_FROM_ZERO" or, for "SCALED", "HALF_TO_EVEN".
    """
    return _Quantized(*quantize_op(input, min_range, max_range, T, mode, round_mode, name=name))


@composed
@export("quantize_v2")
def quantize_v2(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
) -> _Quantized:
    """`tf.quantize` with its arguments in the older order."""
    return quantize(input, min_range, max_range, T, mode, round_mode, name)


def _dequantize_kernel(input, min_range, max_range, *, T, mode):
    low, high = scalar(min_range, "min_range"), scalar(max_range, "max_range")
    levels = Levels.of(T, low, high)
    values = integers(input)
    if mode == "MIN_COMBINED":
        shifted = values.astype(np.float32) + _half_range(levels.lowest, levels.highest)
        return shifted * levels.step + low
    if mode == "MIN_FIRST":
        return dequantized_min_first(values, levels)
    scale = high / _F32(levels.highest)
    if levels.lowest:
        scale = max(low / _F32(levels.lowest), scale)
    return values.astype(np.float32) * scale


@export("dequantize", "quantization.dequantize")
@define(
    "Dequantize",
    "input: T, min_range: float32, max_range: float32 -> output: float32",
    f"T: {_QUANTIZED}; mode: {_MODES} = 'MIN_COMBINED'",
    infer=_scalars_infer(1, 2, 0),
    kernel=_dequantize_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(r(2, 3, low=0, high=100), -1.0, 2.0),
        Sample(r(2, low=0, high=100), -1.0, 2.0, mode="MIN_FIRST"),
        Sample(r(low=0, high=100), -1.0, 2.0, mode="SCALED"),
    ],
)
def dequantize(input, min_range, max_range, mode="MIN_COMBINED", name=None):
    """Return quantized values as floats: the reverse of `tf.quantize` with the same mode, and the
    range that it returned.
    """


# -- Floats that are rounded


def _straight(count: int) -> Any:
    """The gradient of an op that rounds: as if it didn't."""
    return lambda b, op, grad: (grad, *[None] * (count - 1)) if count > 1 else grad


def _round_trip(x, low, high, bits, signed, range_given, round_mode, narrow):
    if not 1 <= bits <= (62 if signed else 63):
        raise ValueError(f"num_bits is out of range: {bits} with signed_input {int(signed)}")
    kind = x.dtype.type
    if range_given:
        low, high = (np.asarray(v).reshape(()).astype(x.dtype)[()] for v in (low, high))
        if low > high:
            raise ValueError(f"Invalid range: input_min {low} > input_max {high}")
    else:
        low, high = (x.min(), x.max()) if x.size else (kind(0), kind(0))
    lowest = -(1 << (bits - 1)) + narrow if signed else 0
    highest = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    with np.errstate(all="ignore"):
        most = _largest(x.dtype)
        from_low = kind(lowest) / low if lowest * float(low) > 0 else most
        from_high = kind(highest) / high if highest * float(high) > 0 else most
        if from_low < from_high:
            scale, inverse = from_low, low / kind(lowest)
            high = kind(highest) * inverse
        else:
            scale, inverse = from_high, high / kind(highest)
            low = kind(lowest) * inverse
        if range_given:
            x = np.maximum(np.minimum(x, high), low)
        turned = x * scale
        if round_mode == "HALF_UP":
            turned = np.floor(turned + kind(0.5))
        else:
            turned = np.rint(turned)
        return (turned * inverse).astype(x.dtype)


def _largest(dtype: np.dtype) -> Any:
    import ml_dtypes

    return dtype.type(ml_dtypes.finfo(dtype).max)


def _round_trip_v2_kernel(
    input, input_min, input_max, *, signed_input, num_bits, range_given, round_mode, narrow_range
):
    return _round_trip(
        input, input_min, input_max, num_bits, signed_input, range_given, round_mode, narrow_range
    )


def _round_trip_v3_kernel(
    input, input_min, input_max, num_bits, *, signed_input, range_given, narrow_range
):
    bits = int(np.asarray(num_bits).reshape(()))
    return _round_trip(
        input, input_min, input_max, bits, signed_input, range_given, "HALF_TO_EVEN", narrow_range
    )


_FLOATS = "{bfloat16|float16|float32|float64}"


@define(
    "QuantizeAndDequantizeV2",
    "input: T, input_min: T, input_max: T -> output: T",
    "signed_input: bool = True; num_bits: int = 8; range_given: bool = False; "
    f"T: {_FLOATS}; round_mode: {{'HALF_TO_EVEN'|'HALF_UP'}} = 'HALF_TO_EVEN'; "
    "narrow_range: bool = False",
    infer=_scalars_infer(1, 2, 0),
    kernel=_round_trip_v2_kernel,
    gradient=_straight(3),
    samples=[
        Sample(r(2, 3), 0.0, 0.0),
        Sample(r(3), -1.0, 0.5, range_given=True, num_bits=4, round_mode="HALF_UP"),
        Sample(r(), -1.0, 1.0, range_given=True, narrow_range=True),
        Sample(r(2), 0.0, 1.0, range_given=True, signed_input=False),
    ],
)
def quantize_and_dequantize_v2(
    input,
    input_min,
    input_max,
    signed_input=True,
    num_bits=8,
    range_given=False,
    round_mode="HALF_TO_EVEN",
    narrow_range=False,
    name=None,
):
    """Return floats, rounded to the levels of num_bits."""


@composed
@export("quantization.quantize_and_dequantize")
def quantize_and_dequantize(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
) -> Tensor:
    """Return floats, rounded to the levels that a quantized type of num_bits would have.

    range_given: whether the levels are from input_min to input_max, and not of the input's own
    range. signed_input: whether there are negative levels. narrow_range: leave out the lowest one,
    so that the range is symmetric. round_mode: "HALF_TO_EVEN" or "HALF_UP". Gradients pass as if
    nothing was rounded.
    """
    return quantize_and_dequantize_v2(
        input,
        input_min,
        input_max,
        signed_input,
        num_bits,
        range_given,
        round_mode,
        narrow_range,
        name=name,
    )


@define(
    "QuantizeAndDequantizeV3",
    "input: T, input_min: T, input_max: T, num_bits: int32 -> output: T",
    f"signed_input: bool = True; range_given: bool = True; T: {_FLOATS}; "
    "narrow_range: bool = False",
    infer=_scalars_infer(1, 3, 0),
    kernel=_round_trip_v3_kernel,
    gradient=_straight(4),
    samples=[
        Sample(r(2, 3), -1.0, 1.0, 8),
        Sample(r(3), 0.0, 0.0, 4, range_given=False),
        Sample(r(), -1.0, 1.0, 8, narrow_range=True),
    ],
)
def quantize_and_dequantize_v3(
    input,
    input_min,
    input_max,
    num_bits,
    signed_input=True,
    range_given=True,
    narrow_range=False,
    name=None,
):
    """Return floats, rounded to the levels of num_bits, which is a tensor."""


# -- Quantization during training: the levels of a range that is given or learned


def _check_bits(num_bits: int) -> None:
    if not 2 <= num_bits <= 16:
        raise ValueError(f"num_bits must be between 2 and 16, inclusive, was: {num_bits}")


def _check_range(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(f"min has to be smaller than max, was: {low:g} >= {high:g}")


def _faked(x, low, high, bits, narrow, divides=True):
    """Return x, rounded to levels. divides: TensorFlow divides by the size of a level, or
    multiplies by its inverse, which is the same but for halves.
    """
    with np.errstate(all="ignore"):
        low, high, scale = nudged(low, high, bits, narrow)
        inside = np.maximum(np.minimum(x, high), low)
        level = (inside - low) / scale if divides else (inside - low) * (_F32(1) / scale)
        return np.floor(level + _F32(0.5)) * scale + low


def _args_kernel(inputs, *, min, max, num_bits, narrow_range):
    _check_bits(num_bits)
    _check_range(min, max)
    return _faked(inputs, _F32(min), _F32(max), num_bits, narrow_range, divides=False)


def _args_gradient_kernel(gradients, inputs, *, min, max, num_bits, narrow_range):
    _check_bits(num_bits)
    _check_range(min, max)
    if gradients.shape != inputs.shape:
        raise ValueError("gradient and input must be the same size")
    low, high, _ = nudged(_F32(min), _F32(max), num_bits, narrow_range)
    return np.where((inputs >= low) & (inputs <= high), gradients, _F32(0) * gradients)


def _vars_kernel(inputs, min, max, *, num_bits, narrow_range):
    _check_bits(num_bits)
    low, high = scalar(min, "min"), scalar(max, "max")
    if low == 0 and high == 0:
        return np.zeros_like(inputs)
    return _faked(inputs, low, high, num_bits, narrow_range)


def _channels(inputs, min, max):
    """Return the limits of each channel, which is an element of the last axis."""
    if np.ndim(inputs) == 0:
        raise ValueError("inputs must have at least one dimension")
    count = inputs.shape[-1]
    for limit, name in ((min, "min"), (max, "max")):
        if np.shape(limit) != (count,):
            raise ValueError(
                f"{name} has incorrect size, expected {count} was {show_shape(np.shape(limit))}"
            )
    return min, max


def _channels_kernel(inputs, min, max, *, num_bits, narrow_range):
    _check_bits(num_bits)
    low, high = _channels(inputs, min, max)
    empty = (low == 0) & (high == 0)
    return np.where(empty, _F32(0), _faked(inputs, low, high, num_bits, narrow_range))


def _range_gradients(gradients, inputs, low, high, bits, narrow, axes):
    """Return the gradients of inputs, and of both ends of the range."""
    if gradients.shape != inputs.shape:
        raise ValueError("gradient and input must be the same size")
    empty = (low == 0) & (high == 0)
    with np.errstate(all="ignore"):
        low, high, _ = nudged(low, high, bits, narrow)
    below, above = (inputs < low) & ~empty, (inputs > high) & ~empty
    inside = np.where(empty, True, (inputs >= low) & (inputs <= high))
    zero = _F32(0)
    return (
        np.where(inside, gradients, zero),
        np.where(below, gradients, zero).sum(axis=axes, dtype=np.float32),
        np.where(above, gradients, zero).sum(axis=axes, dtype=np.float32),
    )


def _vars_gradient_kernel(gradients, inputs, min, max, *, num_bits, narrow_range):
    _check_bits(num_bits)
    low, high = scalar(min, "min"), scalar(max, "max")
    return _range_gradients(gradients, inputs, low, high, num_bits, narrow_range, None)


def _channels_gradient_kernel(gradients, inputs, min, max, *, num_bits, narrow_range):
    _check_bits(num_bits)
    low, high = _channels(inputs, min, max)
    axes = tuple(range(inputs.ndim - 1))
    return _range_gradients(gradients, inputs, low, high, num_bits, narrow_range, axes)


def _channels_infer(c: Any, inputs: Any, low: Any, high: Any) -> Any:
    inputs = infer.with_rank_at_least(inputs, 1)
    channels = infer.with_rank(low, 1).merge_with(infer.with_rank(high, 1))
    if inputs.sizes is None:
        return inputs
    return (*inputs.sizes[:-1], channels.merge_with((inputs.sizes[-1],)).as_list()[0])


def _channels_gradient_infer(c: Any, gradients: Any, inputs: Any, low: Any, high: Any) -> Any:
    found = _channels_infer(c, gradients.merge_with(inputs), low, high)
    channels = infer.with_rank(low, 1).merge_with(infer.with_rank(high, 1))
    return [found, channels, channels]


def _gradient_infer(c: Any, gradients: Any, inputs: Any, *limits: Any) -> Any:
    merged = gradients.merge_with(inputs)
    for shape in limits:
        infer.with_rank(shape, 0)
    return [merged, (), ()] if limits else merged


_ARGS = "min: float = -6.0; max: float = 6.0; num_bits: int = 8; narrow_range: bool = False"
_VARS = "num_bits: int = 8; narrow_range: bool = False"


def _options(op: Any, *names: str) -> dict[str, Any]:
    return {name: op.get_attr(name) for name in names}


def _args_gradient(b: Any, op: Any, grad: Any) -> Any:
    options = _options(op, "min", "max", "num_bits", "narrow_range")
    return b.fake_quant_with_min_max_args_gradient(grad, op.inputs[0], **options)


def _vars_gradient(b: Any, op: Any, grad: Any) -> Any:
    options = _options(op, "num_bits", "narrow_range")
    return b.fake_quant_with_min_max_vars_gradient(grad, *op.inputs, **options)


def _channels_gradient(b: Any, op: Any, grad: Any) -> Any:
    options = _options(op, "num_bits", "narrow_range")
    return b.fake_quant_with_min_max_vars_per_channel_gradient(grad, *op.inputs, **options)


@export("fake_quant_with_min_max_args", "quantization.fake_quant_with_min_max_args")
@define(
    "FakeQuantWithMinMaxArgs",
    "inputs: float32 -> outputs: float32",
    _ARGS,
    infer=infer.same_as(0),
    kernel=_args_kernel,
    gradient=_args_gradient,
    samples=[
        Sample(r(2, 3)),
        Sample(r(3), min=-1.0, max=0.5, num_bits=3),
        Sample(r(), narrow_range=True),
        Sample(r(0)),
    ],
)
def fake_quant_with_min_max_args(inputs, min=-6, max=6, num_bits=8, narrow_range=False, name=None):
    """Return floats, clipped to [min, max] and rounded to the levels of num_bits. The range moves a
    little so that zero is a level. Gradients pass inside the range.
    """


@export(
    "fake_quant_with_min_max_args_gradient", "quantization.fake_quant_with_min_max_args_gradient"
)
@define(
    "FakeQuantWithMinMaxArgsGradient",
    "gradients: float32, inputs: float32 -> backprops: float32",
    _ARGS,
    infer=_gradient_infer,
    kernel=_args_gradient_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(2, 3), r(2, 3)), Sample(r(3), r(3), min=-1.0, max=0.5)],
)
def fake_quant_with_min_max_args_gradient(
    gradients, inputs, min=-6, max=6, num_bits=8, narrow_range=False, name=None
):
    """Return the gradients of the inputs of fake_quant_with_min_max_args."""


@export("fake_quant_with_min_max_vars", "quantization.fake_quant_with_min_max_vars")
@define(
    "FakeQuantWithMinMaxVars",
    "inputs: float32, min: float32, max: float32 -> outputs: float32",
    _VARS,
    infer=_scalars_infer(1, 2, 0),
    kernel=_vars_kernel,
    gradient=_vars_gradient,
    samples=[
        Sample(r(2, 3), -1.0, 1.5),
        Sample(r(3), 0.0, 0.0),
        Sample(r(), -1.0, 1.0, num_bits=4, narrow_range=True),
    ],
)
def fake_quant_with_min_max_vars(inputs, min, max, num_bits=8, narrow_range=False, name=None):
    """Return floats as fake_quant_with_min_max_args does; the range is made of tensors, which get
    the gradients of what lies outside of it.
    """


@export(
    "fake_quant_with_min_max_vars_gradient", "quantization.fake_quant_with_min_max_vars_gradient"
)
@define(
    "FakeQuantWithMinMaxVarsGradient",
    "gradients: float32, inputs: float32, min: float32, max: float32 -> "
    "backprops_wrt_input: float32, backprop_wrt_min: float32, backprop_wrt_max: float32",
    _VARS,
    infer=_gradient_infer,
    kernel=_vars_gradient_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(2, 3), r(2, 3), -1.0, 1.5), Sample(r(3), r(3), 0.0, 0.0)],
)
def fake_quant_with_min_max_vars_gradient(
    gradients, inputs, min, max, num_bits=8, narrow_range=False, name=None
):
    """Return the gradients of the inputs, min and max of fake_quant_with_min_max_vars."""


@export(
    "fake_quant_with_min_max_vars_per_channel",
    "quantization.fake_quant_with_min_max_vars_per_channel",
)
@define(
    "FakeQuantWithMinMaxVarsPerChannel",
    "inputs: float32, min: float32, max: float32 -> outputs: float32",
    _VARS,
    infer=_channels_infer,
    kernel=_channels_kernel,
    gradient=_channels_gradient,
    samples=[
        Sample(r(2, 3), [-1.0, 0.0, -0.5], [1.5, 0.0, 0.25]),
        Sample(r(2), [-1.0, -2.0], [1.0, 1.0], num_bits=4, narrow_range=True),
    ],
)
def fake_quant_with_min_max_vars_per_channel(
    inputs, min, max, num_bits=8, narrow_range=False, name=None
):
    """Return floats as fake_quant_with_min_max_vars does, with a range for each element of the last
    axis.
    """


@export(
    "fake_quant_with_min_max_vars_per_channel_gradient",
    "quantization.fake_quant_with_min_max_vars_per_channel_gradient",
)
@define(
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    "gradients: float32, inputs: float32, min: float32, max: float32 -> "
    "backprops_wrt_input: float32, backprop_wrt_min: float32, backprop_wrt_max: float32",
    _VARS,
    infer=_channels_gradient_infer,
    kernel=_channels_gradient_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(2, 3), r(2, 3), [-1.0, 0.0, -0.5], [1.5, 0.0, 0.25])],
)
def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients, inputs, min, max, num_bits=8, narrow_range=False, name=None
):
    """Return the gradients of the inputs, min and max of
    fake_quant_with_min_max_vars_per_channel.
    """
