"""Sliding windows in oneDNN's terms, shared by convolutions and pools, checked once per plan.

In: shapes and window parameters as the caller gave them. Out: oneDNN's dimensions, or
`Unsupported`. Convention: oneDNN's logical dimensions are always (batch, channels, *spatial). Their
layout in memory is given by an order of dimensions, outermost first.
"""

from collections.abc import Sequence
from typing import Any

from headrace._src.core.windows import Window
from headrace._src.devices.onednn.primitive_chains import Shape, int64s, require

Pads = Sequence[tuple[int, int]]

_CHANNELS_LAST = {
    "NWC": True,
    "NHWC": True,
    "NDHWC": True,
    "NCW": False,
    "NCHW": False,
    "NCDHW": False,
}


def pairs(pads: Pads) -> tuple[tuple[int, int], ...]:
    """Return the pads as tuples, which can be part of a cache's key."""
    return tuple([(before, after) for before, after in pads])


class OneDnnWindow:
    """A window over the spatial dimensions, and the layout of the arrays that it slides over."""

    def __init__(
        self, rank: int, ksize: Shape, strides: Shape, dilations: Shape, pads: Any, data_format: str
    ):
        self.spatial = len(ksize)
        require(data_format in _CHANNELS_LAST, f"unknown data format {data_format!r}")
        require(1 <= self.spatial <= 3, f"{self.spatial} spatial dimensions")
        require(
            self.spatial == len(strides) == len(dilations) == len(pads) == rank - 2,
            f"window {ksize}, strides {strides}, dilations {dilations} and pads {pads} "
            f"do not all fit an array of {rank} dimensions",
        )
        require(min((*ksize, *strides, *dilations)) > 0, "windows, strides, dilations must be > 0")
        require(min(sum(pads, ())) >= 0, f"negative padding {pads}")
        self.ksize, self.strides, self.dilations, self.pads = ksize, strides, dilations, pads
        self.channels_last = _CHANNELS_LAST[data_format]

    def split(self, shape: Shape) -> tuple[int, int, Shape]:
        """Return batch, channels and spatial extents of an array's shape."""
        if self.channels_last:
            return shape[0], shape[-1], shape[1:-1]
        return shape[0], shape[1], shape[2:]

    def join(self, batch: int, channels: int, extents: Shape) -> Shape:
        """Return the shape of an array with the given batch, channels and spatial extents."""
        return (batch, *extents, channels) if self.channels_last else (batch, channels, *extents)

    def slide(self, extents: Shape) -> Shape:
        """Return the spatial extents of the output."""
        axes = zip(extents, self.ksize, self.strides, self.dilations, self.pads, strict=True)
        out = tuple(Window.padded(n, k, s, d, *pad).out for n, k, s, d, pad in axes)
        require(min(out) > 0, f"window {self.ksize} does not fit into {extents}")
        return out

    def order(self, channels_last: bool) -> Shape:
        """Return oneDNN's dimensions in the order in which they lie in memory."""
        spatial = tuple(range(2, 2 + self.spatial))
        return (0, *spatial, 1) if channels_last else (0, 1, *spatial)

    def padding(self) -> tuple[Any, Any]:
        before, after = zip(*self.pads, strict=True)
        return int64s(before), int64s(after)
