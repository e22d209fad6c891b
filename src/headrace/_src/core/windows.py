"""Windows that slide along an axis: their number, their padding, and what each of them sees.

This is the only place that knows these rules. Shape rules, kernels, the compiler and the calls of
oneDNN all take a `Window`, so they cannot disagree. While a graph is built, sizes may be None:
whatever depends on them is then None (a `Window[Size]`). Kernels have a `Window[int]`. They visit a
window one *tap* (one position inside the window) at a time; `taps` says which outputs see which
inputs through it. Padding is never materialised: a tap that would fall into it has fewer outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from headrace._src.core.tensor_shape import mismatch

__all__ = ["Size", "Slices", "Window", "out_size", "pad_amounts", "taps"]

Size = int | None
Slices = tuple[slice, ...]

Kind = TypeVar("Kind", bound=Size, covariant=True)
Given = TypeVar("Given", bound=Size)


@dataclass(frozen=True, slots=True)
class Window(Generic[Kind]):
    """Windows along one axis: output o sees, at tap t, input o * stride + t * dilation - before.

    `size` is the number of inputs, `out` that of outputs; `before` and `after` count the padding.
    """

    size: Kind
    taps: Kind
    stride: int
    dilation: int
    before: Kind
    after: Kind
    out: Kind

    @staticmethod
    def of(
        size: Given,
        taps: Given | int,
        stride: int,
        dilation: int,
        padding: str,
        explicit: tuple[int, int] = (0, 0),
    ) -> Window[Given]:
        """The windows that TensorFlow's padding SAME, VALID or EXPLICIT makes.

        Raises ValueError if no window fits, or if an argument is out of range.
        """
        if taps is not None and taps < 1:
            raise ValueError(f"a window must have at least one tap per axis, got {taps}")
        before, after = pad_amounts(size, taps, stride, dilation, padding, explicit)
        out = out_size(size, taps, stride, dilation, padding, explicit)
        return Window(size, taps, stride, dilation, before, after, out)  # type: ignore[arg-type]

    @staticmethod
    def padded(
        size: int, taps: int, stride: int, dilation: int, before: int, after: int
    ) -> Window[int]:
        """As many windows as fit between `before` and `after`, which may be negative."""
        out = (size + before + after - _extent(taps, dilation)) // stride + 1
        return Window(size, taps, stride, dilation, before, after, out)

    def tight(self: Window[int]) -> Window[int]:
        """The same windows, where `after` is what the last one needs beyond the end: less than 0
        where inputs are left over. Equal computations have equal tight windows.
        """
        reached = (self.out - 1) * self.stride + _extent(self.taps, self.dilation)
        return replace(self, after=reached - self.before - self.size)

    def reach(self: Window[int], tap: int) -> tuple[slice, slice]:
        """Return the outputs that see a real (unpadded) input through `tap`, and those inputs."""
        shift = tap * self.dilation - self.before
        first = max(-(shift // self.stride), 0)
        last = min((self.size - 1 - shift) // self.stride, self.out - 1)
        count = max(last - first + 1, 0)
        start = max(first * self.stride + shift, 0)
        # A count of zero must give an empty slice on both sides, wherever `first` is.
        stop = start + (count - 1) * self.stride + 1 if count else start
        return slice(first, first + count), slice(start, stop, self.stride)

    def coverage(self: Window[int]) -> np.ndarray:
        """Return, for each output, how many of its taps see real inputs."""
        counts = np.zeros(self.out, np.int64)
        for tap in range(self.taps):
            counts[self.reach(tap)[0]] += 1
        return counts


def taps(windows: Sequence[Window[int]]) -> Iterator[tuple[tuple[int, ...], Slices, Slices]]:
    """Visit a window in scan order (last axis fastest): (position, output slices, input slices)."""
    reaches = [[window.reach(tap) for tap in range(window.taps)] for window in windows]
    for position in itertools.product(*(range(len(reach)) for reach in reaches)):
        pairs = [reach[tap] for reach, tap in zip(reaches, position, strict=True)]
        yield position, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def out_size(
    n: Size,
    k: Size,
    stride: int,
    dilation: int = 1,
    padding: str = "VALID",
    explicit: tuple[int, int] = (0, 0),
) -> Size:
    """Return how many windows of `k` taps fit along an axis of `n` elements; None if unknown."""
    _check_step(stride, dilation)
    if padding == "SAME":
        return None if n is None else -(-n // stride)
    before, after = _fixed_pads(padding, explicit)
    if k == 1 and stride == 1 and not before + after:
        return n  # each element is a window, even if there are none
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
    return Window.padded(n, k, stride, dilation, before, after).out


def pad_amounts(
    n: Size,
    k: Size,
    stride: int,
    dilation: int = 1,
    padding: str = "VALID",
    explicit: tuple[int, int] = (0, 0),
) -> tuple[Size, Size]:
    """Return the padding (before, after) of an axis; SAME puts the odd element after, as
    TensorFlow.
    """
    _check_step(stride, dilation)
    if padding != "SAME":
        return _fixed_pads(padding, explicit)
    if n is None or k is None:
        return None, None
    windows = -(-n // stride)
    total = max((windows - 1) * stride + _extent(k, dilation) - n, 0)
    return total // 2, total - total // 2


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
