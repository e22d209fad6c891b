"""Convolutions and poolings as the compiler sees them. In: a Site. Out: geometries of windows.

The sizes come from `windows`, where the shape rules and the kernels have theirs from; all windows
are tight.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from headrace._src.core.errors import UnimplementedError
from headrace._src.core.windows import Window
from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.padded_windows import conv_geometry, pool_geometry
from headrace._src.lowering.pointwise import FLOATS
from headrace._src.lowering.rules import Anchor, Site

if TYPE_CHECKING:
    from headrace._src.graph.dataflow import Node

__all__ = [
    "Convolution",
    "Pooling",
    "Pooling3D",
    "convolution",
    "pooling",
    "pooling_3d",
    "pooling_of",
]


@dataclass(frozen=True, slots=True)
class Convolution(AnchorGeometry):
    """y[n, oh, ow, k] = sum of x[n, h, w, c] * filter[kh, kw, c, k], read in one of its directions:
    "forward" (from x and filter, to y), "input" (from filter and y, to x) or "filter" (from x and
    y, to filter).

    Images are [n, h, w, c] or, for NCHW, [n, c, h, w]; filters are always [kh, kw, c, k]. If
    `depthwise`, channel c makes the output channels c * multiplier + i alone, k = c * multiplier,
    and filters are [kh, kw, c, multiplier]. `precision`: the narrower type, if any, in which both
    operands can be held without loss.
    """

    direction: str
    n: int
    c: int
    k: int
    h: Window[int]
    w: Window[int]
    data_format: str
    dtype: str
    depthwise: bool = False
    precision: str = ""

    fuses: ClassVar[bool] = True
    leads: ClassVar[bool] = True
    filters: ClassVar[tuple[int, ...]] = (1,)

    @property
    def makes_image(self) -> bool:
        return self.direction != "filter"

    @property
    def operands(self) -> tuple[int, ...]:
        return {"forward": (0, 1), "input": (1, 2), "filter": (0, 2)}[self.direction]

    def follows_blocks(self, block: int) -> bool:
        """Return whether a depthwise convolution keeps images that are blocked already in blocks.
        It's as fast on plain images, so a conversion is never worth it.
        """
        return self.depthwise and self.c == self.k and self.c % block == 0

    def blocked_inputs(self, block: int) -> tuple[int, ...] | None:
        if self.data_format != "NHWC" or self.direction == "filter":
            return None
        if not self.depthwise:
            return ()
        image = 2 if self.direction == "input" else 0
        return (image,) if self.follows_blocks(block) else None


def convolution(direction: str, depthwise: bool = False) -> Anchor:
    """Return the anchor of a 2-D convolution, or of its gradient for "input" or "filter"."""

    def describe(site: Site) -> Convolution | None:
        return _describe_convolution(site, direction, depthwise)

    return Anchor("depthwise" if depthwise else "convolution", describe)


def _describe_convolution(site: Site, direction: str, depthwise: bool) -> Convolution | None:
    attrs = site.attrs
    x, w = _image_and_filter(site, direction)
    try:
        geometry = conv_geometry(
            x,
            w,
            strides=attrs["strides"],
            padding=attrs["padding"],
            explicit_paddings=attrs.get("explicit_paddings", ()),
            data_format=attrs["data_format"],
            dilations=attrs["dilations"],
            depthwise=depthwise,
        )
    except (MemoryError, UnimplementedError, ValueError):
        return None  # the kernel reports the error
    if not prod(x) or not prod(w) or not prod(geometry.output_shape):
        return None
    height, width = (axis.tight() for axis in geometry.axes)
    return Convolution(
        direction,
        x[0],
        geometry.in_channels,
        geometry.out_channels,
        height,
        width,
        attrs["data_format"],
        site.output_dtypes[0],
        depthwise,
    )


def _image_and_filter(site: Site, direction: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if direction == "forward":
        x, w = site.input_shapes
    elif direction == "input":
        x, w = site.output_shapes[0], site.input_shapes[1]
    else:
        x, w = site.input_shapes[0], site.output_shapes[0]
    return x, w


@dataclass(frozen=True, slots=True)
class Pooling(AnchorGeometry):
    """The "max" or the "mean" of each window, "forward" (from x) or its "gradient".

    max: from the lowest finite number on, what is greater wins, so a NaN never does. Its gradient
    is from x, y and dy, and x alone decides: from the window's first element on, what is greater
    wins and gets dy (the first of equals; a leading NaN). mean: padding isn't counted. Its gradient
    is from dy alone.

    positions: max also returns the tap of the element that gets dy, one byte for each window, and
    its gradient is from these and dy.
    """

    kind: str
    direction: str
    n: int
    c: int
    h: Window[int]
    w: Window[int]
    data_format: str
    dtype: str
    positions: bool = False

    fuses: ClassVar[bool] = True
    leads: ClassVar[bool] = True

    def blocked_inputs(self, block: int) -> tuple[int, ...] | None:
        return () if self.data_format == "NHWC" else None

    @property
    def operands(self) -> tuple[int, ...]:
        if self.direction == "forward":
            return (0,)
        if self.positions:
            return (0, 1)
        return (0, 1, 2) if self.kind == "max" else (1,)


def pooling(kind: str, direction: str, positions: bool = False) -> Anchor:
    """Return the anchor of a 2-D pooling ("max" or "mean"), "forward" or its "gradient"."""
    return Anchor("pooling", lambda site: _describe_pooling(site, kind, direction, positions))


def _describe_pooling(site: Site, kind: str, direction: str, positions: bool) -> Pooling | None:
    attrs = site.attrs
    dtype, data_format = site.output_dtypes[0], attrs["data_format"]
    x = site.input_shapes[0] if direction == "forward" else site.output_shapes[0]
    found = _window_sizes(site)
    if dtype not in FLOATS or data_format not in ("NHWC", "NCHW") or found is None or not prod(x):
        return None
    ksize, strides = found
    try:
        geometry = pool_geometry(
            x, ksize=ksize, strides=strides, padding=attrs["padding"], data_format=data_format
        )
    except (MemoryError, UnimplementedError):
        return None  # the kernel reports the error
    channel = 1 if data_format == "NCHW" else 3
    if geometry.axes[channel].taps != 1 or not prod(geometry.output_shape):
        return None
    height, width = (a.tight() for d, a in enumerate(geometry.axes) if d not in (0, channel))
    return Pooling(kind, direction, x[0], x[channel], height, width, data_format, dtype, positions)


def pooling_of(node: Node) -> Pooling | None:
    """Return the geometry of a pool or of its gradient; None for other nodes."""
    rule = node.definition.lower
    return node.geometry if isinstance(rule, Anchor) and rule.family == "pooling" else None


@dataclass(frozen=True, slots=True)
class Pooling3D(AnchorGeometry):
    """The "max" or the "mean" of each window of volumes [n, d, h, w, c]; see Pooling."""

    kind: str
    n: int
    c: int
    d: Window[int]
    h: Window[int]
    w: Window[int]
    dtype: str

    operands: ClassVar[tuple[int, ...]] = (0,)


def pooling_3d(kind: str) -> Anchor:
    """Return the anchor of a 3-D pooling ("max" or "mean")."""
    return Anchor("pooling_3d", lambda site: _describe_pooling_3d(site, kind))


def _describe_pooling_3d(site: Site, kind: str) -> Pooling3D | None:
    attrs, dtype, x = site.attrs, site.output_dtypes[0], site.input_shapes[0]
    if dtype not in FLOATS or attrs["data_format"] != "NDHWC" or not prod(x):
        return None
    try:
        geometry = pool_geometry(
            x,
            ksize=attrs["ksize"],
            strides=attrs["strides"],
            padding=attrs["padding"],
            data_format="NDHWC",
        )
    except (MemoryError, UnimplementedError):
        return None  # the kernel reports the error
    if geometry.axes[4].taps != 1 or not prod(geometry.output_shape):
        return None
    depth, height, width = (axis.tight() for axis in geometry.axes[1:4])
    return Pooling3D(kind, x[0], x[4], depth, height, width, dtype)


def _window_sizes(site: Site) -> tuple[Any, Any] | None:
    """Return the window and its strides: attributes or, in version 2, the last two inputs."""
    if "ksize" in site.attrs:
        return site.attrs["ksize"], site.attrs["strides"]
    count = len(site.input_shapes)
    ksize, strides = site.constant_input(count - 2), site.constant_input(count - 1)
    return None if ksize is None or strides is None else (ksize.tolist(), strides.tolist())
