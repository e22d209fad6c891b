"""PNG files. In: bytes, or pixels of 8 or 16 bits. Out: pixels with the channels that are asked
for, or bytes.

Decoding follows libpng as TensorFlow sets it up. Damage is a ValueError, and is found before memory
is taken for more pixels than the file can hold.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headrace._src.devices.room import check_room

__all__ = ["MAGIC", "decode_png", "encode_png"]

MAGIC = b"\x89PNG\r\n\x1a\n"
_PALETTE = 3
_CHANNELS = {0: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}  # by the file's type of color
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), _PALETTE: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by the number of channels
# First row, first column, step of rows and of columns, of each pass of an interlaced image.
_ADAM7 = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)
_LUMINANCE = np.array([9797, 19234, 3737])  # of red, green and blue, in 1/32768
_MOST_EXPANSION = 1032  # bytes that zlib can make of one
_CRITICAL = 0x20  # a bit of a chunk's name; it is off if the chunk can't be ignored


class DamagedPng(ValueError):
    """The file isn't a PNG file, or is broken."""


@dataclass
class _File:
    """What the chunks say."""

    width: int
    height: int
    bits: int
    color: int
    interlaced: bool
    palette: np.ndarray | None = None
    transparency: bytes | None = None
    gamma: float = 0.0
    parts: list[bytes] = field(default_factory=list)

    @property
    def channels(self) -> int:
        return _CHANNELS[self.color]


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and contents of chunks. A damaged chunk that can be ignored is left out."""
    position = len(MAGIC)
    while position < len(data):
        if position + 8 > len(data):
            raise DamagedPng("it ends within a chunk")
        (size,) = struct.unpack_from(">I", data, position)
        name = data[position + 4 : position + 8]
        content = data[position + 8 : position + 8 + size]
        end = position + 12 + size
        if end > len(data):
            raise DamagedPng("it ends within a chunk")
        (wanted,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(name + content) != wanted:
            if not name[0] & _CRITICAL:
                raise DamagedPng(f"the checksum of a chunk {name!r} is wrong")
        else:
            yield name, content
        position = end


def _read(data: bytes) -> _File:
    if not data.startswith(MAGIC):
        raise DamagedPng("it doesn't begin as PNG files do")
    chunks = _chunks(data)
    name, content = next(chunks, (b"", b""))
    if name != b"IHDR" or len(content) != 13:
        raise DamagedPng("it has no header")
    width, height, bits, color, packing, filtering, interlacing = struct.unpack(">IIBBBBB", content)
    if not 0 < width < 1 << 31 or not 0 < height < 1 << 31:
        raise DamagedPng(f"an image of {height} x {width} pixels")
    if bits not in _DEPTHS.get(color, ()) or packing or filtering or interlacing > 1:
        raise DamagedPng("the header asks for an unknown format")
    found = _File(width, height, bits, color, bool(interlacing))
    for name, content in chunks:
        if name == b"IEND":
            break
        if name == b"IDAT":
            if color == _PALETTE and found.palette is None:
                raise DamagedPng("it lacks a palette")
            found.parts.append(content)
        elif name == b"PLTE" and color == _PALETTE:
            if not content or len(content) % 3 or len(content) > 768:
                raise DamagedPng("the palette's size is wrong")
            found.palette = np.frombuffer(content, np.uint8).reshape(-1, 3)
        elif name == b"tRNS":
            _take_transparency(found, content)
        elif name == b"gAMA" and len(content) == 4 and color != _PALETTE and not found.gamma:
            found.gamma = struct.unpack(">I", content)[0] / 100000
        elif name == b"sRGB" and len(content) == 1 and color != _PALETTE:
            found.gamma = 0.45455
        elif not name[0] & _CRITICAL and name != b"PLTE":
            raise DamagedPng(f"an unknown chunk {name!r}")
    else:
        raise DamagedPng("it has no end")
    if not found.parts:
        raise DamagedPng("it has no pixels")
    return found


def _take_transparency(found: _File, content: bytes) -> None:
    sizes = {0: 2, 2: 6}
    if found.color == _PALETTE:
        if found.palette is not None and 0 < len(content) <= len(found.palette):
            found.transparency = content
    elif len(content) == sizes.get(found.color):
        found.transparency = content


# -- From bytes to samples


def _passes(found: _File) -> list[tuple[int, int, int, int]]:
    """Return the passes that have pixels."""
    passes = _ADAM7 if found.interlaced else ((0, 0, 1, 1),)
    return [p for p in passes if p[0] < found.height and p[1] < found.width]


def _sizes(found: _File, part: tuple[int, int, int, int]) -> tuple[int, int, int]:
    """Return the rows and columns of a pass, and the bytes of a row without its filter."""
    top, left, down, right = part
    rows = -(-(found.height - top) // down)
    columns = -(-(found.width - left) // right)
    return rows, columns, -(-columns * found.channels * found.bits // 8)


def _samples(found: _File) -> np.ndarray:
    """Return the samples as they are stored: uint8 or uint16[height, width, channels]."""
    passes = _passes(found)
    sizes = [_sizes(found, p) for p in passes]
    total = sum(rows * (width + 1) for rows, _, width in sizes)
    packed = b"".join(found.parts)
    if total > _MOST_EXPANSION * len(packed) + _MOST_EXPANSION:
        raise DamagedPng("Not enough image data")
    dtype = np.uint16 if found.bits == 16 else np.uint8
    shape = found.height, found.width, found.channels
    check_room(shape, dtype, "the header of the image")
    try:
        data = zlib.decompressobj().decompress(packed, total)
    except zlib.error as error:
        raise DamagedPng(str(error)) from None
    if len(data) < total:
        raise DamagedPng("Not enough image data")
    pixels = np.empty(shape, dtype)
    position = 0
    for (top, left, down, right), (rows, columns, width) in zip(passes, sizes, strict=True):
        block = np.frombuffer(data, np.uint8, rows * (width + 1), position)
        position += block.size
        block = block.reshape(rows, width + 1)
        plain = _unfiltered(block[:, 0], block[:, 1:], max(1, found.channels * found.bits // 8))
        values = _unpacked(plain, found.bits)[:, : columns * found.channels]
        pixels[top::down, left::right] = values.reshape(rows, columns, found.channels)
    return pixels


def _unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return rows
    if bits == 16:
        return rows.view(">u2")
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return (rows[:, :, None] >> shifts & ((1 << bits) - 1)).reshape(len(rows), -1)


def _unfiltered(filters: np.ndarray, rows: np.ndarray, step: int) -> np.ndarray:
    """Return rows from their differences to the bytes beside and above them; `step` bytes are a
    pixel.
    """
    kinds = set(filters.tolist())
    if not kinds <= {0, 1, 2, 3, 4}:
        raise DamagedPng("bad adaptive filter value")
    count, width = rows.shape
    if kinds == {0}:
        return np.ascontiguousarray(rows)
    pixels = rows.reshape(count, width // step, step)
    if kinds <= {0, 1, 2}:
        result = np.empty_like(pixels)
        above = np.zeros_like(pixels[0])
        for kind, row, out in zip(filters.tolist(), pixels, result, strict=True):
            if kind == 1:
                np.cumsum(row, axis=0, dtype=np.uint8, out=out)
            else:
                np.add(row, above if kind == 2 else 0, out=out)
            above = out
        return result.reshape(count, width)
    return _unfiltered_diagonals(filters, pixels).reshape(count, width)


def _unfiltered_diagonals(filters: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Return unfiltered pixels. A pixel needs the one to its left and the ones above: all pixels of
    a diagonal are computed at once.
    """
    count, width, step = pixels.shape
    # A column of zeros to the left and a row of zeros above, which also makes the next pixel of a
    # diagonal `width` places away.
    padded = np.zeros((count + 1, width + 1, step), np.uint8)
    padded[1:, 1:] = pixels
    flat = padded.reshape(-1, step)
    kinds = filters.astype(np.int16)[:, None]
    takes_left, takes_above = kinds == 1, kinds == 2
    takes_mean, takes_paeth = kinds == 3, kinds == 4
    for diagonal in range(count + width - 1):
        first = max(0, diagonal - width + 1)
        last = min(count - 1, diagonal)
        start = (first + 1) * (width + 1) + diagonal - first + 1
        stop = start + (last - first) * width + 1
        rows = slice(first, last + 1)
        left = flat[start - 1 : stop - 1 : width].astype(np.int16)
        above = flat[start - width - 1 : stop - width - 1 : width].astype(np.int16)
        corner = flat[start - width - 2 : stop - width - 2 : width].astype(np.int16)
        to_left, to_above = np.abs(above - corner), np.abs(left - corner)
        to_corner = np.abs(left + above - 2 * corner)
        near_left = (to_left <= to_above) & (to_left <= to_corner)
        paeth = np.where(near_left, left, np.where(to_above <= to_corner, above, corner))
        guess = takes_left[rows] * left + takes_above[rows] * above
        guess += takes_mean[rows] * ((left + above) >> 1) + takes_paeth[rows] * paeth
        flat[start:stop:width] += guess.astype(np.uint8)
    return padded[1:, 1:]


# -- From samples to the channels that are asked for


def decode_png(data: bytes, channels: int, dtype: np.dtype) -> np.ndarray:
    """Return the pixels as dtype[height, width, channels]; channels 0: as many as the file has."""
    found = _read(data)
    pixels = _samples(found)
    alpha = None
    full = (1 << found.bits) - 1
    if found.color == _PALETTE:
        assert found.palette is not None
        if channels == 0:
            channels = 3 if found.transparency is None else 4
        pixels, alpha = _from_palette(found, pixels[:, :, 0])
    else:
        channels = channels or found.channels
        if found.channels in (2, 4):
            pixels, alpha = pixels[:, :, :-1], pixels[:, :, -1]
        elif found.transparency is not None:
            alpha = _transparent(found, pixels)
        if found.bits < 8:
            pixels = pixels * np.uint8(255 // full)
    if alpha is None and channels % 2 == 0:
        alpha = np.full(pixels.shape[:2], full, pixels.dtype)
    if channels < 3 and pixels.shape[2] == 3:
        pixels = _gray(pixels, found.gamma, dtype == np.uint8)
    elif channels >= 3 and pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    if channels % 2 == 0:
        assert alpha is not None
        pixels = np.concatenate([pixels, alpha[:, :, None]], axis=2)
    if pixels.dtype == np.uint16 and dtype == np.uint8:
        pixels = pixels >> 8
    if pixels.dtype == np.uint8 and dtype == np.uint16:
        return pixels * np.uint16(257)
    return np.ascontiguousarray(pixels, dtype)


def _from_palette(found: _File, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    colors = np.zeros((256, 3), np.uint8)
    assert found.palette is not None
    colors[: len(found.palette)] = found.palette
    if found.transparency is None:
        return colors[indices], None
    opacity = np.full(256, 255, np.uint8)
    opacity[: len(found.transparency)] = np.frombuffer(found.transparency, np.uint8)
    return colors[indices], opacity[indices]


def _transparent(found: _File, pixels: np.ndarray) -> np.ndarray:
    """Return the opacity of pixels, of which those of one color are transparent."""
    assert found.transparency is not None
    color = np.frombuffer(found.transparency, ">u2") & ((1 << found.bits) - 1)
    full = 65535 if pixels.dtype == np.uint16 else 255
    return np.where((pixels == color).all(axis=2), 0, full).astype(pixels.dtype)


def _gray(pixels: np.ndarray, gamma: float, to_8_bits: bool) -> np.ndarray:
    """Return the luminance of RGB pixels. If the file says how its numbers relate to light, light
    is mixed, and numbers otherwise. The rounding is libpng's.
    """
    first = pixels[:, :, 0]
    is_gray = (pixels == pixels[:, :, :1]).all(axis=2)
    is_wide = pixels.dtype == np.uint16
    if not _changes(gamma):
        rounding = 16384 if is_wide else 0
        mixed = (pixels.astype(np.int64) @ _LUMINANCE + rounding) >> 15
        return np.where(is_gray, first, mixed).astype(pixels.dtype)[:, :, None]
    shift = 5 if is_wide and to_8_bits else 0  # libpng's tables have 11 bits then
    light = _to_power(pixels, 1 / gamma, shift)
    mixed = _to_power((light @ _LUMINANCE + 16384) >> 15, gamma, shift, is_wide)
    same = _to_power(first, 1.0, shift)
    return np.where(is_gray, same, mixed).astype(pixels.dtype)[:, :, None]


def _changes(gamma: float) -> bool:
    return gamma > 0 and abs(gamma - 1) >= 0.05


def _to_power(
    values: np.ndarray, exponent: float, shift: int, is_wide: bool | None = None
) -> np.ndarray:
    """Return the numbers, as parts of the largest one, to a power; without their last bits."""
    bits = 16 if values.dtype == np.uint16 or is_wide else 8
    most, top = (1 << (bits - shift)) - 1, (1 << bits) - 1
    parts = (values.astype(np.int64) >> shift) / most
    exponent = round(exponent * 100000) / 100000  # libpng keeps five digits
    return np.floor(top * parts**exponent + 0.5).astype(np.int64)


# -- Encoding


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def encode_png(image: np.ndarray, compression: int = -1) -> bytes:
    """Return a PNG file of a uint8 or uint16[height, width, 1 to 4]."""
    height, width, depth = image.shape
    size = image.dtype.itemsize
    header = struct.pack(">IIBBBBB", width, height, size * 8, _COLOR_TYPES[depth], 0, 0, 0)
    # Rows are stored as differences to the row above (filter 2): smooth images compress well.
    rows = np.ascontiguousarray(image, image.dtype.newbyteorder(">")).view(np.uint8)
    rows = rows.reshape(height, width * depth * size)
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = 2
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    body = _chunk(b"IDAT", zlib.compress(filtered.tobytes(), compression))
    return MAGIC + _chunk(b"IHDR", header) + body + _chunk(b"IEND", b"")
