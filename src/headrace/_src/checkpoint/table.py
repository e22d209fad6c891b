"""Sorted string tables. In: pairs of bytes in the order of their keys. Out: a file; and back.

The file is a sequence of blocks. A block holds entries. Each entry omits the prefix that its key
shares with the previous key, except at restart points, whose offsets are listed at the block's end.
A compression byte and a checksum follow the block. After the data blocks come an empty block (for
metadata, which is never written), the index block, which has for each data block a key not before
its last key, and a footer with the positions of these two.

All numbers are little-endian; lengths and positions are varints.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headrace._src.core.checksum import masked
from headrace._src.core.errors import DataLossError, UnimplementedError

__all__ = ["Table", "encode_table", "read_varint", "varint"]

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_BLOCK_BYTES = 1 << 18
_RESTART_INTERVAL = 16
_LONGEST_VARINT = 10


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first; the top bit says that more follow."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_varint(data: Any, at: int) -> tuple[int, int]:
    """Return the number at `at` and the position after it; raise DataLossError if there is none."""
    value = 0
    for i, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise DataLossError(None, None, "corrupted data: a number doesn't end")


# -- Writing ---------------------------------------------------------------------------------------


class _Handle(NamedTuple):
    """The position and size of a block, without its trailer."""

    offset: int
    size: int

    def encode(self) -> bytes:
        return varint(self.offset) + varint(self.size)


class _Block:
    """A block under construction."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._data = bytearray()
        self._restarts = [0]
        self._since_restart = 0
        self._last = b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since_restart == self._interval:
            self._restarts.append(len(self._data))
            self._since_restart = 0
        else:
            shared = _common_prefix(self._last, key)
        self._data += varint(shared) + varint(len(key) - shared) + varint(len(value))
        self._data += key[shared:] + value
        self._last = key
        self._since_restart += 1

    @property
    def size(self) -> int:
        return len(self._data) + 4 * (len(self._restarts) + 1)

    def encode(self) -> bytes:
        count = len(self._restarts)
        return bytes(self._data) + struct.pack(f"<{count + 1}I", *self._restarts, count)


def _common_prefix(left: bytes, right: bytes) -> int:
    for i, (x, y) in enumerate(zip(left, right, strict=False)):
        if x != y:
            return i
    return min(len(left), len(right))


def _separator(left: bytes, right: bytes) -> bytes:
    """Return a short key that is not before `left`, but before `right`."""
    at = _common_prefix(left, right)
    if at < min(len(left), len(right)) and left[at] + 1 < right[at]:
        return left[:at] + bytes([left[at] + 1])
    return left


def _successor(key: bytes) -> bytes:
    """Return a short key that is not before `key`."""
    for i, byte in enumerate(key):
        if byte != 0xFF:
            return key[:i] + bytes([byte + 1])
    return key


def encode_table(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield the pieces of a table's file. Keys must increase strictly."""
    writer = _Writer()
    for key, value in pairs:
        yield from writer.add(key, value)
    yield from writer.finish()


class _Writer:
    """State: the open data block; the last full block, whose index key depends on the next key; the
    index; the number of bytes written.
    """

    def __init__(self) -> None:
        self._block = _Block(_RESTART_INTERVAL)
        self._index = _Block(1)
        self._waiting: _Handle | None = None
        self._last: bytes | None = None
        self._offset = 0

    def add(self, key: bytes, value: bytes) -> Iterator[bytes]:
        if self._last is not None and key <= self._last:
            raise ValueError(f"keys must increase: {key!r} follows {self._last!r}")
        if self._waiting is not None and self._last is not None:
            self._index.add(_separator(self._last, key), self._waiting.encode())
            self._waiting = None
        self._block.add(key, value)
        self._last = key
        if self._block.size >= _BLOCK_BYTES:
            yield self._flush()

    def finish(self) -> Iterator[bytes]:
        if self._waiting is None and self._last is not None:
            yield self._flush()
        meta, piece = self._place(_Block(_RESTART_INTERVAL))
        yield piece
        if self._waiting is not None and self._last is not None:
            self._index.add(_successor(self._last), self._waiting.encode())
        index, piece = self._place(self._index)
        yield piece
        handles = meta.encode() + index.encode()
        yield handles.ljust(_FOOTER_BYTES - len(_MAGIC), b"\0") + _MAGIC

    def _flush(self) -> bytes:
        self._waiting, piece = self._place(self._block)
        self._block = _Block(_RESTART_INTERVAL)
        return piece

    def _place(self, block: _Block) -> tuple[_Handle, bytes]:
        content = block.encode()
        handle = _Handle(self._offset, len(content))
        typed = content + b"\0"  # 0: not compressed
        self._offset += len(typed) + 4
        return handle, typed + struct.pack("<I", masked(typed))


# -- Reading ---------------------------------------------------------------------------------------


class Table:
    """A table file in memory (or memory-mapped). Blocks are checked when they are first read."""

    def __init__(self, data: Any, name: str) -> None:
        self._data = data
        self._name = name
        footer = bytes(data[-_FOOTER_BYTES:])
        if len(footer) < _FOOTER_BYTES:
            raise self._lost("it is too short to be an sstable")
        if footer[-len(_MAGIC) :] != _MAGIC:
            raise self._lost("not an sstable (bad magic number)")
        _, at = read_varint(footer, 0)
        _, at = read_varint(footer, at)
        index, _ = self._handle(footer, at)
        entries = list(self._entries(index))
        self._last_keys = [key for key, _ in entries]
        self._handles = [self._handle(value, 0)[0] for _, value in entries]
        self._cached: tuple[int, dict[bytes, bytes]] | None = None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All pairs, in the order of the keys."""
        for handle in self._handles:
            yield from self._entries(handle)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        at = bisect_left(self._last_keys, key)
        if at == len(self._handles):
            return None
        if self._cached is None or self._cached[0] != at:
            self._cached = at, dict(self._entries(self._handles[at]))
        return self._cached[1].get(key)

    def _handle(self, data: bytes, at: int) -> tuple[_Handle, int]:
        offset, at = read_varint(data, at)
        size, at = read_varint(data, at)
        return _Handle(offset, size), at

    def _content(self, handle: _Handle) -> bytes:
        end = handle.offset + handle.size
        framed = bytes(self._data[handle.offset : end + _TRAILER_BYTES])
        if len(framed) != handle.size + _TRAILER_BYTES:
            raise self._lost("truncated block read")
        typed, stored = framed[:-4], struct.unpack("<I", framed[-4:])[0]
        if masked(typed) != stored:
            raise self._lost("block checksum mismatch")
        if typed[-1] != 0:
            raise UnimplementedError(
                None, None, f"{self._name}: blocks of compression type {typed[-1]} can't be read"
            )
        return typed[:-1]

    def _entries(self, handle: _Handle) -> Iterator[tuple[bytes, bytes]]:
        content = self._content(handle)
        if len(content) < 4:
            raise self._lost("a block without restart points")
        (restarts,) = struct.unpack_from("<I", content, len(content) - 4)
        end = len(content) - 4 * (restarts + 1)
        if end < 0:
            raise self._lost("a block with more restart points than bytes")
        at, key = 0, b""
        while at < end:
            shared, at = read_varint(content, at)
            fresh, at = read_varint(content, at)
            size, at = read_varint(content, at)
            if shared > len(key) or at + fresh + size > end:
                raise self._lost("bad entry in block")
            key = key[:shared] + content[at : at + fresh]
            at += fresh
            yield key, content[at : at + size]
            at += size

    def _lost(self, what: str) -> DataLossError:
        return DataLossError(None, None, f"{self._name}: {what}")
