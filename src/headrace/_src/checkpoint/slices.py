"""Slices of tensors in the notation of checkpoints. In: strings such as "4 2 2,2:-". Out:
TensorSlices, their protos and the keys of their data.

A slice has a start and a length per dimension; the length -1 means all of the dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace._src.core import proto
from headrace._src.core.errors import DataLossError, InternalError, InvalidArgumentError

__all__ = ["TensorSlice", "parse_shape_and_slice", "slice_from_proto", "slice_key"]

_ALL = -1


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A block of a tensor."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def whole(cls, rank: int) -> TensorSlice:
        """Return the slice that covers a whole tensor."""
        return cls((0,) * rank, (_ALL,) * rank)

    def within(self, shape: Sequence[int]) -> TensorSlice:
        """Return the same slice of a tensor of `shape`, with every length explicit."""
        if len(shape) != len(self.starts):
            raise InternalError(
                None, None, f"Mismatching ranks: shape = {_text(shape)}, slice = {self}"
            )
        lengths = []
        for i, (start, length, size) in enumerate(zip(self.starts, self.lengths, shape)):
            length = size if length == _ALL else length
            if start < 0 or length < 0 or start + length > size:
                raise InternalError(
                    None,
                    None,
                    f"Extent in dimension {i} out of bounds: shape = {_text(shape)}, slice = "
                    f"{self}",
                )
            lengths.append(length)
        return TensorSlice(self.starts, tuple(lengths))

    def covers(self, shape: Sequence[int]) -> bool:
        """Return whether it covers a whole tensor of `shape`."""
        return self.lengths == tuple(shape) and not any(self.starts)

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(s + n for s, n in zip(self.starts, self.lengths, strict=True))

    @property
    def size(self) -> int:
        return math.prod(self.lengths)

    def common(self, other: TensorSlice) -> TensorSlice | None:
        """Return the intersection of two slices with explicit lengths, None if it is empty."""
        starts = tuple(map(max, self.starts, other.starts))
        ends = tuple(map(min, self.ends, other.ends))
        lengths = tuple(e - s for s, e in zip(starts, ends, strict=True))
        return TensorSlice(starts, lengths) if all(n > 0 for n in lengths) else None

    def index(self, origin: Sequence[int]) -> tuple[slice, ...]:
        """Return its index in an array whose first element is at `origin`."""
        places = zip(self.starts, self.ends, origin, strict=True)
        return tuple(slice(start - zero, end - zero) for start, end, zero in places)

    def to_proto(self) -> Any:
        """A TensorSliceProto."""
        found: Any = proto.TensorSliceProto()
        for start, length in zip(self.starts, self.lengths, strict=True):
            extent = found.extent.add()
            if length != _ALL:
                extent.start, extent.length = start, length
        return found

    def __str__(self) -> str:
        pairs = zip(self.starts, self.lengths, strict=True)
        return ":".join("-" if n == _ALL else f"{s},{n}" for s, n in pairs)


def slice_from_proto(message: Any) -> TensorSlice:
    """The slice of a TensorSliceProto from a file."""
    starts = tuple(extent.start for extent in message.extent)
    lengths = tuple(e.length if e.HasField("length") else _ALL for e in message.extent)
    if any(s < 0 for s in starts) or any(n < _ALL for n in lengths):
        raise DataLossError(None, None, "a slice with negative places")
    return TensorSlice(starts, lengths)


def parse_shape_and_slice(text: str) -> tuple[tuple[int, ...], TensorSlice]:
    """Parse the shape and the slice of a string such as "4 2 2,2:-"; every length is explicit."""
    *sizes, pairs = text.split(" ")
    if not sizes:
        raise _wrong(f"Need least two elements in shape_and_slice specification: {text}")
    if not all(size.isdecimal() for size in sizes):
        raise _wrong(f"Non numerical dimension in shape_and_slice: {text}")
    shape = tuple(map(int, sizes))
    starts, lengths = [], []
    for pair in pairs.split(":"):
        start, _, length = (0, ",", _ALL) if pair == "-" else pair.partition(",")
        try:
            starts.append(int(start))
            lengths.append(int(length))
        except ValueError:
            raise _wrong(
                f"Expected a pair of numbers or '-' but got '{pair}': string = {pairs}"
            ) from None
        if pair != "-" and (starts[-1] < 0 or lengths[-1] <= 0):
            raise _wrong(
                f"Expected non-negative start and positive length but got start = {start}, "
                f"length = {length}: string = {pairs}"
            )
    return shape, TensorSlice(tuple(starts), tuple(lengths)).within(shape)


def _wrong(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def _text(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


# -- Keys ------------------------------------------------------------------------------------------
# Encodings whose bytes sort like the values: keys of one tensor's slices are adjacent.


def slice_key(name: str, part: TensorSlice) -> bytes:
    """Return the key of a slice's data; no key of a whole tensor has the same prefix."""
    numbers = [n for pair in zip(part.starts, part.lengths, strict=True) for n in pair]
    head = _unsigned(0) + _escaped(name.encode()) + _unsigned(len(part.starts))
    return head + b"".join(map(_signed, numbers))


def _unsigned(value: int) -> bytes:
    """Encode a number as its byte count, then its bytes, highest first."""
    count = (value.bit_length() + 7) // 8
    return bytes([count]) + value.to_bytes(count, "big")


def _escaped(text: bytes) -> bytes:
    """Escape the bytes 0 and 255, which begin other encodings, and append a terminator."""
    return text.replace(b"\x00", b"\x00\xff") + b"\x00\x01"  # UTF-8 has no byte 255


def _signed(value: int) -> bytes:
    """Encode a number as one leading bit per byte, inverted for negative values, then the value."""
    magnitude = ~value if value < 0 else value
    count = magnitude.bit_length() // 7 + 1
    bits = 8 * count
    header = ((1 << count) - 1) << (bits - count)
    return ((value & (1 << bits) - 1) ^ header).to_bytes(count, "big")
