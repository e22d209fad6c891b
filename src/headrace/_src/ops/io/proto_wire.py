"""Protocol buffers in the wire format. In: bytes, or the values of fields. Out: values, or bytes.

Messages aren't parsed as a whole: parts of unknown fields stay where they are, and the bytes of a
message within a message are given as they were written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["WireField", "encoded", "fields_of", "values_of"]

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_MASK = (1 << 64) - 1


class DamagedMessage(ValueError):
    """The bytes aren't a message."""


@dataclass(frozen=True)
class WireField:
    """How a field is written. number: its number. kind: the name of its type in .proto files.
    packed: whether its repeated values are one piece.
    """

    number: int
    kind: str
    repeated: bool
    packed: bool


# How a type is written, as a format of `struct` if it has a fixed size.
_WIRES = {
    "double": (_FIXED64, "<d"),
    "float": (_FIXED32, "<f"),
    "fixed64": (_FIXED64, "<Q"),
    "sfixed64": (_FIXED64, "<q"),
    "fixed32": (_FIXED32, "<I"),
    "sfixed32": (_FIXED32, "<i"),
    "string": (_BYTES, ""),
    "bytes": (_BYTES, ""),
    "message": (_BYTES, ""),
    "group": (_GROUP, ""),
}
_BITS = {"int32": 32, "uint32": 32, "enum": 32, "sint32": 32}  # of the others: 64


def _wire(kind: str) -> tuple[int, str]:
    return _WIRES.get(kind, (_VARINT, ""))


# -- Reading


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise DamagedMessage("a number is incomplete")
        octet = data[position]
        position += 1
        value |= (octet & 127) << shift
        if octet < 128:
            return value & _MASK, position
        shift += 7


def _piece(data: bytes, position: int, wire: int, depth: int = 0) -> tuple[Any, int]:
    """Return the piece at a position, a number or bytes, and where the next tag is."""
    if wire == _VARINT:
        return _varint(data, position)
    if wire == _GROUP:
        start = position
        while depth < 100:
            tag, after = _varint(data, position)
            if tag & 7 == _END_GROUP:
                return data[start:position], after
            _, position = _piece(data, after, tag & 7, depth + 1)
        raise DamagedMessage("groups are nested too deeply")
    size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
    if wire == _BYTES:
        size, position = _varint(data, position)
    if size is None or position + size > len(data):
        raise DamagedMessage("a field is incomplete")
    return data[position : position + size], position + size


def fields_of(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (number, type on the wire, piece) of each field of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if not tag >> 3:
            raise DamagedMessage("a field has no number")
        piece, position = _piece(data, position, tag & 7)
        yield tag >> 3, tag & 7, piece


def values_of(field: WireField, wire: int, piece: Any) -> list[Any]:
    """Return the values that a piece holds; more than one if they are packed. A piece of another
    type than the field's is DamagedMessage.
    """
    wanted, form = _wire(field.kind)
    if wire == wanted:
        return [_value(field.kind, form, piece)]
    if wire != _BYTES or not field.repeated or wanted in (_BYTES, _GROUP):
        raise DamagedMessage(f"field {field.number} isn't written as {field.kind}")
    if form:
        size = struct.calcsize(form)
        if len(piece) % size:
            raise DamagedMessage("packed values are incomplete")
        return [v for (v,) in struct.iter_unpack(form, piece)]
    values, position = [], 0
    while position < len(piece):
        number, position = _varint(piece, position)
        values.append(_value(field.kind, form, number))
    return values


def _value(kind: str, form: str, piece: Any) -> Any:
    if form:
        return struct.unpack(form, piece)[0]
    if isinstance(piece, bytes):
        return piece
    if kind == "bool":
        return bool(piece)
    bits = _BITS.get(kind, 64)
    piece &= (1 << bits) - 1
    if kind.startswith("sint"):
        return (piece >> 1) ^ -(piece & 1)
    if not kind.startswith("u") and piece >> (bits - 1):
        return piece - (1 << bits)
    return piece


# -- Writing


def _as_varint(value: int) -> bytes:
    out = bytearray()
    value &= _MASK
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _as_piece(field: WireField, value: Any) -> bytes:
    wire, form = _wire(field.kind)
    if form:
        if form in ("<f", "<d"):
            return np.array(value, form).tobytes()
        return (int(value) & _MASK).to_bytes(8, "little")[: struct.calcsize(form)]
    if wire == _BYTES:
        return _as_varint(len(value)) + value
    if wire == _GROUP:
        return value + _as_varint(field.number << 3 | _END_GROUP)
    number = int(value)
    bits = _BITS.get(field.kind, 64)
    if field.kind.startswith("sint"):
        number = (number << 1) ^ (number >> (bits - 1))
    elif field.kind == "uint32":
        number &= 0xFFFFFFFF
    return _as_varint(number)


def encoded(field: WireField, values: Sequence[Any]) -> bytes:
    """Return a field with its values."""
    if not values:
        return b""
    pieces = [_as_piece(field, value) for value in values]
    if field.packed:
        body = b"".join(pieces)
        return _as_varint(field.number << 3 | _BYTES) + _as_varint(len(body)) + body
    tag = _as_varint(field.number << 3 | _wire(field.kind)[0])
    return b"".join(tag + piece for piece in pieces)
