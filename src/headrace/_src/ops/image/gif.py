"""GIF files. In: bytes. Out: all frames, in colors.

A frame that covers a part of the canvas lies on the frame before it. Transparency and the ways to
dispose of frames are ignored, as in TensorFlow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from headrace._src.devices.room import check_room

__all__ = ["MAGICS", "decode_gif"]

MAGICS = (b"GIF87a", b"GIF89a")
_IMAGE, _EXTENSION, _END = 0x2C, 0x21, 0x3B
_MOST_CODES = 4096
_INTERLACED = ((0, 8), (4, 8), (2, 4), (1, 2))  # first row and step of each pass


class DamagedGif(ValueError):
    """The file isn't a GIF file, or is broken."""


@dataclass(frozen=True)
class _Frame:
    left: int
    top: int
    indices: np.ndarray  # uint8[height, width]
    colors: np.ndarray | None  # uint8[colors, 3]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> bytes:
        found = self.data[self.position : self.position + size]
        if len(found) < size:
            raise DamagedGif("Failed to read from given file")
        self.position += size
        return found

    def byte(self) -> int:
        return self.take(1)[0]

    def palette(self, flags: int) -> np.ndarray | None:
        if not flags & 0x80:
            return None
        colors = 2 << (flags & 7)
        return np.frombuffer(self.take(3 * colors), np.uint8).reshape(colors, 3)

    def blocks(self) -> bytes:
        parts = []
        while size := self.byte():
            parts.append(self.take(size))
        return b"".join(parts)


def _frames(data: bytes) -> list[_Frame]:
    reader = _Reader(data)
    if reader.take(6) not in MAGICS:
        raise DamagedGif("Data is not in GIF format")
    *_, flags, _, _ = struct.unpack("<HHBBB", reader.take(7))
    shared = reader.palette(flags)
    frames: list[_Frame] = []
    while (kind := reader.byte()) != _END:
        if kind == _EXTENSION:
            reader.byte()
            reader.blocks()
        elif kind == _IMAGE:
            frames.append(_frame(reader, shared))
        else:
            raise DamagedGif("Wrong record type detected")
    return frames


def _frame(reader: _Reader, shared: np.ndarray | None) -> _Frame:
    left, top, width, height, flags = struct.unpack("<HHHHB", reader.take(9))
    colors = reader.palette(flags)
    bits = reader.byte()
    if not 1 <= bits <= 8 or not width or not height:
        raise DamagedGif("Image is defective, decoding aborted")
    packed = reader.blocks()
    # A code of 12 bits stands for less than 4096 pixels.
    if width * height > _MOST_CODES * (len(packed) + 1):
        raise DamagedGif("Image is defective, decoding aborted")
    check_room((height, width), np.uint8, "a frame of the image")
    pixels = np.frombuffer(_unpacked(packed, bits, width * height), np.uint8)
    pixels = pixels.reshape(height, width)
    if flags & 0x40:
        order = np.concatenate([np.arange(start, height, step) for start, step in _INTERLACED])
        placed = np.empty_like(pixels)
        placed[order] = pixels
        pixels = placed
    return _Frame(left, top, pixels, shared if colors is None else colors)


def _unpacked(data: bytes, bits: int, wanted: int) -> bytes:
    """Return the `wanted` bytes that LZW codes stand for; the first ones have bits + 1 bits."""
    clear, end = 1 << bits, (1 << bits) + 1
    words = [bytes([i]) for i in range(clear)] + [b"", b""]
    size, last = bits + 1, b""
    out: list[bytes] = []
    count = held = bits_held = 0
    octets = iter(data)
    while count < wanted:
        while bits_held < size:
            octet = next(octets, None)
            if octet is None:
                raise DamagedGif("Image is defective, decoding aborted")
            held |= octet << bits_held
            bits_held += 8
        code = held & ((1 << size) - 1)
        held >>= size
        bits_held -= size
        if code == clear:
            del words[clear + 2 :]
            size, last = bits + 1, b""
            continue
        if code == end:
            raise DamagedGif("Image EOF detected before image complete")
        if code < len(words):
            word = words[code]
        elif last and code == len(words):
            word = last + last[:1]
        else:
            raise DamagedGif("Image is defective, decoding aborted")
        out.append(word)
        count += len(word)
        if last and len(words) < _MOST_CODES:
            words.append(last + word[:1])
            if len(words) == 1 << size and size < 12:
                size += 1
        last = word
    return b"".join(out)[:wanted]


def decode_gif(data: bytes) -> np.ndarray:
    """Return the frames as uint8[frames, height, width, 3]."""
    frames = _frames(data)
    if not frames:
        raise DamagedGif("gif file does not contain any image")
    height = max(f.indices.shape[0] for f in frames)
    width = max(f.indices.shape[1] for f in frames)
    shape = len(frames), height, width, 3
    check_room(shape, np.uint8, "the frames of the image")
    result = np.zeros(shape, np.uint8)
    for number, frame in enumerate(frames):
        rows, columns = frame.indices.shape
        if (frame.left, frame.top, rows, columns) != (0, 0, height, width):
            if number == 0:
                raise DamagedGif("the first frame does not fill the canvas")
            result[number] = result[number - 1]
        if frame.colors is None:
            raise DamagedGif(f"missing color map for frame {number}")
        indices = frame.indices[: max(0, height - frame.top), : max(0, width - frame.left)]
        if indices.size and (most := int(indices.max())) >= len(frame.colors):
            raise DamagedGif(
                f"found color index {most} outside of color map range {len(frame.colors)}"
            )
        rows, columns = indices.shape
        place = result[number, frame.top : frame.top + rows, frame.left : frame.left + columns]
        place[:] = frame.colors[indices]
    return result
