"""Images of other sizes. In: [batch, height, width, channels] and a size. Out: images of that size.

Each axis has a table: which input pixels an output pixel is made of, and their weights. Coordinates
and weights are computed in float32, as TensorFlow does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import show_shape
from headrace._src.devices.room import check_room

__all__ = [
    "Axis",
    "area_axis",
    "bilinear_axis",
    "checked",
    "cubic_axis",
    "interpolated",
    "nearest_positions",
    "spread",
]

_F32 = np.float32
_TABLE = 1024  # steps of the cubic weights


@dataclass(frozen=True)
class Axis:
    """How the pixels along an axis are made: positions and weights are [size, taps]."""

    positions: np.ndarray
    weights: np.ndarray


def checked(images: np.ndarray, size: Any) -> tuple[int, int]:
    """Return (height, width) from the input `size`, of an image that can be resized."""
    if np.ndim(images) != 4:
        raise ValueError(f"input must be 4-dimensional{show_shape(np.shape(images))}")
    if np.shape(size) != (2,):
        raise ValueError(
            f"shape_t must be 1-dimensional with 2 elements{show_shape(np.shape(size))}"
        )
    height, width = np.asarray(size).tolist()
    if height <= 0 or width <= 0:
        raise ValueError("output dimensions must be positive")
    if 0 in images.shape[1:]:
        raise ValueError("input image must be of non-zero size")
    check_room((images.shape[0], height, width, images.shape[3]), np.float32, "size")
    return height, width


def scale_of(count: int, size: int, align: bool) -> np.float32:
    if align and size > 1:
        return _F32(count - 1) / _F32(size - 1)
    return _F32(count) / _F32(size)


def _coordinates(count: int, size: int, align: bool, half: bool) -> np.ndarray:
    """Return where output pixels lie among `count` input pixels."""
    if align and half:
        raise ValueError("If half_pixel_centers is True, align_corners must be False.")
    places = np.arange(size, dtype=_F32)
    scale = scale_of(count, size, align)
    return (places + _F32(0.5)) * scale - _F32(0.5) if half else places * scale


def bilinear_axis(count: int, size: int, align: bool, half: bool) -> Axis:
    at = _coordinates(count, size, align, half)
    below = np.floor(at)
    lower = np.maximum(below, 0).astype(np.int64)
    upper = np.minimum(np.ceil(at), count - 1).astype(np.int64)
    upper = np.maximum(upper, 0)
    part = at - below
    return Axis(np.stack([lower, upper], 1), np.stack([_F32(1) - part, part], 1))


def _cubic_weights(offset: np.ndarray, a: float) -> np.ndarray:
    """Return the weights of the four pixels around, from the part of a step in 1/1024."""
    near = np.arange(_TABLE + 1, dtype=_F32) / _F32(_TABLE)
    far = near + _F32(1)
    a32 = _F32(a)
    inner = ((a32 + 2) * near - (a32 + 3)) * near * near + 1
    outer = ((a32 * far - 5 * a32) * far + 8 * a32) * far - 4 * a32
    back = _TABLE - offset
    return np.stack([outer[offset], inner[offset], inner[back], outer[back]], 1)


def cubic_axis(count: int, size: int, align: bool, half: bool) -> Axis:
    at = _coordinates(count, size, align, half)
    below = np.floor(at)
    offset = np.rint((at - below) * _F32(_TABLE)).astype(np.int64)
    weights = _cubic_weights(offset, -0.5 if half else -0.75)
    places = below.astype(np.int64)[:, None] + np.arange(-1, 3)
    inside = np.clip(places, 0, count - 1)
    if half:  # pixels outside of the image don't count
        weights = np.where(inside == places, weights, _F32(0))
        total = weights.sum(axis=1, keepdims=True, dtype=_F32)
        usable = np.abs(total) >= 1000 * np.finfo(_F32).tiny
        weights = np.where(usable, weights * (_F32(1) / np.where(usable, total, _F32(1))), weights)
    return Axis(inside, weights.astype(_F32))


def area_axis(count: int, size: int, align: bool) -> Axis:
    scale = scale_of(count, size, align)
    places = np.arange(size, dtype=_F32)
    first, last = places * scale, (places + _F32(1)) * scale
    start = np.floor(first).astype(np.int64)
    taps = max(1, int((np.ceil(last).astype(np.int64) - start).max()))
    positions = start[:, None] + np.arange(taps)
    low = np.maximum(positions.astype(_F32), first[:, None])
    high = np.minimum((positions + 1).astype(_F32), last[:, None])
    with np.errstate(invalid="ignore"):  # one pixel, whose corners can't be aligned
        weights = np.maximum(high - low, _F32(0)) / scale
    return Axis(np.clip(positions, 0, count - 1), weights.astype(_F32))


def nearest_positions(count: int, size: int, align: bool, half: bool) -> np.ndarray:
    if align and half:
        raise ValueError("If half_pixel_centers is True, align_corners must be False.")
    scale = scale_of(count, size, align)
    at = (np.arange(size, dtype=_F32) + _F32(0.5 if half else 0)) * scale
    found = np.floor(at + _F32(0.5)) if align else np.floor(at)
    return np.clip(found.astype(np.int64), 0, count - 1)


def interpolated(images: np.ndarray, rows: Axis, columns: Axis) -> np.ndarray:
    """Return weighted sums of pixels, along both axes."""
    images = images.astype(np.float32, copy=False)
    wide = _along(images, columns, 2)
    return _along(wide, rows, 1)


def _along(images: np.ndarray, axis: Axis, dimension: int) -> np.ndarray:
    shape = [1] * 4
    shape[dimension] = len(axis.positions)
    total: Any = _F32(0)
    for positions, weights in zip(axis.positions.T, axis.weights.T, strict=True):
        total = total + np.take(images, positions, dimension) * weights.reshape(shape)
    return total


def spread(grads: np.ndarray, shape: tuple[int, ...], rows: Axis, columns: Axis) -> np.ndarray:
    """Return the gradients of the pixels that were interpolated; float32[shape]."""
    height, width = shape[1:3]
    wide = np.einsum("bhwc,wx->bhxc", grads, _matrix(columns, width), optimize=True)
    return np.einsum("bhxc,hy->byxc", wide, _matrix(rows, height), optimize=True)


def _matrix(axis: Axis, count: int) -> np.ndarray:
    matrix = np.zeros((len(axis.positions), count), np.float32)
    for positions, weights in zip(axis.positions.T, axis.weights.T, strict=True):
        np.add.at(matrix, (np.arange(len(positions)), positions), weights)
    return matrix
