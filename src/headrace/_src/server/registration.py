"""What travels when a step is registered with a worker. `about`, in RegisterGraph: the devices of
the partitions; the edges to and from other tasks; whether the step was divided as it is; whether
this task is covered by another (see partition.covers). The payload: a GraphDef for each partition,
with its length before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from headrace._src.core.errors import InvalidArgumentError

__all__ = ["pack", "unpack"]

_LENGTH = Struct("<Q")


def pack(parts: Sequence[bytes]) -> bytes:
    """Return messages as one, each after its length."""
    return b"".join(each for part in parts for each in (_LENGTH.pack(len(part)), part))


def unpack(payload: bytes) -> list[bytes]:
    """Return the messages that were packed."""
    found, position = [], 0
    while position < len(payload):
        if position + _LENGTH.size > len(payload):
            raise InvalidArgumentError(None, None, "the partitions of a step are cut off")
        (length,) = _LENGTH.unpack_from(payload, position)
        position += _LENGTH.size
        if position + length > len(payload):
            raise InvalidArgumentError(None, None, "the partitions of a step are cut off")
        found.append(payload[position : position + length])
        position += length
    return found
