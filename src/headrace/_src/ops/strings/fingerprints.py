"""Hashes of strings. In: string tensors. Out: the same 64-bit values that TensorFlow computes.

Three functions, each bit for bit: FarmHash's Fingerprint64 (StringToHashBucketFast, Fingerprint),
SipHash-2-4 (StringToHashBucketStrong) and the 64-bit MurmurHash2 that TensorFlow calls Hash64
(StringToHashBucket). All are vectorised over the batch: the strings are concatenated in one buffer,
a word of a string is a gather at a byte offset, and a loop over blocks processes the rows that
still have one: a prefix, since rows are sorted by falling length. The last few run one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.ops.strings.hash_formulas import (
    K1,
    K2,
    MASK,
    MURMUR,
    MURMUR_SEED,
    SIP_START,
    Words,
    farm_1_to_3,
    farm_4_to_7,
    farm_8_to_16,
    farm_17_to_32,
    farm_33_to_64,
    farm_block,
    farm_end,
    farm_start,
    mix,
    murmur_absorb,
    sip_absorb,
    sip_end,
)
from headrace._src.ops.strings.string_arrays import numbers_of, string_array, string_scalar

_FEW = 16  # below this many rows, Python's integers are faster than NumPy's calls


class _Rows:
    """Concatenated strings, the longest first: where each starts, how long it is, its words."""

    def __init__(self, buffer: bytes, starts: np.ndarray, lengths: np.ndarray):
        self.buffer, self.starts, self.lengths = buffer, starts, lengths
        self.sizes = lengths.astype(np.uint64)
        # A word may begin at any byte: views with a stride of one byte make a load a plain gather.
        span = len(buffer) - 7
        self._words64 = np.ndarray((span,), "<u8", buffer, strides=(1,))
        self._words32 = np.ndarray((span,), "<u4", buffer, strides=(1,))
        self._bytes = np.frombuffer(buffer, np.uint8)

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> tuple["_Rows", np.ndarray]:
        """Return the rows and their order, as indices of `strings`."""
        lengths = np.fromiter(map(len, strings), np.int64, count=len(strings))
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        return cls(b"".join(strings) + bytes(8), starts[order], lengths[order]), order

    def __getitem__(self, rows: slice) -> "_Rows":
        return _Rows(self.buffer, self.starts[rows], self.lengths[rows])

    def live(self, blocks: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield (block, number of rows that have it) while many do; `blocks` is each
        row's count.
        """
        for block in range(self._common(blocks)):
            yield block, int(np.searchsorted(-blocks, -block))

    def rest(self, blocks: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """Yield (row, first block, end) for the blocks that only a few rows have."""
        first = self._common(blocks)
        for row, last in enumerate(blocks[:_FEW].tolist()):
            if last > first:
                yield row, first, last

    def _common(self, blocks: np.ndarray) -> int:
        """Return the number of blocks that at least _FEW rows have."""
        return int(blocks[_FEW - 1]) if len(blocks) >= _FEW else 0

    def row(self, index: int) -> "_Row":
        return _Row(self.buffer, int(self.starts[index]))

    def word(self, offset: Any) -> Words:
        """Return the 8 bytes at `offset` of every row; below zero counts from the row's end."""
        return self._words64[self._at(offset)].astype(np.uint64)

    def first_words(self, count: int, offset: int) -> Words:
        """Return the 8 bytes at `offset` of the first `count` rows."""
        return self._words64[self.starts[:count] + offset].astype(np.uint64)

    def half(self, offset: Any) -> Words:
        return self._words32[self._at(offset)].astype(np.uint64)

    def byte(self, offset: Any) -> Words:
        return self._bytes[self._at(offset)].astype(np.uint64)

    def tail(self) -> Words:
        """Return the bytes after the last whole word of every row, as a little-endian number."""
        spare = (self.lengths % 8).astype(np.uint64)
        mask = (np.uint64(1) << (8 * spare)) - 1
        return self.word(self.lengths & ~7) & mask

    def _at(self, offset: Any) -> np.ndarray:
        if isinstance(offset, int) and offset < 0:
            offset = self.lengths + offset
        return self.starts + offset


class _Row:
    """One string of the buffer; its words are Python ints."""

    def __init__(self, buffer: bytes, start: int):
        self.buffer, self.start = buffer, start

    def word(self, offset: int) -> int:
        at = self.start + offset
        return int.from_bytes(self.buffer[at : at + 8], "little")


def _farm_empty(rows: _Rows) -> Words:
    return np.full(len(rows.starts), K2, np.uint64)


def _farm_long(rows: _Rows) -> Words:
    state = np.zeros((7, len(rows.starts)), np.uint64)
    for values, start in zip(state, farm_start(rows), strict=True):
        values[:] = start
    blocks = (rows.lengths - 1) // 64
    some = rows
    for block, live in rows.live(blocks):
        some = some if live == len(some.starts) else rows[:live]
        state[:, :live] = farm_block(some, 64 * block, list(state[:, :live]), K1, 1)
    for row, first, last in rows.rest(blocks):
        single, values = rows.row(row), state[:, row].tolist()
        for block in range(first, last):
            values = farm_block(single, 64 * block, values, K1, 1)
        state[:, row] = [value & MASK for value in values]
    return farm_end(rows, list(state))


# FarmHash has one function per range of lengths: (longest length of the range, its function).
_FARM_RANGES: tuple[tuple[int, Callable[[_Rows], Words]], ...] = (
    (0, _farm_empty),
    (3, farm_1_to_3),
    (7, farm_4_to_7),
    (16, farm_8_to_16),
    (32, farm_17_to_32),
    (64, farm_33_to_64),
    (np.iinfo(np.int64).max - 1, _farm_long),
)


def fingerprint64(strings: Sequence[bytes]) -> np.ndarray:
    """Return FarmHash's Fingerprint64 of every string, as uint64."""
    rows, order = _Rows.of(strings)
    hashes = np.empty(len(strings), np.uint64)
    shortest = 0
    for longest, function in _FARM_RANGES:
        # Lengths fall, so a range of lengths is a contiguous range of rows.
        first, last = np.searchsorted(-rows.lengths, [-longest, 1 - shortest])
        shortest = longest + 1
        if first < last:
            hashes[order[first:last]] = function(rows[first:last])
    return hashes


def hash64(strings: Sequence[bytes]) -> np.ndarray:
    """Return TensorFlow's Hash64 (MurmurHash2, 64 bit, a fixed seed) of every string."""
    rows, order = _Rows.of(strings)
    state = MURMUR_SEED ^ (rows.sizes * MURMUR)
    for index, live in rows.live(rows.lengths // 8):
        state[:live] = murmur_absorb(state[:live], rows.first_words(live, 8 * index))
    for row, first, last in rows.rest(rows.lengths // 8):
        single, value = rows.row(row), int(state[row])
        for index in range(first, last):
            value = murmur_absorb(value, single.word(8 * index))
        state[row] = value
    state = np.where(rows.lengths % 8 > 0, (state ^ rows.tail()) * MURMUR, state)
    return mix(mix(state) * MURMUR)[np.argsort(order)]


def siphash(strings: Sequence[bytes], key: Sequence[int]) -> np.ndarray:
    """Return SipHash-2-4 of every string under a key of two 64-bit integers."""
    k0, k1 = (part % 2**64 for part in key)
    rows, order = _Rows.of(strings)
    v = np.empty((4, len(strings)), np.uint64)
    for values, start, part in zip(v, SIP_START, (k0, k1, k0, k1), strict=True):
        values[:] = start ^ part
    for index, live in rows.live(rows.lengths // 8):
        v[:, :live] = sip_absorb(list(v[:, :live]), rows.first_words(live, 8 * index))
    for row, first, last in rows.rest(rows.lengths // 8):
        single, values = rows.row(row), v[:, row].tolist()
        for index in range(first, last):
            values = sip_absorb(values, single.word(8 * index))
        v[:, row] = values
    return sip_end(sip_absorb(list(v), rows.tail() | (rows.sizes << 56)))[np.argsort(order)]


def _buckets(
    function: str,
    hash: Callable[[Sequence[bytes]], np.ndarray],
    strings: Any,
    num_buckets: int,
    key: Sequence[int] = (0, 0),
) -> np.ndarray:
    """Return the hashes of strings, modulo a number: by generated code if possible, else
    by NumPy.
    """
    array = string_array(strings)
    if num_buckets < 1:
        raise ValueError(f"num_buckets must be at least 1, got {num_buckets}")
    found = numbers_of(function, array, num_buckets, key)
    if found is None:
        hashes = hash(array.ravel().tolist())
        found = (hashes % np.uint64(num_buckets)).astype(np.int64).reshape(array.shape)
    return found


def string_to_hash_bucket_fast(input: Any, *, num_buckets: int) -> np.ndarray:
    """Return Fingerprint64(element) modulo num_buckets."""
    return _buckets("farm", fingerprint64, input, num_buckets)


def string_to_hash_bucket_strong(input: Any, *, num_buckets: int, key: Sequence[int]) -> np.ndarray:
    """Return SipHash(element) under the key, modulo num_buckets."""
    if len(key) != 2:
        raise ValueError(f"key must have 2 elements, got {len(key)}")
    return _buckets("sip", lambda strings: siphash(strings, key), input, num_buckets, key)


def string_to_hash_bucket(string_tensor: Any, *, num_buckets: int) -> np.ndarray:
    """Return Hash64(element) modulo num_buckets."""
    return _buckets("murmur", hash64, string_tensor, num_buckets)


def fingerprint(data: Any, method: Any) -> np.ndarray:
    """Return one fingerprint per row of `data`, as 8 little-endian bytes each.

    A row of several strings is hashed as the concatenation of its elements' fingerprints; a row of
    numbers is hashed as its bytes in memory.
    """
    name = string_scalar(method, "method")
    if name != b"farmhash64":
        raise ValueError(f"unsupported fingerprint method: {name!r}")
    array = np.asarray(data)
    if array.ndim == 0:
        raise ValueError("data must have at least one dimension")
    if array.dtype.kind in "OSU":
        array = string_array(data)
        hashes = fingerprint64(array.ravel().tolist()).astype("<u8")
        if array.size == len(array):
            return hashes.view(np.uint8).reshape(len(array), 8)
        array = hashes.reshape(array.shape)
    rows = [row.tobytes() for row in array]
    return fingerprint64(rows).astype("<u8").view(np.uint8).reshape(len(rows), 8)


KERNELS = {
    "Fingerprint": fingerprint,
    "StringToHashBucket": string_to_hash_bucket,
    "StringToHashBucketFast": string_to_hash_bucket_fast,
    "StringToHashBucketStrong": string_to_hash_bucket_strong,
}
