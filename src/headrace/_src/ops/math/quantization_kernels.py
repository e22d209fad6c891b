"""Numbers in few bits. In: floats and their range, or quantized values. Out: the reverse.

All arithmetic is in float32 and in TensorFlow's order, so that the results are its bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.tensor_shape import show_shape

__all__ = [
    "Levels",
    "dequantized_min_first",
    "integers",
    "nudged",
    "quantized_min_first",
    "rounded",
    "scalar",
    "storage",
]

_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)


def integers(values: np.ndarray) -> np.ndarray:
    """Return quantized values as the integers that they are stored as."""
    return values.view(values.dtype[0]) if values.dtype.names else values


def storage(dtype: Any) -> np.dtype:
    """Return the integers that a quantized type is stored as."""
    found = as_dtype(dtype).numpy
    return found[0] if found.names else found


def as_quantized(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return integers as values of a quantized type."""
    return np.asarray(values, storage(dtype), order="C").view(dtype.numpy)


def scalar(value: Any, what: str) -> np.float32:
    if np.ndim(value) or np.size(value) != 1:
        raise ValueError(f"{what} must be a scalar, but has shape {show_shape(np.shape(value))}")
    return np.float32(np.asarray(value).item())


def rounded(values: Any) -> Any:
    """Round to the nearest integer; halves go away from zero."""
    whole = np.trunc(values)
    return whole + np.where(np.abs(values - whole) >= _HALF, np.sign(values), _ZERO)


@dataclass(frozen=True)
class Levels:
    """The integers of a quantized type, and a range of floats that they stand for."""

    lowest: int
    highest: int
    low: np.float32
    high: np.float32

    @staticmethod
    def of(dtype: Any, low: Any, high: Any) -> Levels:
        limits = np.iinfo(storage(dtype))
        return Levels(int(limits.min), int(limits.max), np.float32(low), np.float32(high))

    @property
    def steps(self) -> int:
        return self.highest - self.lowest

    @property
    def step(self) -> np.float32:
        """How much one level is."""
        return np.float32((self.high - self.low) / np.float64(self.steps))


def quantized_min_first(values: np.ndarray, levels: Levels) -> np.ndarray:
    """Return floats as integers, of which the lowest is nearest to the range's minimum."""
    if levels.low == levels.high:
        scale = _ZERO
    else:
        scale = np.float32(levels.steps / np.float64(levels.high - levels.low))
    first = rounded(levels.low * scale) - np.float32(levels.lowest)
    found = rounded(values * scale) - first
    top = np.float32(levels.highest)
    if float(top) > levels.highest:  # a float32 that an int32 can hold
        top = np.nextafter(top, _ZERO)
    return np.clip(found, np.float32(levels.lowest), top).astype(np.int64)


def dequantized_min_first(values: np.ndarray, levels: Levels) -> np.ndarray:
    """Return integers as floats; the reverse of quantized_min_first."""
    scale = levels.step
    start = levels.low
    if levels.low != levels.high:
        start = rounded(levels.low / scale) * scale
    return (start - np.float32(levels.lowest) * scale) + values.astype(np.float32) * scale


def nudged(low: Any, high: Any, bits: int, narrow: bool) -> tuple[Any, Any, Any]:
    """Return a range of floats, moved so that zero is one of its levels, and the size of a level.
    `low` and `high` may be arrays.
    """
    first, last = np.float32(1 if narrow else 0), np.float32((1 << bits) - 1)
    scale = (high - low) / (last - first)
    zero = first - low / scale
    zero = np.where(zero < first, first, np.where(zero > last, last, rounded(zero)))
    return (first - zero) * scale, (last - zero) * scale, scale
