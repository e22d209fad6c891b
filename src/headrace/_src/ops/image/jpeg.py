"""JPEG files. In: bytes, or pixels. Out: pixels, or bytes.

The work is libjpeg-turbo's, which is TensorFlow's codec too, so that pixels and files are equal to
the last bit. Two packages have it, and each does what the other can't: simplejpeg decodes with the
transform and the upsampling that are asked for, Pillow encodes with all options. Both come with
`pip install headrace[images]`, and are imported when a step first needs them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np

from headrace._src.core.errors import UnimplementedError
from headrace._src.devices.room import check_room

__all__ = ["MAGIC", "Decoding", "decode_jpeg", "encode_jpeg", "jpeg_shape", "with_xmp"]

MAGIC = b"\xff\xd8\xff"
_STANDALONE = {0x01, *range(0xD0, 0xD8)}  # markers without contents
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of frames
_START_OF_SCAN, _END = 0xDA, 0xD9
_MOST_EXPANSION = 1 << 12  # pixels that a byte can stand for; a block of 64 takes at least a bit
_ANYTHING = b"\x55" * 256 + b"\xff\xd9"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


@dataclass(frozen=True)
class Decoding:
    """How to decode: attributes of DecodeJpeg."""

    ratio: int = 1
    fancy_upscaling: bool = True
    try_recover_truncated: bool = False
    acceptable_fraction: float = 1.0
    dct_method: bytes = b""


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UnimplementedError(
            None,
            None,
            f"JPEG files need the package {name.split('.')[0]!r}, which can't be imported "
            f"({error}). Install it with: pip install headrace[images]",
        ) from None


@dataclass(frozen=True)
class _Header:
    height: int
    width: int
    components: int
    group: int  # rows that are decoded together
    adobe: bool
    data: int  # where the first scan begins


def _header(data: bytes) -> _Header:
    """Read the markers up to the first scan; ValueError if there is none."""
    position, adobe = 2, False
    frame: tuple[int, int, int, int] | None = None
    if data[:2] != MAGIC[:2]:
        raise ValueError("it doesn't begin as JPEG files do")
    while True:
        position = data.find(b"\xff", position)
        if position < 0 or position + 1 >= len(data):
            raise ValueError("it ends before the pixels")
        kind = data[position + 1]
        if kind in (0x00, 0xFF) or kind in _STANDALONE:
            position += 1 if kind == 0xFF else 2
            continue
        if kind == _END or position + 4 > len(data):
            raise ValueError("it ends before the pixels")
        (size,) = struct.unpack_from(">H", data, position + 2)
        content = data[position + 4 : position + 2 + size]
        if size < 2 or len(content) < size - 2:
            raise ValueError("it ends within a marker")
        if kind in _FRAMES:
            if len(content) < 6:
                raise ValueError("a frame's marker is too short")
            height, width, components = struct.unpack_from(">HHB", content, 1)
            group = max(factors & 15 for factors in content[7 : 6 + 3 * components : 3] or b"\1")
            frame = height, width, components, group
        elif kind == 0xEE and content[:5] == b"Adobe":
            adobe = True
        position += 2 + size
        if kind == _START_OF_SCAN:
            if frame is None or not all(frame[:3]):
                raise ValueError("it has no frame")
            return _Header(*frame, adobe, position)


def jpeg_shape(data: bytes) -> tuple[int, int, int]:
    """Return (height, width, channels) of a JPEG file, from its header."""
    found = _header(data)
    return found.height, found.width, found.components


def decode_jpeg(
    data: bytes, channels: int, how: Decoding, window: tuple[int, int, int, int] | None = None
) -> np.ndarray:
    """Return uint8[height, width, channels], or a window (top, left, height, width) of it; channels
    0: as many as the file has.

    ValueError if the file is damaged or the window isn't within the image.
    """
    simplejpeg = _package("simplejpeg")
    header = _header(data)
    if channels == 1 and header.components == 4:
        raise ValueError("four components can't become one channel")
    height, width = (-(-n // how.ratio) for n in (header.height, header.width))
    if window is not None:
        _check_window(window, height, width)
    pixels_per_byte = header.height * header.width / (len(data) - header.data + 1)
    if pixels_per_byte > _MOST_EXPANSION and not how.try_recover_truncated:
        raise ValueError("Premature end of JPEG file")
    check_room((header.height, header.width, 4), np.uint8, "the header of the image")
    channels = channels or (1 if header.components == 1 else 3)
    spaces = {1: "GRAY", 3: "RGB"}
    options = {
        "colorspace": "CMYK" if header.components == 4 else spaces[channels],
        "fastdct": how.dct_method != b"INTEGER_ACCURATE",  # TensorFlow's default is the fast one
        "fastupsample": not how.fancy_upscaling,
        "min_height": height,
        "min_width": width,
        "strict": False,  # a warning is no error
    }
    pixels = simplejpeg.decode_jpeg(data, **options)
    if not how.try_recover_truncated and _is_truncated(data, header):
        # The rows that were read are those that don't depend on what follows.
        other = simplejpeg.decode_jpeg(data + _ANYTHING, **options)
        differing = np.flatnonzero((pixels != other).any(axis=(1, 2)))
        rows = int(differing[0]) // header.group * header.group if differing.size else height
        if rows < how.acceptable_fraction * height or not differing.size:
            raise ValueError("Premature end of JPEG file")
        pixels[rows:] = 0
    if header.components == 4:
        pixels = _rgb_of_cmyk(pixels, header.adobe)
    if window is not None:
        top, left, rows, columns = window
        pixels = np.ascontiguousarray(pixels[top : top + rows, left : left + columns])
    return pixels


def _check_window(window: tuple[int, int, int, int], height: int, width: int) -> None:
    top, left, rows, columns = window
    if min(top, left) < 0 or min(rows, columns) <= 0:
        raise ValueError(f"the window {list(window)} is empty or begins outside of the image")
    if top + rows > height or left + columns > width:
        raise ValueError(f"the window {list(window)} isn't within {height} x {width} pixels")


def _is_truncated(data: bytes, header: _Header) -> bool:
    """Whether the file lacks the marker of its end."""
    return data.rfind(b"\xff\xd9", header.data) < 0


def _rgb_of_cmyk(pixels: np.ndarray, inverted: bool) -> np.ndarray:
    wide = pixels.astype(np.int32)
    if not inverted:  # Adobe's programs store what is left of the light
        wide = 255 - wide
    return (wide[:, :, :3] * wide[:, :, 3:] // 255).astype(np.uint8)


def encode_jpeg(
    image: np.ndarray,
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: bytes = b"in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: bytes = b"",
) -> bytes:
    """Return a JPEG file of a uint8[height, width, 1 or 3]."""
    pillow = _package("PIL.Image")
    channels = image.shape[2]
    file = BytesIO()
    pillow.fromarray(image if channels == 3 else image[:, :, 0]).save(
        file,
        "JPEG",
        quality=quality,
        progressive=progressive,
        optimize=optimize_size,
        subsampling=2 if chroma_downsampling and channels == 3 else 0,
    )
    data = bytearray(file.getvalue())
    # The first marker is JFIF's: its version, then the unit and the densities.
    struct.pack_into(">BHH", data, 13, 1 if density_unit == b"in" else 2, x_density, y_density)
    return with_xmp(bytes(data), xmp_metadata)


def with_xmp(data: bytes, metadata: bytes) -> bytes:
    """Return the file with a marker that holds the metadata, after JFIF's."""
    if not metadata:
        return data
    content = _XMP + metadata
    if len(content) + 2 > 0xFFFF:
        raise ValueError(f"xmp_metadata has {len(metadata)} bytes, more than one marker can hold")
    marker = b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content
    return data[:20] + marker + data[20:]
