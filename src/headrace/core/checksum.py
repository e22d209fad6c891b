"""CRC-32C as checkpoints and files of records keep it. In: bytes. Out: masked checksums.

A checksum over data that holds checksums would be weak, so stored ones are rotated and offset.
"""

from __future__ import annotations

from typing import Any

import google_crc32c

__all__ = ["extend", "mask", "masked"]

_OFFSET = 0xA282EAD8
_WORD = 0xFFFFFFFF


def extend(crc: int, data: Any) -> int:
    """The checksum of what `crc` is the checksum of, followed by `data` (bytes or an array)."""
    return google_crc32c.extend(crc, data)


def mask(crc: int) -> int:
    """A checksum in the form in which it's stored."""
    return ((crc >> 15 | crc << 17) + _OFFSET) & _WORD


def masked(data: Any) -> int:
    """The stored form of the checksum of `data`."""
    return mask(extend(0, data))
