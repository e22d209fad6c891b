"""The geometry of convolutions and poolings. In: shapes and TensorFlow's attributes. Out: all
sizes, with a `Window` (core.windows) per axis.

Every windowed op (convolution, pooling, morphology), its shape rule, its kernels and its anchor
read their sizes here. Sizes may be None (unknown while the graph is built): whatever depends on
them is then None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from headrace._src.core.errors import UnimplementedError
from headrace._src.core.tensor_shape import mismatch
from headrace._src.core.windows import Size, Window
from headrace._src.devices.room import check_room, check_windows

Kind = TypeVar("Kind", bound=Size, covariant=True)
Given = TypeVar("Given", bound=Size)

_CHANNEL_AXIS = {"NHWC": 3, "NCHW": 1, "NDHWC": 4, "NCDHW": 1}


@dataclass(frozen=True, slots=True)
class ConvGeometry(Generic[Kind]):
    """All sizes of one convolution: spatial `axes` in order, shapes in the data's own layout."""

    batch: Kind
    in_channels: Kind
    out_channels: Kind
    axes: tuple[Window[Kind], ...]
    channel_axis: int

    @property
    def input_shape(self) -> tuple[Kind, ...]:
        return self._shape(self.in_channels, [axis.size for axis in self.axes])

    @property
    def output_shape(self) -> tuple[Kind, ...]:
        return self._shape(self.out_channels, [axis.out for axis in self.axes])

    @property
    def kernel(self) -> tuple[Kind, ...]:
        return tuple(axis.taps for axis in self.axes)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(axis.stride for axis in self.axes)

    @property
    def dilations(self) -> tuple[int, ...]:
        return tuple(axis.dilation for axis in self.axes)

    @property
    def pads(self) -> tuple[tuple[Kind, Kind], ...]:
        return tuple((axis.before, axis.after) for axis in self.axes)

    def _shape(self, channels: Given, spatial: list[Given]) -> tuple[Given, ...]:
        shape: list[Any] = [self.batch, *spatial]
        shape.insert(self.channel_axis, channels)
        return tuple(shape)


def conv_geometry(
    input_shape: Sequence[Given],
    filter_shape: Sequence[Given],
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] | None = None,
    depthwise: bool = False,
    checked: bool = True,
) -> ConvGeometry[Given]:
    """Return the sizes of a 2-D or 3-D convolution.

    The filter is [*window, in, out], or [*window, in, multiplier] when `depthwise`: each input
    channel then makes `multiplier` output channels. Kernels check strides and dilations, shape
    rules don't.
    """
    channel_axis = _channel_axis(data_format)
    rank = len(data_format)
    _check_rank("convolution input", input_shape, rank)
    _check_rank("convolution filter", filter_shape, rank)
    dilations = [1] * rank if dilations is None else dilations
    _check_rank("strides", strides, rank)
    _check_rank("dilations", dilations, rank)
    if checked:
        check_steps(strides, dilations, channel_axis)
        _check_size(filter_shape, "the filter's shape")
    explicit = _explicit_pairs(explicit_paddings, padding, rank, channel_axis)
    in_channels, out_channels = _channels(
        input_shape[channel_axis], filter_shape[-2], filter_shape[-1], depthwise
    )
    axes = tuple(
        Window.of(input_shape[d], window, strides[d], dilations[d], padding, explicit[d])
        for d, window in zip(_spatial(rank, channel_axis), filter_shape[:-2], strict=True)
    )
    geometry = ConvGeometry(input_shape[0], in_channels, out_channels, axes, channel_axis)
    if checked:
        _check_size(input_shape, "the input's shape")
        _check_size(geometry.output_shape, "the padding")
    return geometry


@dataclass(frozen=True, slots=True)
class PoolGeometry(Generic[Kind]):
    """All sizes of one pooling: a window axis per array axis, of one tap over the batch."""

    axes: tuple[Window[Kind], ...]

    @property
    def output_shape(self) -> tuple[Kind, ...]:
        return tuple(axis.out for axis in self.axes)


def pool_geometry(
    input_shape: Sequence[Given],
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    checked: bool = True,
) -> PoolGeometry[Given]:
    """Return the sizes of a 2-D or 3-D pooling. Depth may only be pooled alone, by windows that
    tile it; kernels check that, shape rules don't.
    """
    channel_axis = _channel_axis(data_format)
    rank = len(data_format)
    _check_rank("pooling input", input_shape, rank)
    _check_rank("ksize", ksize, rank)
    _check_rank("strides", strides, rank)
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"pooling takes padding SAME or VALID, got {padding!r}")
    if checked:
        _check_pooled_axes(input_shape, ksize, strides, channel_axis)
    batch = Window.of(input_shape[0], 1, 1, 1, padding)
    axes = [
        Window.of(n, k, s, 1, "VALID" if axis == channel_axis else padding)
        for axis, (n, k, s) in enumerate(zip(input_shape, ksize, strides, strict=True))
        if axis
    ]
    geometry = PoolGeometry((batch, *axes))
    if checked:
        _check_size(input_shape, "the input's shape")
        _check_size(geometry.output_shape, "strides")
        check_windows(ksize, [k if n is None else n for n, k in zip(input_shape, ksize)], "ksize")
    return geometry


def _check_size(shape: Sequence[Size], cause: str) -> None:
    """Reject sizes that exceed the available memory; unknown sizes count as 1."""
    check_room([1 if n is None else n for n in shape], np.float32, cause)


def _channel_axis(data_format: str) -> int:
    if data_format not in _CHANNEL_AXIS:
        raise ValueError(
            f"data_format must be one of {', '.join(_CHANNEL_AXIS)}, got {data_format!r}"
        )
    return _CHANNEL_AXIS[data_format]


def _spatial(rank: int, channel_axis: int) -> list[int]:
    return [d for d in range(1, rank) if d != channel_axis]


def _check_rank(what: str, values: Sequence[Size], rank: int) -> None:
    if len(values) != rank:
        raise ValueError(f"{what} must have {rank} dimensions, got {len(values)}: {list(values)}")


def check_steps(strides: Sequence[int], dilations: Sequence[int], channel_axis: int) -> None:
    for name, values in (("strides", strides), ("dilations", dilations)):
        if values[0] != 1 or values[channel_axis] != 1:
            raise ValueError(
                f"{name} must be 1 in the batch and depth dimensions, got {list(values)}"
            )


def _explicit_pairs(
    explicit: Sequence[int], padding: str, rank: int, channel_axis: int
) -> list[tuple[int, int]]:
    if padding != "EXPLICIT":
        if len(explicit):
            raise ValueError(f"explicit_paddings must be empty when padding is {padding}")
        return [(0, 0)] * rank
    if len(explicit) != 2 * rank:
        raise ValueError(f"explicit_paddings must have {2 * rank} values, got {len(explicit)}")
    pairs = [(int(a), int(b)) for a, b in zip(explicit[::2], explicit[1::2], strict=True)]
    if any(pairs[0]) or any(pairs[channel_axis]):
        raise ValueError(f"the batch and depth dimensions take no padding, got {list(explicit)}")
    return pairs


def _channels(data: Size, taken: Size, made: Size, depthwise: bool) -> tuple[Any, Any]:
    """Return the (input, output) channels, given the data's channels and the filter's last
    dimensions.
    """
    if data is not None and taken is not None and data != taken:
        if depthwise:
            message = f"input and filter must have the same depth: {data} vs {taken}"
            raise mismatch(message, f"Dimensions must be equal, but are {data} and {taken}")
        message = f"input has {data} channels, but the filter takes {taken}"
        if taken and not data % taken:
            raise UnimplementedError(None, None, f"{message}: there are no grouped convolutions")
        raise mismatch(
            f"input depth must be evenly divisible by filter depth: {data} vs {taken} ({message})",
            f"Depth of input ({data}) is not a multiple of input depth of filter ({taken})",
        )
    channels = taken if data is None else data
    if not depthwise:
        return channels, made
    return channels, None if channels is None or made is None else channels * made


def _check_pooled_axes(
    shape: Sequence[Size], ksize: Sequence[int], strides: Sequence[int], channel_axis: int
) -> None:
    if ksize[0] != 1 or strides[0] != 1:
        raise UnimplementedError(
            None,
            None,
            "Pooling is not yet supported on the batch dimension: "
            f"ksize[0]={ksize[0]}, strides[0]={strides[0]}",
        )
    window, stride, depth = ksize[channel_axis], strides[channel_axis], shape[channel_axis]
    if window == 1 and stride == 1:
        return
    if math.prod(ksize) != window:
        raise UnimplementedError(
            None,
            None,
            "pooling supports exactly one of pooling across depth or pooling across "
            f"width/height: ksize={list(ksize)}",
        )
    if window != stride or (depth is not None and depth % window):
        raise UnimplementedError(
            None,
            None,
            f"depth windows must tile the depth: window {window}, stride {stride}, depth {depth}",
        )
