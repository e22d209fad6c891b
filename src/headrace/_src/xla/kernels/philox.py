"""Philox 4x32-10 in JAX. In: a stream, three uint64 words (ops.random.philox). Out: the numbers
that the NumPy kernels draw from it.

As there, the four words of a sample are kept as two uint64 lanes, and log, sin and cos of 32-bit
numbers are computed in float64.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.ops.random.philox import SAMPLES_PER_OUTPUT

__all__ = ["advanced", "draw", "stateless_stream"]

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_STATELESS_KEY = 0x02461E29_3EC8F720
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_LEAST_UNIFORM = 1e-7
_TRUNCATION = 2.0


def _words(stream: Any, offsets: Any) -> Any:
    """The samples at uint64 offsets from a stream: uint32, with a last axis of four."""
    key, base, upper = stream[0], stream[1], stream[2]
    low = base + offsets
    high = upper + (low < offsets).astype(np.uint64)
    k0, k1 = key & _LOW, key >> _HALF
    c0, c1, c2, c3 = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
    for _ in range(_ROUNDS):
        p0, p1 = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + np.uint64(_KEY_STEPS[0])) & _LOW
        k1 = (k1 + np.uint64(_KEY_STEPS[1])) & _LOW
    return jnp.stack([c0, c1, c2, c3], -1).astype(np.uint32)


def stateless_stream(seed: Any) -> Any:
    """The stream of two integers."""
    low, high = seed.astype(np.int64).astype(np.uint64)
    start = jnp.stack([jnp.asarray(np.uint64(_STATELESS_KEY)), low, high])
    words = _words(start, np.zeros(1, np.uint64))[0].astype(np.uint64)
    zero = jnp.zeros((), np.uint64)
    return jnp.stack([words[0] | words[1] << _HALF, zero, words[2] | words[3] << _HALF])


def advanced(stream: Any, count: int) -> Any:
    """The stream after the samples of `count` outputs."""
    low = stream[1] + np.uint64(count * SAMPLES_PER_OUTPUT)
    return jnp.stack([stream[0], low, stream[2] + (low < stream[1]).astype(np.uint64)])


def _uniform(words: Any, dtype: np.dtype) -> Any:
    if dtype == np.float64:
        wide = words.astype(np.uint64)
        bits = (wide[..., 0::2] & np.uint64((1 << 20) - 1)) << _HALF | wide[..., 1::2]
        return jax.lax.bitcast_convert_type(bits | np.uint64(1023 << 52), np.float64) - 1.0
    if dtype == np.float32:
        bits = words & np.uint32((1 << 23) - 1) | np.uint32(127 << 23)
        return jax.lax.bitcast_convert_type(bits, np.float32) - np.float32(1)
    count = 10 if dtype == np.float16 else 7
    mantissas = (words & np.uint32((1 << count) - 1)).astype(np.float32)
    return (mantissas * np.float32(2.0**-count)).astype(dtype)


def _normal(words: Any, dtype: np.dtype) -> Any:
    """Two normal numbers of each two uniform ones (Box-Muller): float64, or float32."""
    dtype = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    numbers = _uniform(words, dtype)
    radius = jnp.maximum(numbers[..., 0::2], dtype.type(_LEAST_UNIFORM))
    radius = jnp.sqrt(jnp.log(radius.astype(np.float64)).astype(dtype) * dtype.type(-2))
    angle = (numbers[..., 1::2].astype(np.float64) * np.float64(2 * np.pi)).astype(dtype)
    angle = angle.astype(np.float64)
    pairs = [jnp.sin(angle).astype(dtype) * radius, jnp.cos(angle).astype(dtype) * radius]
    return jnp.stack(pairs, -1).reshape(numbers.shape)


def _integers(words: Any, dtype: np.dtype, bounds: tuple[int, int]) -> Any:
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if dtype.itemsize == 8:
        wide = words.astype(np.uint64)
        words = wide[..., 0::2] | wide[..., 1::2] << _HALF
    modulus = 1 << 8 * dtype.itemsize
    span = unsigned.type((bounds[1] - bounds[0]) % modulus)
    origin = unsigned.type(bounds[0] % modulus)
    return jax.lax.bitcast_convert_type(words % span + origin, dtype)


def _truncated(stream: Any, groups: int, per_sample: int, dtype: np.dtype) -> Any:
    """The first normal numbers of each group's samples that are inside the limits."""
    spacing = np.uint64(SAMPLES_PER_OUTPUT * per_sample // 4)
    starts = np.arange(groups, dtype=np.uint64) * spacing
    kind = np.float64 if dtype == np.float64 else np.float32
    first = jnp.zeros((groups, per_sample), kind), jnp.zeros(groups, np.int32)

    def more(state: Any) -> Any:
        return jnp.any(state[2] < per_sample)

    def sample(state: Any) -> Any:
        k, numbers, filled = state
        drawn = _normal(_words(stream, starts + k), dtype)
        for column in range(per_sample):
            one = drawn[:, column]
            takes = (jnp.abs(one) < _TRUNCATION) & (filled < per_sample)
            here = takes[:, None] & (filled[:, None] == np.arange(per_sample))
            numbers = jnp.where(here, one[:, None], numbers)
            filled = filled + takes.astype(np.int32)
        return k + np.uint64(1), numbers, filled

    return jax.lax.while_loop(more, sample, (jnp.zeros((), np.uint64), *first))[1]


def draw(
    distribution: str, stream: Any, count: int, dtype: np.dtype, bounds: tuple[int, int] | None
) -> Any:
    """`count` numbers of a distribution (lowering.anchors.Random)."""
    per_sample = 2 if dtype.itemsize == 8 else 4
    groups = -(-count // per_sample)
    if distribution == "truncated":
        found = _truncated(stream, groups, per_sample, dtype)
    else:
        words = _words(stream, np.arange(groups, dtype=np.uint64))
        if bounds is not None:
            found = _integers(words, dtype, bounds)
        else:
            found = (_uniform if distribution == "uniform" else _normal)(words, dtype)
    return found.reshape(-1)[:count].astype(dtype)
