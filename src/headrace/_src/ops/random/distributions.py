"""Random distributions that need more than one pass over the generator's bits.

In: a PhiloxState and the op's arguments. Out: NumPy arrays equal to those of TensorFlow 1.15's CPU
kernels, exactly for integers (shuffles, classes, counts), up to the rounding of the elementary
functions for floats.

Two kinds of sampler, by how they use the generator:
- RandomGamma and RandomPoissonV2 give every output 256 samples of its own, so all outputs advance
  through their rejection loops side by side, each at its own pace (`_PerOutput`).
- Multinomial and ParameterizedTruncatedNormal read one common sequence from front to back. The
  original splits the rows among threads when there is enough work and then starts each part of the
  sequence elsewhere, so for large outputs its numbers depend on the thread count. Here they are
  always those of a single thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from headrace._src.ops.math.special_gamma import lgamma
from headrace._src.ops.random.philox import (
    SAMPLES_PER_OUTPUT,
    PhiloxState,
    Shape,
    Stream,
    draw_uniform,
    normal_from_words,
    output_size,
    stateless_stream,
    uniform_from_words,
    words,
    words_at,
)

_FLOAT64 = np.dtype(np.float64)

# The number of outputs that a rejection sampler processes at once.
_CHUNK = 1 << 14


def shuffle(state: PhiloxState, value: np.ndarray) -> np.ndarray:
    """RandomShuffle: return a copy of `value` with its entries permuted along dimension 0."""
    count = value.shape[0] if value.ndim else 1
    if count <= 1 or value.size <= 1:
        return value.copy()
    samples = -(-(count - 1) // 4)
    random = words(state.reserve(samples), samples).reshape(-1)[: count - 1]
    partners = np.arange(count)
    partners[:-1] += random % np.arange(count, 1, -1, dtype=np.uint32)
    return value[_exchange_in_turn(partners)]


def _exchange_in_turn(partners: np.ndarray) -> np.ndarray:
    """Return the order of 0, 1, 2, ... after exchanging i with partners[i] >= i, for i rising.

    Exchanges that share no position commute, so each round does all those that no earlier pending
    one touches; O(log n) rounds suffice (Shun et al., "Sequential random permutation, list
    contraction and tree contraction are highly parallel", SODA'15).
    """
    order = np.arange(partners.size)
    pending, others = order.copy(), partners
    earliest = np.empty_like(order)  # per position, the first pending exchange that touches it
    while pending.size:
        earliest[pending] = pending
        np.minimum.at(earliest, others, pending)
        ready = (earliest[pending] == pending) & (earliest[others] == pending)
        i, j = pending[ready], others[ready]
        order[i], order[j] = order[j], order[i]
        pending, others = pending[~ready], others[~ready]
    return order


# Classes ---------------------------------------------------------------------------------------


def multinomial(
    state: PhiloxState, logits: np.ndarray, num_samples: int, dtype: DTypeLike = np.int64
) -> np.ndarray:
    """Multinomial: `num_samples` class indices per row of `logits`, unnormalised log probabilities.

    Logits that are not finite have probability zero. A row of only such logits yields the number of
    classes, an index out of range, as the original does.
    """
    rows = _check_classes(logits, num_samples, dtype)
    # A float64 takes two words; the reservation counts samples in whole groups of four.
    stream = state.reserve(rows * (-(-num_samples // 4) * 4 * 2) * SAMPLES_PER_OUTPUT)
    return _draw_classes(stream, logits, num_samples, dtype)


def stateless_multinomial(
    seed: ArrayLike, logits: np.ndarray, num_samples: int, dtype: DTypeLike = np.int64
) -> np.ndarray:
    """StatelessMultinomial: `multinomial` as a pure function of two integer seeds."""
    _check_classes(logits, num_samples, dtype)
    return _draw_classes(stateless_stream(seed), logits, num_samples, dtype)


def _check_classes(logits: np.ndarray, num_samples: int, dtype: DTypeLike) -> int:
    """Validate the arguments and return the number of rows."""
    if logits.ndim != 2:
        raise ValueError(f"logits should be a matrix, got shape {list(logits.shape)}")
    if num_samples < 0:
        raise ValueError(f"num_samples should be nonnegative, got {num_samples}")
    if np.dtype(dtype) not in (np.int32, np.int64):
        raise TypeError(f"class indices come in int32 and int64, not {np.dtype(dtype).name}")
    rows, classes = logits.shape
    if classes == 0:
        raise ValueError(f"num_classes should be positive, got {classes}")
    return rows


def _draw_classes(
    stream: Stream, logits: np.ndarray, num_samples: int, dtype: DTypeLike
) -> np.ndarray:
    cumulative = _cumulative_probabilities(logits)
    wanted = draw_uniform(stream, (len(logits), num_samples), _FLOAT64) * cumulative[:, -1:]
    return _count_not_above(cumulative, wanted).astype(dtype)


def _cumulative_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return cumulative sums of exp(logit - largest) along each row, in float64, not normalised."""
    finite = np.isfinite(logits)
    wide = np.where(finite, logits, -np.inf).astype(_FLOAT64)
    largest = wide.max(axis=1, keepdims=True)
    largest[np.isneginf(largest)] = 0.0
    return np.cumsum(np.exp(wide - largest), axis=1)


def _count_not_above(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For ascending `rows` [n, m], count the elements of row i that are <= wanted[i, j], by
    bisection.
    """
    size = rows.shape[1]
    count = np.zeros(wanted.shape, np.intp)
    step = 1 << size.bit_length() - 1
    while step:
        probe = count + step
        inside = probe <= size
        found = np.take_along_axis(rows, np.minimum(probe, size) - 1, axis=1)
        count = np.where(inside & (found <= wanted), probe, count)
        step >>= 1
    return count


# Rejection, independent for each output --------------------------------------------------------


class _PerOutput:
    """The private sequences of a range of outputs, each read at its own pace.

    A source ("uniform", "normal") makes two float64 from a sample and returns the second one first.
    State, per output: how many samples are used up, and per source the number left over.
    """

    _SOURCES: ClassVar = {"uniform": uniform_from_words, "normal": normal_from_words}

    def __init__(self, stream: Stream, start: int, stop: int) -> None:
        self._stream = stream
        self._next = np.arange(start, stop, dtype=np.uint64) * np.uint64(SAMPLES_PER_OUTPUT)
        self._pairs = {name: np.empty((stop - start, 2)) for name in self._SOURCES}
        self._left = {name: np.zeros(stop - start, np.intp) for name in self._SOURCES}

    def draw(self, source: str, outputs: np.ndarray) -> np.ndarray:
        """Return one number from `source` for each of the given outputs, which are all
        different.
        """
        pairs, left = self._pairs[source], self._left[source]
        dry = outputs[left[outputs] == 0]
        if dry.size:
            sample = words_at(self._stream, self._next[dry])
            pairs[dry] = self._SOURCES[source](sample, _FLOAT64)
            left[dry] = 2
            self._next[dry] += np.uint64(1)
        left[outputs] -= 1
        return pairs[outputs, left[outputs]]


def _per_parameter(
    state: PhiloxState,
    shape: Shape,
    parameters: np.ndarray,
    dtype: np.dtype,
    sampler: Callable[[_PerOutput, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return an array [*shape, *parameters.shape]; `sampler` gets sequences and their parameters.

    Outputs are numbered with all draws of one parameter together.
    """
    draws = output_size(shape)
    size = draws * parameters.size
    stream = state.reserve(size * SAMPLES_PER_OUTPUT)
    flat = parameters.reshape(-1).astype(_FLOAT64)
    out = np.empty(size, dtype)
    for start in range(0, size, _CHUNK):
        stop = min(start + _CHUNK, size)
        each = flat[np.arange(start, stop) // draws]
        # Invalid parameters give NaN or infinity, as in the original, without warnings.
        with np.errstate(all="ignore"):
            out[start:stop] = sampler(_PerOutput(stream, start, stop), each)
    return out.reshape(parameters.size, draws).T.reshape((*shape, *parameters.shape))


def random_gamma(state: PhiloxState, shape: Shape, alpha: np.ndarray) -> np.ndarray:
    """RandomGamma: `shape` draws for every shape parameter in `alpha`, with scale 1."""
    if alpha.dtype not in (np.float16, np.float32, np.float64):
        raise TypeError(f"alpha must be float16, float32 or float64, not {alpha.dtype.name}")
    return _per_parameter(state, shape, alpha, alpha.dtype, _sample_gamma)


def _sample_gamma(sequences: _PerOutput, alpha: np.ndarray) -> np.ndarray:
    """Marsaglia and Tsang's method ("A simple method for generating gamma variables", 2000).

    For alpha < 1 it draws from alpha + 1 and multiplies by u^(1 / alpha); alpha = 1 is exponential.
    """
    out = np.empty_like(alpha)
    exponential = np.flatnonzero(alpha == 1)
    out[exponential] = -np.log(1 - sequences.draw("uniform", exponential))
    small = alpha < 1
    d = alpha + np.where(small, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / np.sqrt(d)
    pending = np.flatnonzero(alpha != 1)
    while pending.size:
        x = sequences.draw("normal", pending)
        v = 1 + c[pending] * x
        usable = ~(v <= 0)
        tried, x, v = pending[usable], x[usable], v[usable] ** 3
        u = sequences.draw("uniform", tried)
        squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
        accepted = squeezed | (np.log(u) < 0.5 * x * x + d[tried] * (1 - v + np.log(v)))
        done = tried[accepted]
        out[done] = d[done] * v[accepted]
        pending = np.setdiff1d(pending, done, assume_unique=True)
    boosted = np.flatnonzero(small)
    out[boosted] *= sequences.draw("uniform", boosted) ** (1 / alpha[boosted])
    return out


_LARGEST_COUNT = {
    **{np.dtype(t): float(np.finfo(t).max) for t in (np.float16, np.float32, np.float64)},
    **{np.dtype(t): float(np.iinfo(t).max) for t in (np.int32, np.int64)},
}


def random_poisson_v2(
    state: PhiloxState, shape: Shape, rate: np.ndarray, dtype: DTypeLike = np.int64
) -> np.ndarray:
    """RandomPoissonV2: `shape` counts for every mean in `rate`.

    A negative rate gives 0, an infinite one NaN. A rate that is NaN or beyond the dtype raises
    ValueError, because no count could be accepted (the original hangs).
    """
    kind = np.dtype(dtype)
    largest = _LARGEST_COUNT.get(kind)
    if largest is None:
        raise TypeError(f"counts come in {[t.name for t in _LARGEST_COUNT]}, not {kind.name}")
    unbounded = np.isposinf(rate) if kind.kind == "f" else False
    if not np.all((rate <= largest) | unbounded):
        raise ValueError(f"rate must be a number no larger than {kind.name} holds, {largest:g}")

    def sample(sequences: _PerOutput, rates: np.ndarray) -> np.ndarray:
        out = np.full_like(rates, np.nan)
        few = rates < 10
        _sample_few(sequences, rates, np.flatnonzero(few), out)
        many = np.flatnonzero(~few & np.isfinite(rates))
        _sample_many(sequences, rates, many, largest, out)
        return out

    return _per_parameter(state, shape, rate, kind, sample)


def _sample_few(
    sequences: _PerOutput, rate: np.ndarray, pending: np.ndarray, out: np.ndarray
) -> None:
    """Knuth's method: count uniform factors until their product falls to exp(-rate)."""
    count = 0
    product = np.ones_like(rate)
    limit = np.exp(-rate)
    while pending.size:
        product[pending] *= sequences.draw("uniform", pending)
        done = product[pending] <= limit[pending]
        out[pending[done]] = count
        pending = pending[~done]
        count += 1


def _sample_many(
    sequences: _PerOutput, rate: np.ndarray, pending: np.ndarray, largest: float, out: np.ndarray
) -> None:
    """Hoermann's PTRS ("The transformed rejection method for generating Poisson variables", 1993).

    The names of the constants are the paper's. Counts above `largest` are drawn again.
    """
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    rectangle = 0.9277 - 3.6224 / (b - 2)
    log_rate = np.log(rate)
    while pending.size:
        u = sequences.draw("uniform", pending) - 0.5
        v = sequences.draw("uniform", pending)
        a_, b_, rate_ = a[pending], b[pending], rate[pending]
        us = 0.5 - np.abs(u)
        k = np.floor((2 * a_ / us + b_) * u + rate_ + 0.43)
        at_once = (us >= 0.07) & (v <= rectangle[pending])
        left = np.log(v * inverse_alpha[pending] / (a_ / (us * us) + b_))
        right = -rate_ + k * log_rate[pending] - lgamma(np.maximum(k, 0) + 1)
        hopeless = (k < 0) | ((us < 0.013) & (v > us))
        accepted = (k <= largest) & (at_once | (~hopeless & (left <= right)))
        out[pending[accepted]] = k[accepted]
        pending = pending[~accepted]


# Rejection along one common sequence -----------------------------------------------------------

# With scalar parameters, outputs are split into batches of this size, not into rows.
_BATCH = 100
_MAX_TRIES = 1000
# With a bound at least this far beyond the mean, plain normal numbers are accepted often enough.
_NORMAL_REACH = 1.3

# The next rounds of candidates at a stream: their values and which are accepted, both [rounds, k].
_Candidates = Callable[[Stream, int], tuple[np.ndarray, np.ndarray]]


def parameterized_truncated_normal(
    state: PhiloxState,
    shape: Shape,
    means: ArrayLike,
    stdevs: ArrayLike,
    minvals: ArrayLike,
    maxvals: ArrayLike,
) -> np.ndarray:
    """ParameterizedTruncatedNormal: normal numbers within [minval, maxval], of the means' dtype.

    A parameter is one number, or one for each of the shape[0] rows.
    """
    size = output_size(shape)
    if not shape:
        raise ValueError("Shape tensor must not be empty, got an empty shape")
    parameters = _check_parameters(shape[0], means, stdevs, minvals, maxvals)
    batches, batch = int(shape[0]), output_size(shape[1:])
    if all(p.ndim == 0 for p in parameters):
        batches, batch = -(-size // _BATCH), _BATCH
    shared = all(p.size == 1 for p in parameters)
    stream = state.reserve(batches * 2 * _MAX_TRIES * (batch + 3) // 4)
    out = np.empty(size, parameters[0].dtype)
    with np.errstate(all="ignore"):
        for row, run in enumerate([out] if shared else out.reshape(batches, batch)):
            own = [p.flat[row if p.size > 1 else 0] for p in parameters]
            stream = _fill_run(run, batch, stream, *own)
    return out.reshape(tuple(shape))


def _check_parameters(rows: int, *parameters: ArrayLike) -> list[np.ndarray]:
    arrays = [np.asarray(p) for p in parameters]
    dtype = arrays[0].dtype
    if dtype not in (np.float16, np.float32, np.float64) or any(a.dtype != dtype for a in arrays):
        raise TypeError(
            "means, stdevs, minvals and maxvals must be all float16, float32 or float64, "
            f"got {[a.dtype.name for a in arrays]}"
        )
    for name, array in zip(("means", "stdevs", "minvals", "maxvals"), arrays, strict=True):
        if array.ndim > 1:
            raise ValueError(f"Input {name} should be a scalar or vector, got {list(array.shape)}")
        if array.size not in (1, rows):
            raise ValueError(
                f"Input {name} should have length 1 or shape[0], got shape: {list(array.shape)}"
            )
    _, stdevs, minvals, maxvals = arrays
    bounded = np.isfinite(minvals) | np.isfinite(maxvals)
    if not np.all((stdevs > 0) & (minvals < maxvals) & bounded):
        raise ValueError("Invalid parameters: need stdev > 0, minval < maxval, one bound finite")
    return arrays


def _fill_run(
    out: np.ndarray, batch: int, stream: Stream, mean: Any, stdev: Any, low: Any, high: Any
) -> Stream:
    """Fill `out` with numbers for one set of parameters; return the stream's position after them.

    Each batch takes the accepted candidates in order and drops the rest of its last round.
    """
    if np.isneginf(low) or high < mean:  # mirrored, so that the lower bound is the nearer one
        low, high, stdev = high, low, -stdev
    samples_per_round, candidates = _choose_sampler((low - mean) / stdev, (high - mean) / stdev)
    done = 0
    rounds = max(16, min(out.size, _CHUNK) // 2)
    while done < out.size:
        values, accepted = candidates(stream, rounds)
        if _longest_rejection(accepted) > _MAX_TRIES:
            raise ValueError(
                f"no number accepted between {low} and {high} in {_MAX_TRIES} tries: "
                f"the bounds are too far out for {out.dtype.name}"
            )
        pool = values[accepted] * stdev + mean
        total = np.cumsum(np.count_nonzero(accepted, axis=1))
        used = taken = 0
        while done < out.size:
            size = min(batch, out.size - done)
            last = int(np.searchsorted(total, taken + size))
            if last == rounds:
                break
            out[done : done + size] = pool[taken : taken + size]
            done += size
            used, taken = last + 1, int(total[last])
        if used == 0:
            rounds *= 2
        stream = stream.skip(used * samples_per_round)
    return stream


def _longest_rejection(accepted: np.ndarray) -> int:
    """The length of the longest run of False."""
    stops = np.flatnonzero(np.pad(accepted.reshape(-1), 1, constant_values=True))
    return int(np.diff(stops).max()) - 1


def _choose_sampler(low: Any, high: Any) -> tuple[int, _Candidates]:
    """Choose how to draw standard normal numbers between bounds: samples per round, and candidates.

    The proposals are those of Robert, "Simulation of truncated normal variables", 1995. All
    arithmetic is in the bounds' own dtype, because the choice must match the original's.
    """
    kind = low.dtype
    number = kind.type
    root = np.sqrt(low * low + number(4))
    cutoff = number(2) * np.exp(number(0.5) + (low * (low - root)) / number(4)) / (low + root)
    width = high - low

    def normal(stream: Stream, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        z = normal_from_words(words(stream, rounds), kind)
        return z, (z >= low) & (z <= high)

    def flat(stream: Stream, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        pairs = uniform_from_words(words(stream, 2 * rounds), kind)
        z = pairs[0::2] * width + low
        peak = number(0) if low < 0 else low * low
        return z, pairs[1::2] <= np.exp((peak - z * z) / number(2))

    def exponential(stream: Stream, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        pairs = uniform_from_words(words(stream, rounds), kind)
        alpha = (low + root) / number(2)
        z = -np.log(pairs[:, 0::2]) / alpha + low
        x = alpha - z if low < alpha else np.full_like(z, low - alpha)
        return z, (pairs[:, 1::2] <= np.exp(-x * x / number(2))) & (z < high)

    reach = number(_NORMAL_REACH)
    if (low < -reach and high >= 0) or (high > reach and low <= 0):
        return 1, normal
    return (2, flat) if width < cutoff else (1, exponential)
