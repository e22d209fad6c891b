"""Arrays in the kernels' layouts, and convolutions by the NumPy kernels, for the tests around."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.native.machine_code import aligned
from headrace._src.ops.nn import conv_kernels


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


def blocked(x: np.ndarray, block: int = 16) -> np.ndarray:
    """NHWC to channels in blocks."""
    n, h, w, c = x.shape
    return placed(x.reshape(n, h, w, c // block, block).transpose(0, 3, 1, 2, 4))


def plain(x: np.ndarray) -> np.ndarray:
    """Channels in blocks to NHWC."""
    n, blocks, h, w, block = x.shape
    return x.transpose(0, 2, 3, 1, 4).reshape(n, h, w, blocks * block)


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """An NHWC image in a layout: "nhwc", "nChw16c", "nChw8c" or "nChw4c"."""
    if layout == "nhwc":
        return placed(x)
    return blocked(x, int(layout.removeprefix("nChw").removesuffix("c")))


def read(x: np.ndarray) -> np.ndarray:
    """An image of any layout as NHWC."""
    return plain(x) if x.ndim == 5 else x


class Example:
    """Random data for a convolution and what its three passes make of it, in float64."""

    def __init__(self, geometry: Geometry, seed: int = 0) -> None:
        g, random = geometry, np.random.default_rng(seed)
        self.geometry = g
        self.x = random.standard_normal((g.batch, g.height, g.width, g.channels))
        per_channel = g.filters // g.channels if g.depthwise else g.filters
        self.w = random.standard_normal((*g.kernel, g.channels, per_channel))
        self.dy = random.standard_normal((g.batch, g.out_height, g.out_width, g.filters))
        self._options: Any = {"strides": (1, *g.strides, 1), "dilations": (1, *g.dilations, 1)}
        if g.depthwise:
            self._options |= {"padding": "SAME" if any(map(any, g.pads)) else "VALID"}
        else:
            pads = (0, 0, *g.pads[0], *g.pads[1], 0, 0)
            self._options |= {"padding": "EXPLICIT", "explicit_paddings": pads}

    @property
    def y(self) -> np.ndarray:
        k, deep = conv_kernels, self.geometry.depthwise
        kernel = k.depthwise_conv2d_native if deep else k.conv2d
        return kernel(self.x, self.w, **self._options)

    @property
    def dx(self) -> np.ndarray:
        k, deep = conv_kernels, self.geometry.depthwise
        kernel = k.depthwise_conv2d_native_backprop_input if deep else k.conv2d_backprop_input
        return kernel(np.array(self.x.shape), self.w, self.dy, **self._options)

    @property
    def dw(self) -> np.ndarray:
        k, deep = conv_kernels, self.geometry.depthwise
        kernel = k.depthwise_conv2d_native_backprop_filter if deep else k.conv2d_backprop_filter
        return kernel(self.x, np.array(self.w.shape), self.dy, **self._options)


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """The root mean square of the difference, relative to that of what is expected."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))
