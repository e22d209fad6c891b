"""FarmHash's Fingerprint128. In: a string. Out: two words of 64 bits."""

from __future__ import annotations

from headrace._src.ops.strings.hash_formulas import (
    K0,
    K1,
    K2,
    MASK,
    farm_1_to_3,
    farm_4_to_7,
    farm_8_to_16,
    fold,
    mix,
    rotate,
)

__all__ = ["fingerprint128"]

_MULTIPLIER = 0x9DDFEA08EB382D69
_BLOCK = 64
_LONG = 2 * _BLOCK  # bytes from which a text is hashed by blocks
_State = tuple[int, int]


class _Text:
    """A string of up to 16 bytes for the formulas of hash_formulas."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sizes = self.lengths = len(data)

    def _load(self, at: int, size: int) -> int:
        at = at if at >= 0 else len(self.data) + at
        return int.from_bytes(self.data[at : at + size], "little")

    def word(self, at: int) -> int:
        return self._load(at, 8)

    def half(self, at: int) -> int:
        return self._load(at, 4)

    def byte(self, at: int) -> int:
        return self._load(at, 1)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _join(u: int, v: int) -> int:
    return fold(u & MASK, v & MASK, _MULTIPLIER) & MASK


def _short(data: bytes) -> int:
    text = _Text(data)
    if len(data) >= 8:
        return farm_8_to_16(text) & MASK
    if len(data) >= 4:
        return farm_4_to_7(text) & MASK
    return farm_1_to_3(text) & MASK if data else K2


def _absorb(data: bytes, at: int, a: int, b: int) -> _State:
    """Mix 32 bytes into two words."""
    w, x, y, z = (_word(data, at + 8 * i) for i in range(4))
    a = (a + w) & MASK
    b = rotate(b + a + z, 21)
    c = a
    a = (a + x + y) & MASK
    b = (b + rotate(a, 44)) & MASK
    return (a + z) & MASK, (b + c) & MASK


def _few(data: bytes, seed: _State) -> _State:
    """Hash less than _LONG bytes."""
    a, b = seed
    size = len(data)
    if size <= 16:
        a = mix(a * K1) * K1 & MASK
        c = (b * K1 + _short(data)) & MASK
        d = mix(a + (_word(data, 0) if size >= 8 else c))
    else:
        c = _join(_word(data, size - 8) + K1, a)
        d = _join(b + size, c + _word(data, size - 16))
        a = (a + d) & MASK
        for at in range(0, size - 16, 16):
            a = (a ^ mix(_word(data, at) * K1) * K1) * K1 & MASK
            b ^= a
            c = (c ^ mix(_word(data, at + 8) * K1) * K1) * K1 & MASK
            d ^= c
    a, b = _join(a, c), _join(d, b)
    return a ^ b, _join(b, a)


def _many(data: bytes, seed: _State) -> _State:
    """Hash at least _LONG bytes."""
    size = len(data)
    x, y = seed
    z = size * K1 & MASK
    v0 = (rotate(y ^ K1, 49) * K1 + _word(data, 0)) & MASK
    v = v0, (rotate(v0, 42) * K1 + _word(data, 8)) & MASK
    w = (rotate(y + z, 35) * K1 + x) & MASK, rotate(x + _word(data, 88), 53) * K1 & MASK
    whole = size // _LONG * _LONG
    for at in range(0, whole, _BLOCK):
        x = rotate(x + y + v[0] + _word(data, at + 8), 37) * K1 & MASK
        y = rotate(y + v[1] + _word(data, at + 48), 42) * K1 & MASK
        x ^= w[1]
        y = (y + v[0] + _word(data, at + 40)) & MASK
        z = rotate(z + w[0], 33) * K1 & MASK
        v = _absorb(data, at, v[1] * K1 & MASK, x + w[0])
        w = _absorb(data, at + 32, z + w[1], y + _word(data, at + 16))
        x, z = z, x
    x = (x + rotate(v[0] + z, 49) * K0) & MASK
    y = (y * K0 + rotate(w[1], 37)) & MASK
    z = (z * K0 + rotate(w[0], 27)) & MASK
    w0, w1, v0, v1 = w[0] * 9 & MASK, w[1], v[0] * K0 & MASK, v[1]
    for done in range(32, size - whole + 32, 32):  # from the end, 32 bytes at a time
        at = size - done
        y = (rotate(x + y, 42) * K0 + v1) & MASK
        w0 = (w0 + _word(data, at + 16)) & MASK
        x = (x * K0 + w0) & MASK
        z = (z + w1 + _word(data, at)) & MASK
        w1 = (w1 + v0) & MASK
        v0, v1 = _absorb(data, at, (v0 + z) & MASK, v1)
        v0 = v0 * K0 & MASK
    x, y = _join(x, v0), _join(y + z, w0)
    return (_join(x + v1, w1) + y) & MASK, _join(x + w1, y + v1)


def fingerprint128(data: bytes) -> _State:
    """Return the low and the high word of a string's fingerprint."""
    if len(data) >= 16:
        seed = _word(data, 0), (_word(data, 8) + K0) & MASK
        data = data[16:]
    else:
        seed = K0, K1
    return _few(data, seed) if len(data) < _LONG else _many(data, seed)
