"""Arrays in the kernels' layouts, and convolutions by the NumPy kernels, for the tests around."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.compile.kernels.conv_geometry import Geometry
from headrace.compile.native import aligned
from headrace.ops import conv_kernels


def room(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An aligned array full of what no result may contain."""
    array = aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype).reshape(shape)
    array[...] = np.nan if np.issubdtype(dtype, np.floating) else 99
    return array


def placed(array: np.ndarray) -> np.ndarray:
    """An aligned float32 copy."""
    copy = room(*array.shape)
    copy[...] = array
    return copy


def blocked(x: np.ndarray) -> np.ndarray:
    """NHWC to nChw16c."""
    n, h, w, c = x.shape
    return placed(x.reshape(n, h, w, c // 16, 16).transpose(0, 3, 1, 2, 4))


def plain(x: np.ndarray) -> np.ndarray:
    """nChw16c to NHWC."""
    n, blocks, h, w, _ = x.shape
    return x.transpose(0, 2, 3, 1, 4).reshape(n, h, w, blocks * 16)


class Example:
    """Random data for a convolution and what its three passes make of it, in float64."""

    def __init__(self, geometry: Geometry, seed: int = 0) -> None:
        g, random = geometry, np.random.default_rng(seed)
        self.geometry = g
        self.x = random.standard_normal((g.batch, g.height, g.width, g.channels))
        self.w = random.standard_normal((*g.kernel, g.channels, g.filters))
        self.dy = random.standard_normal((g.batch, g.out_height, g.out_width, g.filters))
        self._options: Any = {
            "strides": (1, *g.strides, 1),
            "padding": "EXPLICIT",
            "explicit_paddings": (0, 0, *g.pads[0], *g.pads[1], 0, 0),
            "dilations": (1, *g.dilations, 1),
        }

    @property
    def y(self) -> np.ndarray:
        return conv_kernels.conv2d(self.x, self.w, **self._options)

    @property
    def dx(self) -> np.ndarray:
        shape = np.array(self.x.shape)
        return conv_kernels.conv2d_backprop_input(shape, self.w, self.dy, **self._options)

    @property
    def dw(self) -> np.ndarray:
        shape = np.array(self.w.shape)
        return conv_kernels.conv2d_backprop_filter(self.x, shape, self.dy, **self._options)


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """The root mean square of the difference, relative to that of what is expected."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))
