"""Colors: between RGB, HSV and gray; contrast, saturation, hue and brightness."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.dtypes import float16, float32
from headrace._src.core.export import export
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.assertions import assert_equal
from headrace._src.ops.control.grouping import with_dependencies
from headrace._src.ops.image.any_format import convert_image_dtype
from headrace._src.ops.random.random_functions import random_uniform

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "grayscale_to_rgb",
    "hsv_to_rgb",
    "random_brightness",
    "random_contrast",
    "random_hue",
    "random_saturation",
    "rgb_to_grayscale",
    "rgb_to_hsv",
]

# -- RGB and HSV


def _check_colors(images: np.ndarray) -> None:
    if np.ndim(images) < 1 or images.shape[-1] != 3:
        raise ValueError(f"input must have 3 channels but input has shape {np.shape(images)}")


def _colors_infer(c: Any, images: Any, *scalars: Any) -> Any:
    images = infer.with_rank_at_least(images, 3 if scalars else 1)
    for shape in scalars:
        infer.with_rank(shape, 0)
    if images.sizes is None:
        return None
    if images.sizes[-1] not in (3, None):
        raise ValueError(f"Dimension must be 3 but is {images.sizes[-1]}")
    return (*images.sizes[:-1], 3)


def _to_hsv(images):
    _check_colors(images)
    red, green, blue = np.moveaxis(images, -1, 0)
    value, least = images.max(axis=-1), images.min(axis=-1)
    span = value - least
    kind = images.dtype.type
    with np.errstate(all="ignore"):
        saturation = np.where(value > 0, span / value, kind(0))
        unit = kind(1) / (kind(6) * span)
        third = kind(2 / 6)
        hue = np.where(
            red == value,
            unit * (green - blue),
            np.where(
                green == value, unit * (blue - red) + third, unit * (red - green) + kind(4 / 6)
            ),
        )
        hue = np.where(span > 0, hue, kind(0))
    hue = np.where(hue < 0, hue + kind(1), hue)
    return np.stack([hue, saturation, value], -1).astype(images.dtype)


def _to_rgb(images):
    _check_colors(images)
    hue, saturation, value = np.moveaxis(images, -1, 0)
    kind = images.dtype.type
    sixth = hue * kind(6)
    colors = []
    for center, sign in ((3, 1), (2, -1), (4, -1)):
        distance = np.abs(sixth - kind(center))
        part = distance - kind(1) if sign > 0 else kind(2) - distance
        part = np.clip(part, kind(0), kind(1))
        colors.append(((kind(1) - saturation) + saturation * part) * value)
    return np.stack(colors, -1).astype(images.dtype)


def _to_hsv_gradient(b: Any, op: Any, grad: Any) -> Any:
    """With v and m the largest and smallest channel: s = 1 - m / v, and h is a constant plus the
    difference of the two other channels over 6 (v - m).
    """
    colors = op.inputs[0]
    channels = b.unstack(colors, 3, axis=-1)
    hue_grad, saturation_grad, value_grad = b.unstack(grad, 3, axis=-1)
    value, least = b.reduce_max(colors, axis=-1), b.reduce_min(colors, axis=-1)
    span = value - least
    zero = b.zeros_like(value)
    red_is, green_is = (b.equal(channels[i], value) for i in (0, 1))
    tops = [red_is, b.logical_and(b.logical_not(red_is), green_is)]
    tops.append(b.logical_not(b.logical_or(red_is, green_is)))
    red_low, green_low = (b.equal(channels[i], least) for i in (0, 1))
    lows = [red_low, b.logical_and(b.logical_not(red_low), green_low)]
    lows.append(b.logical_not(b.logical_or(red_low, green_low)))
    colored = b.greater(span, zero)
    safe_span = b.where(colored, span, b.ones_like(span))
    lit = b.greater(value, zero)
    safe_value = b.where(lit, value, b.ones_like(value))
    # The numerator of the hue: the next channel minus the one after it.
    numerator = b.add_n(
        [b.where(tops[i], channels[(i + 1) % 3] - channels[(i + 2) % 3], zero) for i in range(3)]
    )
    results = []
    for i in range(3):
        top, low = b.cast(tops[i], colors.dtype), b.cast(lows[i], colors.dtype)
        after = b.cast(tops[(i + 2) % 3], colors.dtype) - b.cast(tops[(i + 1) % 3], colors.dtype)
        hue = (after - numerator / safe_span * (top - low)) / (6.0 * safe_span)
        saturation = (least / safe_value * top - low) / safe_value
        results.append(
            value_grad * top
            + saturation_grad * b.where(lit, saturation, zero)
            + hue_grad * b.where(colored, hue, zero)
        )
    return b.stack(results, axis=-1)


_FLOATS = "{float16|bfloat16|float32|float64}"
_COLORS = [Sample(r(2, 3, low=0.1, high=0.9)), Sample(r(1, 2, 2, 3, low=0.1, high=0.9))]


@export("image.rgb_to_hsv")
@define(
    "RGBToHSV",
    "images: T -> output: T",
    f"T: {_FLOATS} = float32",
    infer=_colors_infer,
    kernel=_to_hsv,
    gradient=_to_hsv_gradient,
    samples=_COLORS,
)
def rgb_to_hsv(images, name=None):
    """Return colors as hue, saturation and value, all from 0 to 1; the last axis has the three."""


@export("image.hsv_to_rgb")
@define(
    "HSVToRGB",
    "images: T -> output: T",
    f"T: {_FLOATS} = float32",
    infer=_colors_infer,
    kernel=_to_rgb,
    gradient=NOT_DIFFERENTIABLE,
    samples=_COLORS,
)
def hsv_to_rgb(images, name=None):
    """Return colors of hue, saturation and value as red, green and blue."""


# -- Adjustments of floats


def _check_image(images: np.ndarray) -> None:
    if images.ndim < 3:
        raise ValueError(f"input must be at least 3-D, got shape {images.shape}")


def _factor(value: Any, what: str) -> float:
    if np.ndim(value):
        raise ValueError(f"{what} must be scalar: {np.shape(value)}")
    return float(value)


def _contrast_kernel(images, contrast_factor):
    _check_image(images)
    factor = np.float32(_factor(contrast_factor, "contrast_factor"))
    wide = images.astype(np.float32)
    mean = wide.mean(axis=(-3, -2), keepdims=True, dtype=np.float32) if images.size else wide
    return ((wide - mean) * factor + mean).astype(images.dtype)


def _saturation_kernel(images, scale):
    _check_image(images)
    factor = np.float32(_factor(scale, "scale"))
    hsv = _to_hsv(images.astype(np.float32))
    hsv[..., 1] = np.clip(hsv[..., 1] * factor, 0, 1)
    return _to_rgb(hsv).astype(images.dtype)


def _hue_kernel(images, delta):
    _check_image(images)
    turn = np.float32(_factor(delta, "delta"))
    hsv = _to_hsv(images.astype(np.float32))
    with np.errstate(invalid="ignore"):
        hsv[..., 0] = np.mod(hsv[..., 0] + turn, np.float32(1))
    return _to_rgb(hsv).astype(images.dtype)


def _contrast_infer(c: Any, images: Any, factor: Any) -> Any:
    infer.with_rank(factor, 0)
    return infer.with_rank_at_least(images, 3)


_ADJUSTED = [
    Sample(r(2, 3, 3, low=0.1, high=0.9), 0.5),
    Sample(r(2, 1, 2, 3, low=0.1, high=0.9), 1.5),
]


@define(
    "AdjustContrastv2",
    "images: T, contrast_factor: float32 -> output: T",
    "T: {float16|float32} = float32",
    infer=_contrast_infer,
    kernel=_contrast_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_ADJUSTED,
)
def adjust_contrast_v2(images, contrast_factor, name=None):
    """Return images whose channels are further from their mean, by a factor."""


@define(
    "AdjustSaturation",
    "images: T, scale: float32 -> output: T",
    "T: {float16|float32} = float32",
    infer=_colors_infer,
    kernel=_saturation_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_ADJUSTED,
)
def adjust_saturation_op(images, scale, name=None):
    """Return images with a multiple of their saturation."""


@define(
    "AdjustHue",
    "images: T, delta: float32 -> output: T",
    "T: {float16|float32} = float32",
    infer=_colors_infer,
    kernel=_hue_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_ADJUSTED,
)
def adjust_hue_op(images, delta, name=None):
    """Return images of another hue; 1 is the full circle."""


def _as_floats(image: Tensor) -> Tensor:
    if image.dtype in (float16, float32):
        return image
    return convert_image_dtype(image, float32)


@composed
@export("image.adjust_brightness")
def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Return an image, brighter by delta, which counts from 0 (black) to 1 (white)."""
    with name_scope(None, "adjust_brightness", [image, delta]) as name:
        image = convert_to_tensor(image, name="image")
        floats = _as_floats(image)
        adjusted = b.add(floats, b.cast(delta, floats.dtype), name=name)
        return convert_image_dtype(adjusted, image.dtype, saturate=True)


@composed
@export("image.adjust_contrast")
def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """Return images whose channels are further from their mean, by a factor."""
    with name_scope(None, "adjust_contrast", [images, contrast_factor]) as name:
        images = convert_to_tensor(images, name="images")
        adjusted = adjust_contrast_v2(_as_floats(images), contrast_factor, name=name)
        return convert_image_dtype(adjusted, images.dtype, saturate=True)


@composed
@export("image.adjust_saturation")
def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """Return RGB images with a multiple of their saturation."""
    with name_scope(name, "adjust_saturation", [image]):
        image = convert_to_tensor(image, name="image")
        adjusted = adjust_saturation_op(_as_floats(image), saturation_factor)
        return convert_image_dtype(adjusted, image.dtype)


@composed
@export("image.adjust_hue")
def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """Return RGB images of another hue: delta is from -1 to 1, of which each is the full circle."""
    with name_scope(name, "adjust_hue", [image]):
        image = convert_to_tensor(image, name="image")
        adjusted = adjust_hue_op(_as_floats(image), delta)
        return convert_image_dtype(adjusted, image.dtype)


@export("image.random_brightness")
def random_brightness(image: Any, max_delta: float, seed: Any = None) -> Tensor:
    """Return an image, brighter by a random number from -max_delta to max_delta."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


@export("image.random_contrast")
def random_contrast(image: Any, lower: float, upper: float, seed: Any = None) -> Tensor:
    """Return an image whose contrast is multiplied by a random number from lower to upper."""
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust_contrast(image, random_uniform([], lower, upper, seed=seed))


@export("image.random_saturation")
def random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Tensor:
    """Return an image whose saturation is multiplied by a random number from lower to upper."""
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust_saturation(image, random_uniform([], lower, upper, seed=seed))


@export("image.random_hue")
def random_hue(image: Any, max_delta: float, seed: Any = None) -> Tensor:
    """Return an image whose hue changes by a random number from -max_delta to max_delta."""
    if max_delta > 0.5:
        raise ValueError("max_delta must be <= 0.5.")
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


# -- Gray


@composed
@export("image.rgb_to_grayscale")
def rgb_to_grayscale(images: Any, name: str | None = None) -> Tensor:
    """Return the luminance of RGB images; the last axis has one element."""
    with name_scope(name, "rgb_to_grayscale", [images]) as name:
        images = convert_to_tensor(images, name="images")
        floats = convert_image_dtype(images, float32)
        gray = b.tensordot(floats, [0.2989, 0.5870, 0.1140], [-1, -1])
        return convert_image_dtype(b.expand_dims(gray, -1), images.dtype, name=name)


def _check_gray(images: Tensor) -> list[Any]:
    """Check that there is one channel: at once, or by the operations that are returned."""
    channels = images.shape.with_rank_at_least(1).as_list()[-1] if images.shape.ndims else None
    if channels not in (1, None):
        raise ValueError(f"Last dimension of a grayscale image should be size 1: {images.shape}")
    if channels == 1:
        return []
    message = "Last dimension of a grayscale image should be size 1."
    return [assert_equal(b.shape(images)[-1], 1, message=message)]


@composed
@export("image.grayscale_to_rgb")
def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """Return gray images, whose last axis has one element, with three equal channels."""
    with name_scope(name, "grayscale_to_rgb", [images]) as name:
        images = convert_to_tensor(images, name="images")
        images = with_dependencies(_check_gray(images), images)
        before = b.expand_dims(b.rank(images) - 1, 0)
        multiples = b.concat([b.ones(before, "int32"), b.expand_dims(3, 0)], 0)
        result = b.tile(images, multiples, name=name)
        if images.shape.ndims is not None:
            result.set_shape(images.shape[:-1].concatenate([3]))
        return result
