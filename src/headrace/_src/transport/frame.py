"""The form of a message. In: a Frame. Out: buffers to send; and back (see `decoder`).

A frame on the wire is a header, a head (bytes of the user), a table of tensors and a body:

    header   magic+version u32 | kind u8 | flags u8 | tensors u16 | number u64
             | length of head u32 | length of table u32 | length of body u64
    table    one entry per tensor: dtype u8 | rank u8 | place u8 | zero u8 | slab u32 | bytes u64
             | dimensions u64...; for a tensor in a slab also: offset u64 | lease u64
    body     the bytes of the tensors whose place is INLINE, each padded to a multiple of 16

All numbers are little-endian. dtype is the number of TensorFlow's DataType; 0 is a dead tensor,
which is None in Python. A string tensor is one u32 length per element, then all the elements.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from headrace._src.core import dtypes

__all__ = [
    "ALIGN",
    "DEAD",
    "Frame",
    "INLINE",
    "INTERNAL",
    "MAX_BODY",
    "MAX_ELEMENTS",
    "MAX_HEAD",
    "MAX_INTERNAL",
    "MAX_RANK",
    "MAX_STRING",
    "MAX_TENSORS",
    "Placed",
    "ProtocolError",
    "SLAB",
    "as_array",
    "encode",
    "encode_small",
    "joined",
]

if sys.byteorder != "little":  # tensors travel as they are in memory
    raise ImportError("Headrace's transport needs a little-endian processor")

MAGIC: Final = int.from_bytes(b"HRF\x01", "little")  # the last byte is the protocol's version
HEADER: Final = struct.Struct("<IBBHQIIQ")
ENTRY: Final = struct.Struct("<BBBBIQ")
LEASE: Final = struct.Struct("<QQ")
DIMENSIONS: Final = tuple(struct.Struct(f"<{rank}Q") for rank in range(33))

INTERNAL: Final = 1  # flag: a frame of the link itself, which its user does not see
INLINE: Final = 0  # place: in the body
SLAB: Final = 1  # place: in shared memory that both processes have mapped
DEAD: Final = 0  # dtype: no value

MAX_HEAD: Final = 64 << 20  # a GraphDef must fit
MAX_INTERNAL: Final = 32 << 10  # the head of an internal frame
MAX_TENSORS: Final = 65_535
MAX_RANK: Final = 32
MAX_STRING: Final = (1 << 32) - 1
MAX_ELEMENTS: Final = 1 << 40
MAX_BODY: Final = 1 << 40
MAX_ENTRY: Final = ENTRY.size + 8 * MAX_RANK + LEASE.size
ALIGN: Final = 16

_SMALL: Final = 64 << 10  # bytes: below it a copy costs less than another buffer to send
_KEPT: Final = 4096  # prepared entries


class ProtocolError(Exception):
    """A peer sent bytes that are no valid frame. The connection cannot be used any more."""


class Frame(NamedTuple):
    """A message.

    kind: 0 to 255, with the user's meaning
    number: 0 to 2**64 - 1, such as a request or a step; 0 is no answer to any request
    head: bytes with the user's meaning, at most MAX_HEAD
    tensors: NumPy arrays; None is a dead tensor. `bytes` and NumPy scalars may be sent as well, and
        arrive as arrays without dimensions. Strings are object arrays of bytes.
    """

    kind: int
    number: int = 0
    head: bytes = b""
    tensors: tuple[Any, ...] = ()


class Placed(NamedTuple):
    """Where a tensor is in shared memory."""

    slab: int
    offset: int
    lease: int


# The numeric types that travel: those with a NumPy type and a meaning outside of the process.
NUMPY_OF_CODE: Final[dict[int, np.dtype]] = {
    code: dtypes.DType(code).numpy for code in (*range(1, 7), *range(8, 20), 22, 23)
}
STRING: Final = dtypes.string.enum
_DEAD_ENTRY: Final = ENTRY.pack(DEAD, 0, INLINE, 0, 0, 0)
_PADDING: Final = tuple(bytes(-n % ALIGN) for n in range(ALIGN))
_OBJECT: Final = np.dtype(object)
_pack_header: Final = HEADER.pack

# For each type and shape that was sent: the entry of the table, the bytes, the padding.
_entries: dict[tuple[Any, Any], tuple[bytes, int, bytes]] = {}

Place = Callable[[np.ndarray, int], Placed | None]


def encode(
    frame: Frame, place: Place | None = None, flags: int = 0, large: int = sys.maxsize
) -> list[bytes | memoryview]:
    """Return the buffers that are the frame on the wire. Large tensors are not copied: they must
    not change until they are sent.

    place: says where in shared memory an array of at least `large` bytes is, None: nowhere
    """
    kind, number, head, tensors = frame
    if len(head) > MAX_HEAD:
        raise ValueError(f"a frame's head has at most {MAX_HEAD} bytes: {len(head)}")
    if not tensors:
        return [_pack_header(MAGIC, kind, flags, 0, number, len(head), 0, 0) + head]
    table: list[bytes] = []
    body: list[Any] = []
    size = 0
    scattered = False
    for tensor in tensors:
        if type(tensor) is not np.ndarray:
            if tensor is None:
                table.append(_DEAD_ENTRY)
                continue
            tensor = as_array(tensor)
        prepared = _entries.get((tensor.dtype, tensor.shape))
        if prepared is None:
            tensor = as_array(tensor)
            if tensor.dtype == _OBJECT:
                entry, data = _encode_strings(tensor)
                table.append(entry)
                body += data
                size += sum(map(len, data))
                scattered = scattered or size >= _SMALL
                continue
            prepared = _prepare(tensor)
        entry, nbytes, padding = prepared
        if nbytes < _SMALL:
            table.append(entry)
            body.append(tensor.tobytes())
        else:
            if nbytes >= large and place is not None:
                placed = place(tensor, nbytes)
                if placed is not None:
                    table.append(_slab_entry(tensor, nbytes, placed))
                    continue
            table.append(entry)
            body.append(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
            scattered = True
        body.append(padding)
        size += nbytes + len(padding)
    if len(tensors) > MAX_TENSORS or size > MAX_BODY:
        raise ValueError(
            f"a frame has at most {MAX_TENSORS} tensors of {MAX_BODY} bytes together: "
            f"{len(tensors)} tensors, {size} bytes"
        )
    entries = b"".join(table)
    header = HEADER.pack(MAGIC, kind, flags, len(tensors), number, len(head), len(entries), size)
    if scattered:
        return joined([header, head, entries, *body])
    return [b"".join((header, head, entries, *body))]


def encode_small(frame: Frame) -> bytes | None:
    """Return a frame on the wire, as `encode` does, if it is like most frames of small steps: its
    only tensor, if it has any, is small, and its type and shape were sent before. Otherwise None.
    """
    kind, number, head, tensors = frame
    size = len(head)
    if size > _SMALL:
        return None
    if not tensors:
        return _pack_header(MAGIC, kind, 0, 0, number, size, 0, 0) + head
    if len(tensors) != 1:
        return None
    tensor = tensors[0]
    try:
        prepared = _entries.get((tensor.dtype, tensor.shape))
    except AttributeError:  # dead, or bytes
        return None
    if prepared is None or prepared[1] >= _SMALL:
        return None
    entry, nbytes, padding = prepared
    body = nbytes + len(padding)
    header = _pack_header(MAGIC, kind, 0, 1, number, size, len(entry), body)
    return b"".join((header, head, entry, tensor.tobytes(), padding))


def as_array(value: Any) -> np.ndarray:
    """Return a value that may travel as an array of a type that travels, in native byte order."""
    if isinstance(value, bytes):
        array = np.empty((), _OBJECT)
        array[()] = value
        return array
    array = np.asarray(value)
    if array.dtype.kind in "SU":
        return array.astype(_OBJECT)
    if array.dtype == _OBJECT or array.dtype in dtypes_that_travel:
        return array
    if array.dtype.newbyteorder("=") in dtypes_that_travel:
        return array.astype(array.dtype.newbyteorder("="))
    raise TypeError(f"tensors of type {array.dtype} cannot be sent to another process")


dtypes_that_travel: Final[dict[np.dtype, int]] = {
    dtype: code for code, dtype in NUMPY_OF_CODE.items()
}


def string_lengths(shape: Sequence[int]) -> int:
    """Return the bytes of the lengths that a string tensor begins with."""
    return 4 * prod(shape)


def _prepare(array: np.ndarray) -> tuple[bytes, int, bytes]:
    code = dtypes_that_travel[array.dtype]
    entry = _entry(code, INLINE, array.shape, array.nbytes)
    if len(_entries) >= _KEPT:
        _entries.clear()
    prepared = _entries[array.dtype, array.shape] = (
        entry,
        array.nbytes,
        _PADDING[array.nbytes % ALIGN],
    )
    return prepared


def _entry(code: int, place: int, shape: tuple[int, ...], nbytes: int, slab: int = 0) -> bytes:
    rank = len(shape)
    if rank > MAX_RANK:
        raise ValueError(f"a tensor that is sent has at most {MAX_RANK} dimensions: {rank}")
    return ENTRY.pack(code, rank, place, 0, slab, nbytes) + DIMENSIONS[rank].pack(*shape)


def _slab_entry(array: np.ndarray, nbytes: int, placed: Placed) -> bytes:
    code = dtypes_that_travel[array.dtype]
    front = _entry(code, SLAB, array.shape, nbytes, placed.slab)
    return front + LEASE.pack(placed.offset, placed.lease)


def _encode_strings(array: np.ndarray) -> tuple[bytes, list[bytes]]:
    """Return a string tensor's entry and its part of the body."""
    elements = [_as_bytes(element) for element in array.reshape(-1).tolist()]
    lengths = list(map(len, elements))
    if lengths and max(lengths) > MAX_STRING:
        raise ValueError(f"a string that is sent has at most {MAX_STRING} bytes: {max(lengths)}")
    nbytes = 4 * len(lengths) + sum(lengths)
    data = b"".join((np.array(lengths, "<u4").tobytes(), *elements))
    return _entry(STRING, INLINE, array.shape, nbytes), [data, _PADDING[nbytes % ALIGN]]


def _as_bytes(element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise TypeError(
        f"an array of objects is sent as strings, but has an element of type "
        f"{type(element).__name__}"
    )


def joined(buffers: list[Any]) -> list[bytes | memoryview]:
    """Join neighbouring small buffers, so that few are given to the system."""
    result: list[bytes | memoryview] = []
    small: list[bytes] = []
    for buffer in buffers:
        if len(buffer) < _SMALL:
            small.append(buffer)
            continue
        if small:
            result.append(b"".join(small))
            small = []
        result.append(buffer)
    if small:
        result.append(b"".join(small))
    return [buffer for buffer in result if len(buffer)]
