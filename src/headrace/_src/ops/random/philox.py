"""Counter-based random numbers: Philox 4x32-10 and the basic distributions drawn from it.

In: a generator state (or, for the stateless functions, two integer seeds), a shape and a dtype.
Out: NumPy arrays equal to those of TensorFlow 1.15's CPU kernels: bit for bit for uniform numbers,
up to the rounding of log, sin and cos for normal ones.

A *sample* is the unit of the generator: 128 random bits, four uint32 words, a pure function of a
64-bit key and a 128-bit counter (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC'11). So any range of samples can be computed at any time, in any order.

Invariants
- One kernel call reserves one range of samples; ranges of successive calls are disjoint. The call
  reserves 256 samples per output however many it uses, because TensorFlow's state advances so far.
- A group of outputs (as many as one sample yields) starts at a fixed counter, so results depend
  neither on the chunk size here nor on the number of threads there.

State: only PhiloxState, three words guarded by a lock. Everything else is a function.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from headrace._src.core.locks import RLock
from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.resumable import Resumable
from headrace._src.lowering import generated

SAMPLES_PER_OUTPUT = 256

_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1
_MASK128 = (1 << 128) - 1
_HALF_WORD = np.uint64(32)
_LOW_HALF = np.uint64(_MASK32)
_HIGH_HALF = np.uint64(_MASK32 << 32)

_ROUNDS = 10
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
# Each round adds these to the key: multiples of the golden ratio and of sqrt(3) - 1.
_KEY_SCHEDULE = np.outer(np.arange(_ROUNDS), [0x9E3779B9, 0xBB67AE85])[..., None].astype(np.uint64)

# Samples per chunk: the scratch arrays stay in L2, and NumPy's cost per call (about 60 calls
# per chunk) is spread over enough words.
_CHUNK = 1 << 14

# Up to this many samples are computed one by one with Python integers: 3 us each, where NumPy's
# calls cost 50 us even for few samples.
_FEW = 12

# The key that encrypts the seeds of a stateless op.
_STATELESS_KEY = 0x02461E29_3EC8F720

_FLOATS = tuple(np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))
_INTEGERS = np.dtype(np.int32), np.dtype(np.int64)
_EXACT = ("uniform", "integer")  # generated code gives the same bits

# The smallest uniform number that Box-Muller takes the logarithm of.
_LEAST_UNIFORM = 1e-7
_TRUNCATION = 2.0

Shape = Sequence[int]


class Stream(NamedTuple):
    """A position in the sequence of samples of one key."""

    key: int
    counter: int

    def skip(self, samples: int) -> Stream:
        """Return the position `samples` later."""
        return Stream(self.key, (self.counter + samples) & _MASK128)

    def words(self) -> np.ndarray:
        """Return three uint64: the key, and the halves of the counter, the lower one first."""
        return np.array([self.key, self.counter & _MASK64, self.counter >> 64], np.uint64)

    @staticmethod
    def of_words(words: np.ndarray) -> Stream:
        """Return the stream with these `words`."""
        key, low, high = words.tolist()
        return Stream(key, high << 64 | low)


def entropy() -> int:
    """Return 64 random bits of the operating system."""
    return int.from_bytes(os.urandom(8), "little")


class PhiloxState(Resumable):
    """The generator of one stateful random op: where its next call starts to draw.

    `seed` becomes the key and `seed2` the upper half of the counter. Both zero means "not seeded":
    then both are taken from the operating system.

    To native loops it's a variable of three words (see ops.base.internal), with a variable's `lock`
    and `writable`.
    """

    name = "a random generator"

    def __init__(self, seed: int, seed2: int) -> None:
        if seed == 0 and seed2 == 0:
            seed, seed2 = entropy(), entropy()
        self.lock = RLock()
        self.value = Stream(int(seed) & _MASK64, (int(seed2) & _MASK64) << 64).words()

    def writable(self) -> np.ndarray:
        """Return the words of the next call's start, to change in place with `lock` held."""
        return self.value

    def reserve(self, samples: int) -> Stream:
        """Reserve the next `samples` samples for the caller; return where they start."""
        return Stream.of_words(self.reserve_words(samples))

    def reserve_words(self, samples: int) -> np.ndarray:
        """Reserve the next `samples` samples; return the words of the stream where they start."""
        if samples < 0:
            raise ValueError(f"cannot reserve {samples} samples")
        with self.lock:
            start = self.value.copy()
            low = self.value.item(1) + samples
            if low <= _MASK64:  # nearly always: a new array of Python's integers costs 3 us
                self.value[1] = low
            else:
                self.value[:] = Stream.of_words(start).skip(samples).words()
        return start

    def saved(self) -> dict[str, np.ndarray]:
        with self.lock:
            return {"stream": self.value.copy()}

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        with self.lock:
            self.value[:] = saved["stream"]

    def get_state(self) -> tuple[int, int]:
        """Return the state as (key, counter), unsigned integers of 64 and 128 bits."""
        with self.lock:
            return Stream.of_words(self.value)

    def set_state(self, state: tuple[int, int]) -> None:
        """Restore a state that `get_state` returned."""
        key, counter = (int(part) for part in state)
        if not (0 <= key <= _MASK64 and 0 <= counter <= _MASK128):
            raise ValueError(f"not a Philox state: key {key}, counter {counter}")
        with self.lock:
            self.value[:] = Stream(key, counter).words()


def stateless_stream(seed: ArrayLike) -> Stream:
    """Return the stream of a stateless op: its encrypted seeds give the key and the
    upper counter.
    """
    seeds = np.asarray(seed)
    if seeds.shape != (2,) or seeds.dtype.kind not in "iu":
        raise ValueError(f"seed must be two integers, got {seed!r}")
    low, high = (int(s) & _MASK64 for s in seeds)
    scrambled = words(Stream(_STATELESS_KEY, high << 64 | low), 1).view(np.uint64)
    return Stream(int(scrambled[0, 0]), int(scrambled[0, 1]) << 64)


# The generator ---------------------------------------------------------------------------------


def words_at(stream: Stream, offsets: np.ndarray) -> np.ndarray:
    """Return the samples at uint64 `offsets` (any shape) from `stream`: uint32 [*offsets, 4]."""
    flat = offsets.reshape(-1)
    if flat.size <= _FEW:
        return _few_words(stream, flat.tolist()).reshape(*offsets.shape, 4)
    return _philox(stream, flat, _Scratch(flat.size)).reshape(*offsets.shape, 4)


def words(stream: Stream, samples: int) -> np.ndarray:
    """Return the first `samples` samples of `stream`: uint32 of shape [samples, 4]."""
    if samples <= _FEW:
        return _few_words(stream, range(samples))
    return words_at(stream, np.arange(samples, dtype=np.uint64))


def _few_words(stream: Stream, offsets: Iterable[int]) -> np.ndarray:
    """Return the samples at a few offsets, uint32 [samples, 4]."""
    key, start = stream
    flat = [word for offset in offsets for word in _sample(key, (start + offset) & _MASK128)]
    return np.array(flat, np.uint32).reshape(-1, 4)


def _sample(key: int, counter: int) -> tuple[int, int, int, int]:
    """Return the four words of one sample, by the textbook algorithm."""
    k0, k1 = key & _MASK32, key >> 32
    c0, c1 = counter & _MASK32, counter >> 32 & _MASK32
    c2, c3 = counter >> 64 & _MASK32, counter >> 96
    for _ in range(_ROUNDS):
        left, right = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = right >> 32 ^ c1 ^ k0, right & _MASK32
        c2, c3 = left >> 32 ^ c3 ^ k1, left & _MASK32
        k0, k1 = k0 + 0x9E3779B9 & _MASK32, k1 + 0xBB67AE85 & _MASK32
    return c0, c1, c2, c3


class _Scratch:
    """Memory for up to `samples` samples; allocated once per kernel call, to stay in cache."""

    def __init__(self, samples: int) -> None:
        self.lanes = np.empty((2, samples), np.uint64)
        self.products = np.empty((2, samples), np.uint64)
        self.out = np.empty((samples, 2), np.uint64)


def _philox(stream: Stream, offsets: np.ndarray, scratch: _Scratch) -> np.ndarray:
    """Compute the samples at `offsets` from `stream`, uint32 [samples, 4], in the scratch memory.

    The four words of the textbook's state, c0 to c3, are kept as two uint64 lanes, x = c0:c1 and
    y = c2:c3. A round then is x, y = m1 * hi(y) ^ lo(x):k0, m0 * hi(x) ^ lo(y):k1, because the
    upper half of the 64-bit product belongs in c0 and the lower one in c1.
    """
    lanes = scratch.lanes[:, : offsets.size]
    products = scratch.products[:, : offsets.size]
    swapped = products[::-1]
    low, high = _counters(stream.counter, offsets)
    np.bitwise_and(low, _LOW_HALF, out=products[0])
    np.bitwise_and(high, _LOW_HALF, out=products[1])
    np.bitwise_and(low, _HIGH_HALF, out=lanes[0])
    np.bitwise_and(high, _HIGH_HALF, out=lanes[1])
    for round_key in _round_keys(stream.key):
        products *= _MULTIPLIERS
        lanes ^= round_key
        lanes ^= swapped
        np.right_shift(lanes, _HALF_WORD, out=products)
        lanes <<= _HALF_WORD
    # The last shifts have put c0 and c2 in `products`, and c1 and c3 in the upper half of `lanes`.
    out = scratch.out[: offsets.size]
    for pair in range(2):
        np.bitwise_or(lanes[pair], products[pair], out=out[:, pair])
    return out.view(np.uint32)


def _counters(base: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray | np.uint64]:
    """Return the 64-bit halves of `base + offsets`; the upper one is a scalar unless a
    sum carries.
    """
    low = offsets + np.uint64(base & _MASK64)
    high = np.uint64(base >> 64)
    if offsets.size and (base & _MASK64) + int(offsets.max()) > _MASK64:
        high = high + (low < offsets).astype(np.uint64)
    return low, high


def _round_keys(key: int) -> np.ndarray:
    """Return the key of every round, [rounds, 2, 1], in the upper halves."""
    halves = np.array([[key & _MASK32], [key >> 32]], np.uint64)
    return (halves + _KEY_SCHEDULE) << _HALF_WORD


def _chunks(stream: Stream, samples: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the first `samples` samples in pieces that fit in cache, each with its offset.

    The caller may overwrite a piece; it is valid until the next one is requested.
    """
    if samples <= _FEW:
        yield slice(0, samples), words(stream, samples)
        return
    scratch = _Scratch(min(samples, _CHUNK))
    offsets = np.arange(min(samples, _CHUNK), dtype=np.uint64)
    for start in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - start)
        yield slice(start, start + count), _philox(stream.skip(start), offsets[:count], scratch)


# Words to numbers ------------------------------------------------------------------------------


def uniform_from_words(sample: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return uniform numbers in [0, 1): low bits of a word become the mantissa of a number in [1,
    2).

    Each word gives one number, except for float64, where two neighbours do, the upper half first.
    """
    if dtype == np.float64:
        mantissas = sample[..., 0::2] & np.uint64((1 << 20) - 1)
        mantissas <<= _HALF_WORD
        mantissas |= sample[..., 1::2]
        mantissas |= np.uint64(1023 << 52)
        numbers = mantissas.view(np.float64)
        numbers -= 1.0
        return numbers
    if dtype == np.float32:
        mantissas = sample & np.uint32((1 << 23) - 1)
        mantissas |= np.uint32(127 << 23)
        numbers = mantissas.view(np.float32)
        numbers -= np.float32(1)
        return numbers
    # Short mantissas: float32 holds m / 2^bits exactly, and so does the narrow type.
    bits = 10 if dtype == np.float16 else 7
    mantissas = sample & np.uint32((1 << bits) - 1)
    return (mantissas.astype(np.float32) * np.float32(2.0**-bits)).astype(dtype)


def normal_from_words(sample: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return standard normal numbers, one per uniform one; narrow types are rounded
    from float32.
    """
    return _box_muller(sample, _wide(dtype)).astype(dtype, copy=False)


def _wide(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _box_muller(sample: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Make two normal numbers, (r sin t, r cos t), from two uniform ones.

    Every step is rounded to `dtype`; log, sin and cos are computed in float64. So a float32 number
    doesn't depend on the implementation of these functions, except for about one in 10^8: compiled
    steps draw the same numbers as interpreted ones, and truncation decides alike everywhere.
    """
    numbers = uniform_from_words(sample, dtype)
    radius = np.maximum(numbers[..., 0::2], dtype.type(_LEAST_UNIFORM))
    radius = np.log(radius, dtype=np.float64).astype(dtype, copy=False)
    radius *= dtype.type(-2)
    np.sqrt(radius, out=radius)
    # The angle is rounded once, from the float64 product: float32 pi would shift all angles.
    angle = (numbers[..., 1::2] * np.float64(2 * np.pi)).astype(dtype, copy=False)
    angle = angle.astype(np.float64, copy=False)
    np.multiply(np.sin(angle).astype(dtype, copy=False), radius, out=numbers[..., 0::2])
    np.multiply(np.cos(angle).astype(dtype, copy=False), radius, out=numbers[..., 1::2])
    return numbers


def _float_dtype(dtype: DTypeLike) -> np.dtype:
    result = np.dtype(dtype)
    if result not in _FLOATS:
        raise TypeError(f"random floats come in {[t.name for t in _FLOATS]}, not {result.name}")
    return result


def _per_sample(dtype: np.dtype) -> int:
    return 2 if dtype.itemsize == 8 else 4


def output_size(shape: Shape) -> int:
    """Return the number of outputs of `shape`, which must have no negative dimension."""
    size = 1
    for dim in shape:
        if dim < 0:
            raise ValueError(f"shape {list(shape)} has a negative dimension")
        size *= int(dim)
    return size


def _generated(
    distribution: str,
    stream: Stream,
    shape: Shape,
    kind: np.dtype,
    bounds: tuple[int, int] = (0, 0),
) -> np.ndarray | None:
    """Compute an output by generated code; return None where there is none. Small outputs are, if
    they are equal bit for bit.
    """
    size = output_size(shape)
    if size < generated.LEAST and not (distribution in _EXACT and generated.worthwhile(size)):
        return None
    fill = generated.random_numbers(distribution, kind.name)
    if fill is None:
        return None
    out = empty_aligned(tuple(shape), kind)
    fill(stream.words(), bounds, out)
    return out


def _fill(
    distribution: str,
    stream: Stream,
    shape: Shape,
    dtype: np.dtype,
    convert: Callable[[np.ndarray], np.ndarray],
    bounds: tuple[int, int] = (0, 0),
) -> np.ndarray:
    """Fill an array of `shape` from consecutive samples; `convert` makes the numbers of
    each chunk.
    """
    found = _generated(distribution, stream, shape, dtype, bounds)
    if found is not None:
        return found
    size, per_sample = output_size(shape), _per_sample(dtype)
    samples = -(-size // per_sample)
    out = np.empty((samples, per_sample), dtype)
    for place, sample in _chunks(stream, samples):
        out[place] = convert(sample)
    return out.reshape(-1)[:size].reshape(tuple(shape))


def draw_uniform(stream: Stream, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """Return floats in [0, 1) from the start of `stream`."""
    kind = _float_dtype(dtype)
    return _fill("uniform", stream, shape, kind, lambda sample: uniform_from_words(sample, kind))


def _draw_normal(stream: Stream, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    kind = _float_dtype(dtype)
    return _fill("normal", stream, shape, kind, lambda sample: normal_from_words(sample, kind))


def _integer_dtype(shape: Shape, minval: int, maxval: int, dtype: DTypeLike) -> np.dtype:
    """Validate the arguments and return the dtype; an empty output allows any bounds."""
    kind = np.dtype(dtype)
    if kind not in _INTEGERS:
        raise TypeError(f"random integers come in int32 and int64, not {kind.name}")
    limit = 1 << 8 * kind.itemsize - 1
    if output_size(shape) and not -limit <= minval < maxval < limit:
        raise ValueError(f"Need minval < maxval within {kind.name}, got {minval} and {maxval}")
    return kind


def _draw_uniform_int(
    stream: Stream, shape: Shape, minval: int, maxval: int, kind: np.dtype
) -> np.ndarray:
    modulus = 1 << 8 * kind.itemsize
    unsigned = np.dtype(f"u{kind.itemsize}")
    span = unsigned.type((int(maxval) - int(minval)) % modulus)
    origin = unsigned.type(int(minval) % modulus)

    def convert(sample: np.ndarray) -> np.ndarray:
        # x % span, written with the scalar division that NumPy has vectorised.
        numbers = sample.view(unsigned)
        numbers -= numbers // span * span
        numbers += origin
        return numbers.view(kind)

    return _fill("integer", stream, shape, kind, convert, (minval, maxval))


def _draw_truncated_normal(stream: Stream, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """Return normal numbers in (-2, 2).

    Each group of outputs owns 256 words per output and takes the first normal numbers from them
    that are inside. Few groups need a second sample, so those are recomputed with twice the samples
    until all are full.
    """
    kind = _float_dtype(dtype)
    found = _generated("truncated", stream, shape, kind)
    if found is not None:
        return found
    size, per_sample = output_size(shape), _per_sample(kind)
    groups = -(-size // per_sample)
    spacing = np.uint64(SAMPLES_PER_OUTPUT * per_sample // 4)
    out = np.empty((groups, per_sample), kind)
    scratch = _Scratch(min(groups, _CHUNK)) if groups > _FEW else None
    for first in range(0, groups, _CHUNK):
        chunk = np.arange(first, min(first + _CHUNK, groups), dtype=np.uint64)
        offsets = chunk * spacing
        sample = _philox(stream, offsets, scratch) if scratch else words_at(stream, offsets)
        numbers = _box_muller(sample, _wide(kind))
        out[first : first + chunk.size] = numbers
        inside = np.abs(numbers) < _TRUNCATION
        # Column by column: NumPy reduces short rows slowly.
        pending = chunk[~reduce(np.logical_and, inside.T)]
        width = 1
        while pending.size:
            width *= 2
            offsets = (pending * spacing)[:, None] + np.arange(width, dtype=np.uint64)
            sample = words_at(stream, offsets).reshape(pending.size, -1)
            numbers = _box_muller(sample, _wide(kind))
            inside = np.abs(numbers) < _TRUNCATION
            place = np.cumsum(inside, axis=1, dtype=np.int32)
            full = place[:, -1] >= per_sample
            inside &= place <= per_sample
            out[pending[full]] = numbers[full][inside[full]].reshape(-1, per_sample)
            pending = pending[~full]
    return out.reshape(-1)[:size].reshape(tuple(shape))


def draw(
    distribution: str,
    stream: Stream,
    shape: Shape,
    dtype: DTypeLike,
    bounds: tuple[int, int] | None = None,
) -> np.ndarray:
    """Draw an op's numbers from a given stream: "uniform", "normal" or "truncated" floats, or
    "integer" numbers in [bounds[0], bounds[1]).
    """
    if bounds is not None:
        return _draw_uniform_int(stream, shape, *bounds, _integer_dtype(shape, *bounds, dtype))
    return _DRAW[distribution](stream, shape, dtype)


_DRAW: dict[str, Callable[[Stream, Shape, DTypeLike], np.ndarray]] = {
    "uniform": draw_uniform,
    "normal": _draw_normal,
    "truncated": _draw_truncated_normal,
}


# Kernels ---------------------------------------------------------------------------------------


def _reserve_outputs(state: PhiloxState, shape: Shape) -> Stream:
    return state.reserve(output_size(shape) * SAMPLES_PER_OUTPUT)


def uniform(state: PhiloxState, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """RandomUniform: floats in [0, 1)."""
    return draw_uniform(_reserve_outputs(state, shape), shape, dtype)


def uniform_int(
    state: PhiloxState, shape: Shape, minval: int, maxval: int, dtype: DTypeLike
) -> np.ndarray:
    """RandomUniformInt: integers in [minval, maxval), slightly biased when 2^bits % span != 0."""
    kind = _integer_dtype(shape, minval, maxval, dtype)
    return _draw_uniform_int(_reserve_outputs(state, shape), shape, minval, maxval, kind)


def standard_normal(state: PhiloxState, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """RandomStandardNormal: floats of mean 0 and deviation 1."""
    return _draw_normal(_reserve_outputs(state, shape), shape, dtype)


def truncated_normal(state: PhiloxState, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """TruncatedNormal: standard normal floats; those outside (-2, 2) are redrawn."""
    return _draw_truncated_normal(_reserve_outputs(state, shape), shape, dtype)


def stateless_uniform(seed: ArrayLike, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """StatelessRandomUniform: `uniform` as a pure function of two integer seeds."""
    return draw_uniform(stateless_stream(seed), shape, dtype)


def stateless_uniform_int(
    seed: ArrayLike, shape: Shape, minval: int, maxval: int, dtype: DTypeLike
) -> np.ndarray:
    """StatelessRandomUniformInt: `uniform_int` as a pure function of two integer seeds."""
    kind = _integer_dtype(shape, minval, maxval, dtype)
    return _draw_uniform_int(stateless_stream(seed), shape, minval, maxval, kind)


def stateless_normal(seed: ArrayLike, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """StatelessRandomNormal: `standard_normal` as a pure function of two integer seeds."""
    return _draw_normal(stateless_stream(seed), shape, dtype)


def stateless_truncated_normal(seed: ArrayLike, shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """StatelessTruncatedNormal: `truncated_normal` as a pure function of two integer seeds."""
    return _draw_truncated_normal(stateless_stream(seed), shape, dtype)
