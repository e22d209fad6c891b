"""The content of summaries. In: arrays. Out: histograms, PNG images, WAV sounds and tensors, as the
fields of a Summary that TensorFlow 1.15 would have written for the same numbers.

Histograms equal TensorFlow's to the last bit, including sums, which are added in order. Images have
the same pixels, but their compression may differ.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

from headrace._src.core import dtypes, proto
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_proto import to_proto

__all__ = ["encode_wav", "histogram", "normalized_image", "tensor_with_content"]

_LARGEST = np.finfo(np.float64).max


# -- Histograms ------------------------------------------------------------------------------------


@cache
def bucket_limits() -> np.ndarray:
    """Return the upper ends of all buckets: each positive one is 1.1 times the previous, from 1e-12
    to 1e20, and the negative ones mirror them.
    """
    positive = []
    limit = 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    positive.append(_LARGEST)
    return np.array([-v for v in reversed(positive)] + [0.0] + positive)


def _in_order(numbers: np.ndarray) -> float:
    """Return the sum from first to last: NumPy adds in pairs, and rounds differently."""
    return float(np.add.accumulate(numbers)[-1]) if numbers.size else 0.0


def histogram(values: Any) -> Any:
    """Return the HistogramProto of finite numbers. Consecutive empty buckets become one bucket."""
    numbers = np.ravel(values).astype(np.float64)
    limits = bucket_limits()
    # The largest double has no bucket above it; it counts in the last one.
    places = np.minimum(np.searchsorted(limits, numbers, side="right"), len(limits) - 1)
    counts = np.bincount(places, minlength=len(limits))
    empty = counts == 0
    last_of_run = ~empty | ~np.append(empty[1:], False)
    with np.errstate(over="ignore"):
        squares = _in_order(numbers * numbers)
        total = _in_order(numbers)
    return proto.HistogramProto(
        min=float(numbers.min(initial=_LARGEST)),
        max=float(numbers.max(initial=-_LARGEST)),
        num=numbers.size,
        sum=total,
        sum_squares=squares,
        bucket_limit=limits[last_of_run].tolist(),
        bucket=counts[last_of_run].tolist(),
    )


# -- Images ----------------------------------------------------------------------------------------

_BLACK_BELOW = 1e-6  # an image whose largest number is smaller isn't scaled up


def normalized_image(image: np.ndarray, bad_color: np.ndarray) -> np.ndarray:
    """Return a float image as bytes, scaled so that the largest magnitude is as bright as possible.

    Without negative numbers, 0 is black and the largest is 255; with them, 0 is 128 and the largest
    magnitude is 127 away. Pixels with a number that isn't finite get `bad_color`.
    """
    depth = image.shape[-1]
    if len(bad_color) < depth:
        raise InvalidArgumentError(
            None,
            None,
            f"expected depth <= bad_color.size, got depth = {depth}, bad_color.size = "
            f"{len(bad_color)}",
        )
    kind = image.dtype.type  # arithmetic is in the image's own type, so that rounding matches
    good = np.isfinite(image).all(axis=-1)
    pixels = image[good]
    least, most = pixels.min(initial=kind(np.inf)), pixels.max(initial=kind(-np.inf))
    if least < 0:
        reach, room, offset = max(abs(least), abs(most)), kind(127), kind(128)
    else:
        reach, room, offset = most, kind(255), kind(0)
    scale = kind(0) if reach < kind(_BLACK_BELOW) else room / reach
    result = np.empty(image.shape, np.uint8)
    result[good] = (pixels * scale + offset).astype(np.uint8)
    result[~good] = bad_color[:depth]
    return result


# -- Sounds ----------------------------------------------------------------------------------------


def encode_wav(sound: np.ndarray, sample_rate: float) -> bytes:
    """Return a WAV file, 16 bits per sample, of a float[frames, channels] within [-1, 1]."""
    channels = sound.shape[1]
    scaled = sound.astype(np.float64) * 2**15  # exact, so that halves are still halves
    rounded = np.trunc(scaled + np.copysign(0.5, scaled))
    samples = np.nan_to_num(np.clip(rounded, -(2**15), 2**15 - 1)).astype("<i2").tobytes()
    rate = max(1, round(sample_rate))  # the header has integers; halves are rounded to even
    width = 2 * channels
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * width, width, 16)
    data = struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data


# -- Tensors ---------------------------------------------------------------------------------------


def tensor_with_content(value: np.ndarray, dtype: DType) -> Any:
    """Return the TensorProto of an array, its elements as raw bytes; strings as a list
    of strings.
    """
    if dtype is dtypes.string:
        return to_proto(value, dtype)
    number: Any = dtype.enum
    result = proto.TensorProto(dtype=number, tensor_content=value.tobytes())
    result.tensor_shape.SetInParent()  # a scalar's shape is present, and empty
    for size in value.shape:
        result.tensor_shape.dim.add(size=size)
    return result
