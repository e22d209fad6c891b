"""BMP files. In: bytes. Out: pixels.

As in TensorFlow, a file has 8 bits of gray, or 24 or 32 bits of color, and is not compressed.
"""

from __future__ import annotations

import struct

import numpy as np

__all__ = ["MAGIC", "decode_bmp"]

MAGIC = b"BM"
_HEADER = 32  # bytes up to what is read of the headers


def decode_bmp(data: bytes, channels: int) -> np.ndarray:
    """Return the pixels as uint8[height, width, channels]; channels 0: as many as the file has."""
    if len(data) < _HEADER:
        raise ValueError(f"Incomplete bmp content, requires at least 32 bytes, got {len(data)}")
    offset, _, width, height, _, bits = struct.unpack_from("<iiiiHi", data, 10)
    found = bits // 8
    if channels and found != channels:
        raise ValueError(
            f"channels attribute {channels} does not match bits per pixel from file {found}"
        )
    if found not in (1, 3, 4):
        raise ValueError(f"Number of channels must be 1, 3 or 4, was {found}")
    rows = abs(height)
    if width <= 0 or rows == 0:
        raise ValueError(f"bmp image of {rows} x {width} pixels")
    size = (width * found + 3) // 4 * 4
    if offset < 0 or offset + size * rows > len(data):
        raise ValueError(
            f"Incomplete bmp content, requires at least {offset + size * rows} bytes, "
            f"got {len(data)} bytes"
        )
    pixels = np.frombuffer(data, np.uint8, size * rows, offset).reshape(rows, size)
    pixels = pixels[:, : width * found].reshape(rows, width, found)
    if height > 0:  # the usual order: from the bottom up
        pixels = pixels[::-1]
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[found]  # blue comes first
    return np.ascontiguousarray(pixels[:, :, order])
