"""Hashes of strings. In: string tensors. Out: the same 64-bit values that TensorFlow computes.

Three functions, each bit for bit: FarmHash's Fingerprint64 (StringToHashBucketFast, Fingerprint),
SipHash-2-4 (StringToHashBucketStrong) and the 64-bit MurmurHash2 that TensorFlow calls Hash64
(StringToHashBucket). All are vectorised over the batch: the strings are laid end to end in one
buffer, a word of a string is a gather at a byte offset, and a loop over blocks works on the rows
that still have one: the first ones, since rows go by falling length. The last few go on alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace.ops.string_arrays import string_array, string_scalar

# One uint64 per string, or one string's as a Python int: the arithmetic below is written for both.
# Arrays wrap by themselves; what is shifted right or kept is masked, for the sake of the ints.
_Words = Any
_MASK = 2**64 - 1
_FEW = 16  # below this many rows, Python's integers are faster than NumPy's calls

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


class _Rows:
    """Strings laid end to end, the longest first: where each starts, how long it is, its words."""

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
        """Return the rows and the order they are in, as indices of `strings`."""
        lengths = np.fromiter(map(len, strings), np.int64, count=len(strings))
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        return cls(b"".join(strings) + bytes(8), starts[order], lengths[order]), order

    def __getitem__(self, rows: slice) -> "_Rows":
        return _Rows(self.buffer, self.starts[rows], self.lengths[rows])

    def live(self, blocks: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield (block, how many rows have it) while many do; `blocks` is each row's count."""
        for block in range(self._common(blocks)):
            yield block, int(np.searchsorted(-blocks, -block))

    def rest(self, blocks: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """Yield (row, first block, end) for the blocks that only a few rows have."""
        first = self._common(blocks)
        for row, last in enumerate(blocks[:_FEW].tolist()):
            if last > first:
                yield row, first, last

    def _common(self, blocks: np.ndarray) -> int:
        """Return how many blocks at least _FEW rows have."""
        return int(blocks[_FEW - 1]) if len(blocks) >= _FEW else 0

    def row(self, index: int) -> "_Row":
        return _Row(self.buffer, int(self.starts[index]))

    def word(self, offset: Any) -> _Words:
        """Return the 8 bytes at `offset` of every row; below zero counts from the row's end."""
        return self._words64[self._at(offset)].astype(np.uint64)

    def first_words(self, count: int, offset: int) -> _Words:
        """Return the 8 bytes at `offset` of the first `count` rows."""
        return self._words64[self.starts[:count] + offset].astype(np.uint64)

    def half(self, offset: Any) -> _Words:
        return self._words32[self._at(offset)].astype(np.uint64)

    def byte(self, offset: Any) -> _Words:
        return self._bytes[self._at(offset)].astype(np.uint64)

    def tail(self) -> _Words:
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


def _rotate(x: _Words, bits: int) -> _Words:
    """Rotate right."""
    x = x & _MASK
    return (x >> bits) | (x << (64 - bits)) & _MASK


def _mix(x: _Words) -> _Words:
    x = x & _MASK
    return x ^ (x >> 47)


def _fold(u: _Words, v: _Words, multiplier: _Words) -> _Words:
    a = _mix((u ^ v) * multiplier)
    return _mix((v ^ a) * multiplier) * multiplier


def _farm_empty(rows: _Rows) -> _Words:
    return np.full(len(rows.starts), _K2, np.uint64)


def _farm_1_to_3(rows: _Rows) -> _Words:
    y = rows.byte(0) + (rows.byte(rows.lengths >> 1) << 8)
    z = rows.sizes + (rows.byte(-1) << 2)
    return _mix(y * _K2 ^ z * _K0) * _K2


def _farm_4_to_7(rows: _Rows) -> _Words:
    multiplier = _K2 + rows.sizes * 2
    return _fold(rows.sizes + (rows.half(0) << 3), rows.half(-4), multiplier)


def _farm_8_to_16(rows: _Rows) -> _Words:
    multiplier = _K2 + rows.sizes * 2
    a, b = rows.word(0) + _K2, rows.word(-8)
    c = _rotate(b, 37) * multiplier + a
    d = (_rotate(a, 25) + b) * multiplier
    return _fold(c, d, multiplier)


def _farm_ends(rows: _Rows, first: int) -> tuple[_Words, _Words, _Words]:
    """Mix the first and the last 16 bytes: what 17 to 32 and 33 to 64 have in common."""
    multiplier = _K2 + rows.sizes * 2
    a, b = rows.word(0) * first, rows.word(8)
    c, d = rows.word(-8) * multiplier, rows.word(-16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    return a, y, _fold(y, a + _rotate(b + _K2, 18) + c, multiplier)


def _farm_17_to_32(rows: _Rows) -> _Words:
    return _farm_ends(rows, _K1)[2]


def _farm_33_to_64(rows: _Rows) -> _Words:
    multiplier = _K2 + rows.sizes * 2
    a, y, z = _farm_ends(rows, _K2)
    e, f = rows.word(16) * multiplier, rows.word(24)
    g = (y + rows.word(-32)) * multiplier
    h = (z + rows.word(-24)) * multiplier
    return _fold(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, multiplier)


def _absorb(rows: "_Rows | _Row", at: Any, a: _Words, b: _Words) -> tuple[_Words, _Words]:
    """Take 32 bytes at `at` into the pair (a, b)."""
    w, x, y, z = (rows.word(at + step) for step in (0, 8, 16, 24))
    a = a + w
    b = _rotate(b + a + z, 21)
    total = a + x + y
    return (total + z) & _MASK, (b + _rotate(total, 44) + a) & _MASK


def _farm_block(
    rows: "_Rows | _Row", at: Any, state: Sequence[_Words], multiplier: Any, nine: int
) -> tuple[_Words, ...]:
    """Take the 64 bytes at `at` into the state; the last block weighs two of the terms by nine."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotate(x + y + v0 + rows.word(at + 8), 37) * multiplier
    y = _rotate(y + v1 + rows.word(at + 48), 42) * multiplier
    x = x ^ (w1 * nine)
    y = y + v0 * nine + rows.word(at + 40)
    z = _rotate(z + w0, 33) * multiplier
    v0, v1 = _absorb(rows, at, v1 * multiplier, x + w0)
    w0, w1 = _absorb(rows, at + 32, z + w1, y + rows.word(at + 16))
    return z, y, x, v0, v1, w0, w1


def _farm_long(rows: _Rows) -> _Words:
    count = len(rows.starts)
    seed = 81
    state = np.zeros((7, count), np.uint64)
    x, y, z = state[:3]
    x[:] = rows.word(0) + (seed * _K2 & _MASK)
    y[:] = (seed * _K1 + 113) & _MASK
    z[:] = _mix(y * _K2 + 113) * _K2
    blocks = (rows.lengths - 1) // 64
    some = rows
    for block, live in rows.live(blocks):
        some = some if live == len(some.starts) else rows[:live]
        state[:, :live] = _farm_block(some, 64 * block, list(state[:, :live]), _K1, 1)
    for row, first, last in rows.rest(blocks):
        single, values = rows.row(row), state[:, row].tolist()
        for block in range(first, last):
            values = _farm_block(single, 64 * block, values, _K1, 1)
        state[:, row] = [value & _MASK for value in values]
    x, y, z, v0, v1, w0, w1 = state
    multiplier = _K1 + ((z & 0xFF) << 1)
    w0 = w0 + ((rows.sizes - 1) & 63)
    v0 = v0 + w0
    w0 = w0 + v0
    last = rows.lengths - 64
    x, y, z, v0, v1, w0, w1 = _farm_block(rows, last, (x, y, z, v0, v1, w0, w1), multiplier, 9)
    return _fold(
        _fold(v0, w0, multiplier) + _mix(y) * _K0 + z,
        _fold(v1, w1, multiplier) + x,
        multiplier,
    )


# FarmHash treats each range of lengths apart: (longest length of the range, its function).
_FARM_RANGES: tuple[tuple[int, Callable[[_Rows], _Words]], ...] = (
    (0, _farm_empty),
    (3, _farm_1_to_3),
    (7, _farm_4_to_7),
    (16, _farm_8_to_16),
    (32, _farm_17_to_32),
    (64, _farm_33_to_64),
    (np.iinfo(np.int64).max - 1, _farm_long),
)


def fingerprint64(strings: Sequence[bytes]) -> np.ndarray:
    """Return FarmHash's Fingerprint64 of every string, as uint64."""
    rows, order = _Rows.of(strings)
    hashes = np.empty(len(strings), np.uint64)
    shortest = 0
    for longest, function in _FARM_RANGES:
        # Lengths fall, so a range of lengths is a run of rows.
        first, last = np.searchsorted(-rows.lengths, [-longest, 1 - shortest])
        shortest = longest + 1
        if first < last:
            hashes[order[first:last]] = function(rows[first:last])
    return hashes


_MURMUR = 0xC6A4A7935BD1E995


def _murmur_absorb(state: _Words, word: _Words) -> _Words:
    return ((state ^ _mix(word * _MURMUR) * _MURMUR) * _MURMUR) & _MASK


def hash64(strings: Sequence[bytes]) -> np.ndarray:
    """Return TensorFlow's Hash64 (MurmurHash2, 64 bit, a fixed seed) of every string."""
    rows, order = _Rows.of(strings)
    state = 0xDECAFCAFFE ^ (rows.sizes * _MURMUR)
    for index, live in rows.live(rows.lengths // 8):
        state[:live] = _murmur_absorb(state[:live], rows.first_words(live, 8 * index))
    for row, first, last in rows.rest(rows.lengths // 8):
        single, value = rows.row(row), int(state[row])
        for index in range(first, last):
            value = _murmur_absorb(value, single.word(8 * index))
        state[row] = value
    state = np.where(rows.lengths % 8 > 0, (state ^ rows.tail()) * _MURMUR, state)
    return _mix(_mix(state) * _MURMUR)[np.argsort(order)]


def _sip_round(v0: _Words, v1: _Words, v2: _Words, v3: _Words) -> tuple[_Words, ...]:
    """One SipRound; its rotations are to the left."""
    v0, v2 = v0 + v1 & _MASK, v2 + v3 & _MASK
    v1, v3 = _rotate(v1, 64 - 13) ^ v0, _rotate(v3, 64 - 16) ^ v2
    v0, v2 = _rotate(v0, 32) + v3 & _MASK, v2 + v1 & _MASK
    v1, v3 = _rotate(v1, 64 - 17) ^ v2, _rotate(v3, 64 - 21) ^ v0
    return v0, v1, _rotate(v2, 32), v3


def _sip_absorb(v: Sequence[_Words], word: _Words) -> tuple[_Words, ...]:
    v0, v1, v2, v3 = v
    v0, v1, v2, v3 = _sip_round(*_sip_round(v0, v1, v2, v3 ^ word))
    return v0 ^ word, v1, v2, v3


def siphash(strings: Sequence[bytes], key: Sequence[int]) -> np.ndarray:
    """Return SipHash-2-4 of every string under a key of two 64-bit integers."""
    if len(key) != 2:
        raise ValueError(f"key must have 2 elements, got {len(key)}")
    k0, k1 = (part % 2**64 for part in key)
    rows, order = _Rows.of(strings)
    v = np.empty((4, len(strings)), np.uint64)
    v[0], v[1] = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v[2], v[3] = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    for index, live in rows.live(rows.lengths // 8):
        v[:, :live] = _sip_absorb(list(v[:, :live]), rows.first_words(live, 8 * index))
    for row, first, last in rows.rest(rows.lengths // 8):
        single, values = rows.row(row), v[:, row].tolist()
        for index in range(first, last):
            values = _sip_absorb(values, single.word(8 * index))
        v[:, row] = values
    v0, v1, v2, v3 = _sip_absorb(list(v), rows.tail() | (rows.sizes << 56))
    v2 = v2 ^ 0xFF
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return (v0 ^ v1 ^ v2 ^ v3)[np.argsort(order)]


def _buckets(hashes: np.ndarray, num_buckets: int, shape: tuple[int, ...]) -> np.ndarray:
    if num_buckets < 1:
        raise ValueError(f"num_buckets must be at least 1, got {num_buckets}")
    return (hashes % np.uint64(num_buckets)).astype(np.int64).reshape(shape)


def string_to_hash_bucket_fast(input: Any, *, num_buckets: int) -> np.ndarray:
    """Return Fingerprint64(element) modulo num_buckets."""
    array = string_array(input)
    return _buckets(fingerprint64(array.ravel().tolist()), num_buckets, array.shape)


def string_to_hash_bucket_strong(input: Any, *, num_buckets: int, key: Sequence[int]) -> np.ndarray:
    """Return SipHash(element) under the key, modulo num_buckets."""
    array = string_array(input)
    return _buckets(siphash(array.ravel().tolist(), key), num_buckets, array.shape)


def string_to_hash_bucket(string_tensor: Any, *, num_buckets: int) -> np.ndarray:
    """Return Hash64(element) modulo num_buckets."""
    array = string_array(string_tensor)
    return _buckets(hash64(array.ravel().tolist()), num_buckets, array.shape)


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
