"""Resizing images: bilinear, nearest, bicubic, by areas."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.image.resize_kernels import (
    area_axis,
    bilinear_axis,
    checked,
    cubic_axis,
    interpolated,
    nearest_positions,
    spread,
)

__all__ = ["resize_area", "resize_bicubic", "resize_bilinear", "resize_nearest_neighbor"]

_PIXELS = "int8|uint8|int16|uint16|int32|int64|float16|float32|float64"
_WAYS = "align_corners: bool = False; half_pixel_centers: bool = False"


def _resize_infer(c: Any, images: Any, size: Any) -> Any:
    images = infer.with_rank(images, 4)
    infer.with_rank(size, 1).merge_with((2,))
    found = c.ints(1)
    height, width = (None, None) if found is None else found
    for value in (height, width):
        if value is not None and value < 0:
            raise ValueError(f"Dimension size, given by scalar input 1, must be >= 0, is {value}")
    return images.sizes[0], height, width, images.sizes[3]


def _samples(size: Any = (4, 5)) -> list[Sample]:
    return [
        Sample(r(1, 3, 4, 2), size),
        Sample(r(2, 5, 3, 1), [2, 2]),
        Sample(r(1, 3, 3, 1), [5, 1], align_corners=True),
        Sample(r(1, 3, 2, 1), [4, 4], half_pixel_centers=True),
    ]


def _grad_samples() -> list[Sample]:
    return [
        Sample(r(1, 4, 5, 2), r(1, 3, 4, 2)),
        Sample(r(2, 2, 2, 1), r(2, 5, 3, 1), align_corners=True),
        Sample(r(1, 4, 4, 1), r(1, 3, 2, 1), half_pixel_centers=True),
    ]


def _options(op: Any) -> dict[str, Any]:
    return {n: op.get_attr(n) for n in ("align_corners", "half_pixel_centers")}


def _check_gradients(grads: np.ndarray, image: np.ndarray) -> None:
    if grads.ndim != 4 or image.ndim != 4:
        raise ValueError(f"input_grad must be 4-dimensional{show_shape(grads.shape)}")
    same = (grads.shape[0], grads.shape[3]) == (image.shape[0], image.shape[3])
    if not same or 0 in image.shape[1:3] or 0 in grads.shape[1:3]:
        raise ValueError(
            f"gradients {show_shape(grads.shape)} don't belong to images {show_shape(image.shape)}"
        )


def _with_axes(axis: Any) -> tuple[Any, Any]:
    """Return the kernels of an interpolation and of its gradient."""

    def forward(images, size, *, align_corners, half_pixel_centers):
        height, width = checked(images, size)
        rows = axis(images.shape[1], height, align_corners, half_pixel_centers)
        columns = axis(images.shape[2], width, align_corners, half_pixel_centers)
        return interpolated(images, rows, columns)

    def backward(grads, original_image, *, align_corners, half_pixel_centers):
        _check_gradients(grads, original_image)
        shape = original_image.shape
        rows = axis(shape[1], grads.shape[1], align_corners, half_pixel_centers)
        columns = axis(shape[2], grads.shape[2], align_corners, half_pixel_centers)
        return spread(grads, shape, rows, columns).astype(original_image.dtype)

    return forward, backward


def _bilinear(images, size, *, align_corners, half_pixel_centers):
    """Interpolate as TensorFlow does: along the rows first, each time from the lower pixel."""
    height, width = checked(images, size)
    rows = bilinear_axis(images.shape[1], height, align_corners, half_pixel_centers)
    columns = bilinear_axis(images.shape[2], width, align_corners, half_pixel_centers)
    images = images.astype(np.float32, copy=False)
    part = columns.weights[:, 1].reshape(1, 1, -1, 1)
    left, right = (np.take(images, p, 2) for p in columns.positions.T)
    wide = left + (right - left) * part
    part = rows.weights[:, 1].reshape(1, -1, 1, 1)
    top, bottom = (np.take(wide, p, 1) for p in rows.positions.T)
    return top + (bottom - top) * part


_, _bilinear_grad = _with_axes(bilinear_axis)
_bicubic, _bicubic_grad = _with_axes(cubic_axis)


def _grad_infer(c: Any, grads: Any, original: Any) -> Any:
    return original


@export("image.resize_bilinear")
@define(
    "ResizeBilinear",
    "images: T, size: int32 -> resized_images: float32",
    "T: {int8|uint8|int16|uint16|int32|int64|bfloat16|float16|float32|float64}; " + _WAYS,
    infer=_resize_infer,
    kernel=_bilinear,
    gradient=lambda b, op, grad: (
        b.resize_bilinear_grad(grad, op.inputs[0], **_options(op)),
        None,
    ),
    samples=_samples(),
)
def resize_bilinear(images, size, align_corners=False, name=None, half_pixel_centers=False):
    """Return images of size [height, width], interpolated between the four nearest pixels.

    align_corners: whether the centers of the corner pixels stay where they are.
    half_pixel_centers: whether pixels lie around their centers, not at their corners.
    """


@define(
    "ResizeBilinearGrad",
    "grads: float32, original_image: T -> output: T",
    "T: {float32|bfloat16|float16|float64}; " + _WAYS,
    infer=_grad_infer,
    kernel=_bilinear_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=_grad_samples(),
)
def resize_bilinear_grad(
    grads, original_image, align_corners=False, half_pixel_centers=False, name=None
):
    """Return the gradients of the images that resize_bilinear resized."""


@export("image.resize_bicubic")
@define(
    "ResizeBicubic",
    "images: T, size: int32 -> resized_images: float32",
    f"T: {{{_PIXELS}}}; {_WAYS}",
    infer=_resize_infer,
    kernel=_bicubic,
    gradient=lambda b, op, grad: (
        b.resize_bicubic_grad(grad, op.inputs[0], **_options(op)),
        None,
    ),
    samples=_samples(),
)
def resize_bicubic(images, size, align_corners=False, name=None, half_pixel_centers=False):
    """Return images of size [height, width], interpolated between sixteen pixels by cubic
    functions. The arguments are those of resize_bilinear.
    """


@define(
    "ResizeBicubicGrad",
    "grads: float32, original_image: T -> output: T",
    "T: {float32|float64}; " + _WAYS,
    infer=_grad_infer,
    kernel=_bicubic_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=_grad_samples(),
)
def resize_bicubic_grad(
    grads, original_image, align_corners=False, half_pixel_centers=False, name=None
):
    """Return the gradients of the images that resize_bicubic resized."""


# -- The nearest pixel


def _nearest(images, size, *, align_corners, half_pixel_centers):
    height, width = checked(images, size)
    rows = nearest_positions(images.shape[1], height, align_corners, half_pixel_centers)
    columns = nearest_positions(images.shape[2], width, align_corners, half_pixel_centers)
    return np.take(np.take(images, rows, 1), columns, 2)


def _nearest_grad(grads, size, *, align_corners, half_pixel_centers):
    height, width = checked(grads, size)
    rows = nearest_positions(height, grads.shape[1], align_corners, half_pixel_centers)
    columns = nearest_positions(width, grads.shape[2], align_corners, half_pixel_centers)
    result = np.zeros((grads.shape[0], height, width, grads.shape[3]), grads.dtype)
    place: Any = (slice(None), rows[:, None], columns)
    np.add.at(result, place, grads)
    return result


def _nearest_gradient(b: Any, op: Any, grad: Any) -> Any:
    image = op.inputs[0]
    height, width = image.shape.with_rank(4).as_list()[1:3]
    size: Any = [height, width]
    if None in size:
        size = b.shape(image)[1:3]
    return b.resize_nearest_neighbor_grad(grad, size, **_options(op)), None


@export("image.resize_nearest_neighbor")
@define(
    "ResizeNearestNeighbor",
    "images: T, size: int32 -> resized_images: T",
    f"T: {{{_PIXELS}}}; {_WAYS}",
    infer=_resize_infer,
    kernel=_nearest,
    gradient=_nearest_gradient,
    samples=_samples(),
)
def resize_nearest_neighbor(images, size, align_corners=False, name=None, half_pixel_centers=False):
    """Return images of size [height, width] that are made of the nearest pixels. The arguments are
    those of resize_bilinear.
    """


@define(
    "ResizeNearestNeighborGrad",
    "grads: T, size: int32 -> output: T",
    "T: {uint8|int8|int32|float16|float32|float64}; " + _WAYS,
    infer=_resize_infer,
    kernel=_nearest_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=_samples([2, 3]),
)
def resize_nearest_neighbor_grad(
    grads, size, align_corners=False, half_pixel_centers=False, name=None
):
    """Return the gradients of the images, of size [height, width], that resize_nearest_neighbor
    resized.
    """


# -- Areas


def _area(images, size, *, align_corners):
    height, width = checked(images, size)
    rows = area_axis(images.shape[1], height, align_corners)
    columns = area_axis(images.shape[2], width, align_corners)
    return interpolated(images, rows, columns)


@export("image.resize_area")
@define(
    "ResizeArea",
    "images: T, size: int32 -> resized_images: float32",
    f"T: {{{_PIXELS}}}; align_corners: bool = False",
    infer=_resize_infer,
    kernel=_area,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(r(1, 5, 7, 2), [2, 3]),
        Sample(r(1, 3, 2, 1), [4, 5]),
        Sample(r(2, 4, 4, 1), [3, 2], align_corners=True),
    ],
)
def resize_area(images, size, align_corners=False, name=None):
    """Return images of size [height, width] whose pixels are means of the pixels that they
    cover.
    """
