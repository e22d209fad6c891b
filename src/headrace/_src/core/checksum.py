"""CRC-32C in the form that checkpoints and record files store. In: bytes. Out: masked checksums.

A checksum over data that holds checksums would be weak, so stored ones are rotated and offset.
"""

from __future__ import annotations

from typing import Any

import google_crc32c

__all__ = ["extend", "mask", "masked"]

_OFFSET = 0xA282EAD8
_WORD = 0xFFFFFFFF


def extend(crc: int, data: Any) -> int:
    """Extend the checksum `crc` of earlier data by `data` (bytes or an array)."""
    return google_crc32c.extend(crc, data)


def mask(crc: int) -> int:
    """Convert a checksum to its stored form."""
    return ((crc >> 15 | crc << 17) + _OFFSET) & _WORD


def masked(data: Any) -> int:
    """The stored form of the checksum of `data`."""
    return mask(extend(0, data))
