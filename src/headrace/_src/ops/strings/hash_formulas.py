"""The arithmetic of string hashes. In: words of texts. Out: words.

The formulas are written once, for any type with the operators of a 64-bit unsigned integer: NumPy
arrays with a word per string, Python integers, and generated code. Arrays and code wrap by
themselves; for Python integers, values are masked before they are shifted right or kept.

A text has `sizes` (words), `lengths`, and loads at an offset, which counts from the end if it's
negative: `word` (8 bytes), `half` (4) and `byte`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Words = Any
MASK = 2**64 - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_SEED = 81  # FarmHash's seed for long texts


def rotate(x: Words, bits: int) -> Words:
    """Rotate right."""
    x = x & MASK
    return (x >> bits) | (x << (64 - bits)) & MASK


def mix(x: Words) -> Words:
    x = x & MASK
    return x ^ (x >> 47)


def fold(u: Words, v: Words, multiplier: Words) -> Words:
    a = mix((u ^ v) * multiplier)
    return mix((v ^ a) * multiplier) * multiplier


def farm_1_to_3(text: Any) -> Words:
    y = text.byte(0) + (text.byte(text.lengths >> 1) << 8)
    z = text.sizes + (text.byte(-1) << 2)
    return mix(y * K2 ^ z * K0) * K2


def farm_4_to_7(text: Any) -> Words:
    multiplier = K2 + text.sizes * 2
    return fold(text.sizes + (text.half(0) << 3), text.half(-4), multiplier)


def farm_8_to_16(text: Any) -> Words:
    multiplier = K2 + text.sizes * 2
    a, b = text.word(0) + K2, text.word(-8)
    c = rotate(b, 37) * multiplier + a
    d = (rotate(a, 25) + b) * multiplier
    return fold(c, d, multiplier)


def farm_ends(text: Any, first: int) -> tuple[Words, Words, Words]:
    """Mix the first and the last 16 bytes: the common part of lengths 17 to 32 and 33 to 64."""
    multiplier = K2 + text.sizes * 2
    a, b = text.word(0) * first, text.word(8)
    c, d = text.word(-8) * multiplier, text.word(-16) * K2
    y = rotate(a + b, 43) + rotate(c, 30) + d
    return a, y, fold(y, a + rotate(b + K2, 18) + c, multiplier)


def farm_17_to_32(text: Any) -> Words:
    return farm_ends(text, K1)[2]


def farm_33_to_64(text: Any) -> Words:
    multiplier = K2 + text.sizes * 2
    a, y, z = farm_ends(text, K2)
    e, f = text.word(16) * multiplier, text.word(24)
    g = (y + text.word(-32)) * multiplier
    h = (z + text.word(-24)) * multiplier
    return fold(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, multiplier)


def absorb(text: Any, at: Any, a: Words, b: Words) -> tuple[Words, Words]:
    """Mix the 32 bytes at `at` into the pair (a, b)."""
    w, x, y, z = (text.word(at + step) for step in (0, 8, 16, 24))
    a = a + w
    b = rotate(b + a + z, 21)
    total = a + x + y
    return (total + z) & MASK, (b + rotate(total, 44) + a) & MASK


def farm_block(
    text: Any, at: Any, state: Sequence[Words], multiplier: Any, nine: int
) -> tuple[Words, ...]:
    """Mix the 64 bytes at `at` into the state; in the last block two of the terms are
    times nine.
    """
    x, y, z, v0, v1, w0, w1 = state
    x = rotate(x + y + v0 + text.word(at + 8), 37) * multiplier
    y = rotate(y + v1 + text.word(at + 48), 42) * multiplier
    x = x ^ (w1 * nine)
    y = y + v0 * nine + text.word(at + 40)
    z = rotate(z + w0, 33) * multiplier
    v0, v1 = absorb(text, at, v1 * multiplier, x + w0)
    w0, w1 = absorb(text, at + 32, z + w1, y + text.word(at + 16))
    return z, y, x, v0, v1, w0, w1


def farm_start(text: Any) -> tuple[Words, ...]:
    """Return the state before the first block of a text of more than 64 bytes."""
    y = (_SEED * K1 + 113) & MASK
    z = (mix(y * K2 + 113) * K2) & MASK
    return text.word(0) + (_SEED * K2 & MASK), y, z, 0, 0, 0, 0


def farm_end(text: Any, state: Sequence[Words]) -> Words:
    """Mix the last 64 bytes of a long text into the state and return the hash."""
    x, y, z, v0, v1, w0, w1 = state
    multiplier = K1 + ((z & 0xFF) << 1)
    w0 = w0 + ((text.sizes - 1) & 63)
    v0 = v0 + w0
    w0 = w0 + v0
    last = text.lengths - 64
    x, y, z, v0, v1, w0, w1 = farm_block(text, last, (x, y, z, v0, v1, w0, w1), multiplier, 9)
    return fold(
        fold(v0, w0, multiplier) + mix(y) * K0 + z,
        fold(v1, w1, multiplier) + x,
        multiplier,
    )


MURMUR_SEED = 0xDECAFCAFFE
MURMUR = 0xC6A4A7935BD1E995


def murmur_absorb(state: Words, word: Words) -> Words:
    return ((state ^ mix(word * MURMUR) * MURMUR) * MURMUR) & MASK


def sip_round(v0: Words, v1: Words, v2: Words, v3: Words) -> tuple[Words, ...]:
    """One SipRound, with rotations to the left."""
    v0, v2 = v0 + v1 & MASK, v2 + v3 & MASK
    v1, v3 = rotate(v1, 64 - 13) ^ v0, rotate(v3, 64 - 16) ^ v2
    v0, v2 = rotate(v0, 32) + v3 & MASK, v2 + v1 & MASK
    v1, v3 = rotate(v1, 64 - 17) ^ v2, rotate(v3, 64 - 21) ^ v0
    return v0, v1, rotate(v2, 32), v3


def sip_absorb(v: Sequence[Words], word: Words) -> tuple[Words, ...]:
    v0, v1, v2, v3 = v
    v0, v1, v2, v3 = sip_round(*sip_round(v0, v1, v2, v3 ^ word))
    return v0 ^ word, v1, v2, v3


SIP_START = 0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573


def sip_end(v: Sequence[Words]) -> Words:
    """Return the hash of a state once everything is absorbed."""
    v0, v1, v2, v3 = v
    v2 = v2 ^ 0xFF
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3
