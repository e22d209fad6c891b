"""Encode tensors as the bytes of a bundle's data file, with checksums; and back.

Numbers are stored as little-endian bytes. A string tensor is stored as the lengths as varints, a
checksum of the lengths, and the strings. The checksums cover each length as a number of four bytes
(eight, if it needs them), not as its varint.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from headrace._src.checkpoint.table import read_varint, varint
from headrace._src.core import dtypes
from headrace._src.core.checksum import extend, mask
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import DataLossError, InvalidArgumentError

__all__ = ["read_array", "write_array"]

_CHUNK = 1 << 22  # bytes per checksum and write
_MAX_LENGTH_32 = 0xFFFFFFFF


def write_array(array: np.ndarray, write: Callable[[Any], None]) -> tuple[int, int]:
    """Write a tensor; return the number of bytes written and their masked checksum."""
    if array.dtype == object:
        return _write_strings(array, write)
    flat = np.ascontiguousarray(_little_endian(array)).reshape(-1).view(np.uint8)
    crc = 0
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        crc = extend(crc, chunk)
        write(chunk)
    return flat.size, mask(crc)


def _little_endian(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "V" or array.dtype.itemsize == 1:
        return array  # bytes, bfloat16 and quantized types need no swap
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _write_strings(array: np.ndarray, write: Callable[[Any], None]) -> tuple[int, int]:
    strings = array.reshape(-1).tolist()
    for text in strings:
        if not isinstance(text, bytes):
            raise InvalidArgumentError(
                None, None, f"only numbers and strings can be saved, not {type(text).__name__}"
            )
    lengths = [len(text) for text in strings]
    crc = extend(0, _lengths_as_checked(lengths))
    checked = struct.pack("<I", mask(crc))
    head = b"".join(map(varint, lengths)) + checked
    body = b"".join(strings)
    write(head)
    write(body)
    return len(head) + len(body), mask(extend(extend(crc, checked), body))


def _lengths_as_checked(lengths: list[int]) -> bytes:
    return b"".join(struct.pack("<I" if n <= _MAX_LENGTH_32 else "<Q", n) for n in lengths)


def read_array(
    read_into: Callable[[memoryview], int],
    size: int,
    crc: int,
    dtype: DType,
    shape: tuple[int, ...],
) -> np.ndarray:
    """Read a tensor of `size` bytes; raise DataLossError if they aren't the bytes that were
    written.
    """
    if dtype is not dtypes.string:
        expected = math.prod(shape) * dtype.size
        if size != expected:
            raise _lost(f"{expected} bytes are needed, and {size} were saved")
        result = np.empty(shape, dtype.numpy)
        flat = result.reshape(-1).view(np.uint8) if size else np.empty(0, np.uint8)
        _fill(read_into, flat, crc)
        return result if sys.byteorder == "little" else result.byteswap()
    data = np.empty(size, np.uint8)
    if read_into(data.data) != size:
        raise _lost("the data file ends too early")
    return _parse_strings(data.tobytes(), crc, shape)


def _fill(read_into: Callable[[memoryview], int], flat: np.ndarray, crc: int) -> None:
    found = 0
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        if read_into(chunk.data) != chunk.size:
            raise _lost("the data file ends too early")
        found = extend(found, chunk)
    if mask(found) != crc:
        raise _lost(f"Checksum does not match: stored {crc} vs. calculated {mask(found)}")


def _parse_strings(data: bytes, crc: int, shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    if count > len(data):
        raise _lost(f"{len(data)} bytes can't hold {count} strings")
    lengths, at = [], 0
    for _ in range(count):
        length, at = read_varint(data, at)
        lengths.append(length)
    body = at + 4
    if body + sum(lengths) != len(data):
        raise _lost("the lengths of the strings don't add up")
    found = extend(0, _lengths_as_checked(lengths))
    checked = data[at:body]
    if struct.pack("<I", mask(found)) != checked:
        raise _lost("Checksum of the lengths of strings does not match")
    found = extend(extend(found, checked), data[body:])
    if mask(found) != crc:
        raise _lost(f"Checksum does not match: stored {crc} vs. calculated {mask(found)}")
    result = np.empty(count, object)
    ends = np.cumsum([body, *lengths]).tolist()
    result[:] = [data[start:end] for start, end in pairwise(ends)]
    return result.reshape(shape)


def _lost(message: str) -> DataLossError:
    return DataLossError(None, None, message)
