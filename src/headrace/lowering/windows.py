"""Window geometry. In: shapes and TF attributes. Out: frozen sizes, and slices that meet.

Every windowed op (convolution, pooling, morphology), its shape rule and the oneDNN adaptor read
their sizes here, so they cannot disagree. Sizes may be None (unknown while the graph is built):
whatever depends on them is then None. The kernels visit a window one *tap* (one position inside the
window) at a time; `taps` says which outputs see which inputs through it. Padding is never
materialised: a tap that would fall into it simply has fewer outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.core.errors import UnimplementedError
from headrace.core.shapes import mismatch
from headrace.devices.room import check_room, check_windows

Size = int | None
Slices = tuple[slice, ...]

_CHANNEL_AXIS = {"NHWC": 3, "NCHW": 1, "NDHWC": 4, "NCDHW": 1}


def out_size(
    n: Size,
    k: Size,
    stride: int,
    dilation: int = 1,
    padding: str = "VALID",
    explicit: tuple[int, int] = (0, 0),
) -> Size:
    """How many windows of `k` taps fit along an axis of `n` elements; None if that is unknown."""
    _check_step(stride, dilation)
    if padding == "SAME":
        return None if n is None else -(-n // stride)
    before, after = _fixed_pads(padding, explicit)
    if k == 1 and stride == 1 and not before + after:
        return n  # each element is a window, also where there is none
    if n is None or k is None:
        return None
    extent = _extent(k, dilation)
    if extent > n + before + after:
        negative = (
            f"Negative dimension size caused by subtracting {extent} from {n + before + after}"
        )
        raise mismatch(
            f"{negative}: a window of {k} taps at dilation {dilation} spans {extent} elements, but "
            f"the axis has only {n} (+{before} and +{after} of padding)",
            negative,
        )
    return (n + before + after - extent) // stride + 1


def pad_amounts(
    n: Size,
    k: Size,
    stride: int,
    dilation: int = 1,
    padding: str = "VALID",
    explicit: tuple[int, int] = (0, 0),
) -> tuple[Size, Size]:
    """Padding (before, after) along an axis; SAME puts the odd element after, as TensorFlow."""
    _check_step(stride, dilation)
    if padding != "SAME":
        return _fixed_pads(padding, explicit)
    if n is None or k is None:
        return None, None
    windows = -(-n // stride)
    total = max((windows - 1) * stride + _extent(k, dilation) - n, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis under a window: output o sees, at tap k, input o*stride + k*dilation - before."""

    size: Size
    window: Size
    stride: int
    dilation: int
    before: Size
    after: Size
    out: Size

    @classmethod
    def of(
        cls,
        size: Size,
        window: Size,
        stride: int,
        dilation: int,
        padding: str,
        explicit: tuple[int, int] = (0, 0),
    ) -> WindowAxis:
        if window is not None and window < 1:
            raise ValueError(f"a window must have at least one tap per axis, got {window}")
        rule = (size, window, stride, dilation, padding, explicit)
        before, after = pad_amounts(*rule)
        return cls(size, window, stride, dilation, before, after, out_size(*rule))

    def reach(self, tap: int) -> tuple[slice, slice]:
        """The outputs that see a real (unpadded) input through `tap`, and those inputs."""
        size, before, out = known(self.size), known(self.before), known(self.out)
        shift = tap * self.dilation - before
        first = max(-(shift // self.stride), 0)
        last = min((size - 1 - shift) // self.stride, out - 1)
        count = max(last - first + 1, 0)
        start = max(first * self.stride + shift, 0)
        # A count of zero must give an empty slice on both sides, wherever `first` lies.
        stop = start + (count - 1) * self.stride + 1 if count else start
        return slice(first, first + count), slice(start, stop, self.stride)

    def coverage(self) -> np.ndarray:
        """For each output, how many of its taps fall on real inputs."""
        counts = np.zeros(known(self.out), np.int64)
        for tap in range(known(self.window)):
            counts[self.reach(tap)[0]] += 1
        return counts


def taps(axes: Sequence[WindowAxis]) -> Iterator[tuple[tuple[int, ...], Slices, Slices]]:
    """Visit a window in scan order (last axis fastest): (position, output slices, input slices)."""
    reaches = [[axis.reach(tap) for tap in range(known(axis.window))] for axis in axes]
    for position in itertools.product(*(range(len(reach)) for reach in reaches)):
        pairs = [reach[tap] for reach, tap in zip(reaches, position, strict=True)]
        yield position, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


@dataclass(frozen=True, slots=True)
class ConvGeometry:
    """All sizes of one convolution: spatial `axes` in order, shapes in the data's own layout."""

    batch: Size
    in_channels: Size
    out_channels: Size
    axes: tuple[WindowAxis, ...]
    channel_axis: int

    @property
    def input_shape(self) -> tuple[Size, ...]:
        return self._shape(self.in_channels, [axis.size for axis in self.axes])

    @property
    def output_shape(self) -> tuple[Size, ...]:
        return self._shape(self.out_channels, [axis.out for axis in self.axes])

    @property
    def kernel(self) -> tuple[Size, ...]:
        return tuple(axis.window for axis in self.axes)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(axis.stride for axis in self.axes)

    @property
    def dilations(self) -> tuple[int, ...]:
        return tuple(axis.dilation for axis in self.axes)

    @property
    def pads(self) -> tuple[tuple[Size, Size], ...]:
        return tuple((axis.before, axis.after) for axis in self.axes)

    def _shape(self, channels: Size, spatial: list[Size]) -> tuple[Size, ...]:
        shape = [self.batch, *spatial]
        shape.insert(self.channel_axis, channels)
        return tuple(shape)


def conv_geometry(
    input_shape: Sequence[Size],
    filter_shape: Sequence[Size],
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] | None = None,
    depthwise: bool = False,
    checked: bool = True,
) -> ConvGeometry:
    """Sizes of a 2-D or 3-D convolution.

    The filter is [*window, in, out], or [*window, in, multiplier] when `depthwise`: each input
    channel then makes `multiplier` output channels of its own. Kernels check strides and dilations,
    shape rules don't.
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
        WindowAxis.of(input_shape[d], window, strides[d], dilations[d], padding, explicit[d])
        for d, window in zip(_spatial(rank, channel_axis), filter_shape[:-2], strict=True)
    )
    geometry = ConvGeometry(input_shape[0], in_channels, out_channels, axes, channel_axis)
    if checked:
        _check_size(input_shape, "the input's shape")
        _check_size(geometry.output_shape, "the padding")
    return geometry


@dataclass(frozen=True, slots=True)
class PoolGeometry:
    """All sizes of one pooling: a window axis per array axis, of one tap over the batch."""

    axes: tuple[WindowAxis, ...]

    @property
    def output_shape(self) -> tuple[Size, ...]:
        return tuple(axis.out for axis in self.axes)


def pool_geometry(
    input_shape: Sequence[Size],
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    checked: bool = True,
) -> PoolGeometry:
    """Sizes of a 2-D or 3-D pooling. Depth may be pooled alone, by windows that tile it; kernels
    check that, shape rules don't.
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
    batch = WindowAxis.of(input_shape[0], 1, 1, 1, padding)
    axes = [
        WindowAxis.of(n, k, s, 1, "VALID" if axis == channel_axis else padding)
        for axis, (n, k, s) in enumerate(zip(input_shape, ksize, strides, strict=True))
        if axis
    ]
    geometry = PoolGeometry((batch, *axes))
    if checked:
        _check_size(input_shape, "the input's shape")
        _check_size(geometry.output_shape, "strides")
        check_windows(ksize, [k if n is None else n for n, k in zip(input_shape, ksize)], "ksize")
    return geometry


def known(size: Size) -> int:
    """A size that a kernel cannot do without, though a shape rule can."""
    if size is None:
        raise ValueError("the window geometry has unknown sizes: kernels need them all")
    return size


def _check_size(shape: Sequence[Size], cause: str) -> None:
    """Reject sizes that exceed the available memory; unknown sizes count as 1."""
    check_room([1 if n is None else n for n in shape], np.float32, cause)


def _extent(k: int, dilation: int) -> int:
    return (k - 1) * dilation + 1


def _fixed_pads(padding: str, explicit: tuple[int, int]) -> tuple[int, int]:
    if padding == "VALID":
        return 0, 0
    if padding != "EXPLICIT":
        raise ValueError(f"padding must be SAME, VALID or EXPLICIT, got {padding!r}")
    if min(explicit) < 0:
        raise ValueError(f"explicit paddings must not be negative, got {explicit}")
    return explicit


def _check_step(stride: int, dilation: int) -> None:
    if stride < 1 or dilation < 1:
        raise ValueError(
            f"stride and dilation must be positive, got stride {stride}, dilation {dilation}"
        )


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


def _channels(data: Size, taken: Size, made: Size, depthwise: bool) -> tuple[Size, Size]:
    """(input, output) channels from the data's channels and the filter's last two dimensions."""
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
