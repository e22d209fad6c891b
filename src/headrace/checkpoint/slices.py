"""Slices of tensors, as checkpoints name them. In: texts such as "4 2 2,2:-". Out: TensorSlices,
their protos and the keys of their data.

A slice has a start and a length per dimension; the length -1 means all of the dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core import proto
from headrace.core.errors import DataLossError, InternalError, InvalidArgumentError

__all__ = ["TensorSlice", "parse_shape_and_slice", "slice_from_proto", "slice_key"]

_ALL = -1


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A block of a tensor."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def whole(cls, rank: int) -> TensorSlice:
        """The slice that is all of a tensor."""
        return cls((0,) * rank, (_ALL,) * rank)

    def within(self, shape: Sequence[int]) -> TensorSlice:
        """The same slice of a tensor of `shape`, with all lengths given."""
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
        """Whether it is all of a tensor of `shape`."""
        return self.lengths == tuple(shape) and not any(self.starts)

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(s + n for s, n in zip(self.starts, self.lengths, strict=True))

    @property
    def size(self) -> int:
        return math.prod(self.lengths)

    def common(self, other: TensorSlice) -> TensorSlice | None:
        """What two slices with given lengths share, None if that's nothing."""
        starts = tuple(map(max, self.starts, other.starts))
        ends = tuple(map(min, self.ends, other.ends))
        lengths = tuple(e - s for s, e in zip(starts, ends, strict=True))
        return TensorSlice(starts, lengths) if all(n > 0 for n in lengths) else None

    def index(self, origin: Sequence[int]) -> tuple[slice, ...]:
        """Where it lies in an array whose first element is at `origin`."""
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
    """The shape and the slice of a text such as "4 2 2,2:-"; all lengths of the slice are given."""
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
# Encodings whose bytes sort as the values do: keys of one tensor's slices stand side by side.


def slice_key(name: str, part: TensorSlice) -> bytes:
    """The key of a slice's data; no key of a whole tensor begins as it does."""
    numbers = [n for pair in zip(part.starts, part.lengths, strict=True) for n in pair]
    head = _unsigned(0) + _escaped(name.encode()) + _unsigned(len(part.starts))
    return head + b"".join(map(_signed, numbers))


def _unsigned(value: int) -> bytes:
    """The number of bytes, then the bytes, highest first."""
    count = (value.bit_length() + 7) // 8
    return bytes([count]) + value.to_bytes(count, "big")


def _escaped(text: bytes) -> bytes:
    """The bytes 0 and 255, which other encodings begin with, are marked; then an end."""
    return text.replace(b"\x00", b"\x00\xff") + b"\x00\x01"  # UTF-8 has no byte 255


def _signed(value: int) -> bytes:
    """As many top bits as there are bytes, inverted for negative values; then the value."""
    magnitude = ~value if value < 0 else value
    count = magnitude.bit_length() // 7 + 1
    bits = 8 * count
    header = ((1 << count) - 1) << (bits - count)
    return ((value & (1 << bits) - 1) ^ header).to_bytes(count, "big")
