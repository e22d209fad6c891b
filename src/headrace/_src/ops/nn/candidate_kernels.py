"""Candidate sampling: draw a few of many classes, and compute how often to expect each of them.

In: a Philox generator, a Distribution over classes 0, 1, 2, ..., the number to draw. Out: the drawn
classes and the number of tries. Equal seeds give the same draws as TensorFlow 1.15.

A draw takes the generator's words in order: two for a uniform 64-bit number or a double, one for a
weighted pick, and so on. However many it takes, a call advances the generator by 512 samples per
class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.lowering import generated
from headrace._src.ops.random.philox import PhiloxState, Stream, draw_uniform, words

__all__ = [
    "Distribution",
    "alias_table",
    "draw",
    "expected_count",
    "fixed",
    "last_places",
    "log_uniform",
    "outcome",
    "uniform",
    "weighed",
]

_SAMPLES_PER_CANDIDATE = 512  # TensorFlow's bound for one call


@dataclass(frozen=True)
class Distribution:
    """A distribution over `size` classes: `pick` returns the classes that a number of samples of a
    stream give, `probability` returns the probability of a class.
    """

    size: int
    pick: Callable[[Stream, int], np.ndarray]
    probability: Callable[[np.ndarray], np.ndarray]


def draw(
    state: PhiloxState, distribution: Distribution, count: int, unique: bool
) -> tuple[np.ndarray, int]:
    """Draw `count` classes, all different if `unique`; also return the number of tries."""
    stream = state.reserve(_SAMPLES_PER_CANDIDATE * count)
    if unique and count > distribution.size:
        raise ValueError("Sampler's range is too small.")
    samples = count  # four words each
    while True:
        picked = distribution.pick(stream, samples)
        if not unique and len(picked) >= count:
            return picked[:count], count
        if unique:
            places = _first_places(picked, count)
            if len(places) == count:
                return picked[places], int(places[-1]) + 1 if count else 0
        samples *= 2


def _first_places(keys: np.ndarray, limit: int) -> np.ndarray:
    """Return where new keys occur, in order, `limit` of them at most."""
    if generated.worthwhile(keys.size):
        find = generated.routine("first_places")
        if find is not None:
            return find(keys, limit)
    return np.sort(np.unique(keys, return_index=True)[1])[:limit]


def last_places(keys: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the last place of each of the `asked` among the keys, -1 where there is none."""
    if generated.worthwhile(keys.size):
        find = generated.routine("last_places")
        if find is not None:
            return find(np.ascontiguousarray(keys), np.ascontiguousarray(asked))
    found, last = np.unique(keys[::-1], return_index=True)
    if not len(found):
        return np.full(len(asked), -1)
    at = np.minimum(np.searchsorted(found, asked), len(found) - 1)
    return np.where(found[at] == asked, len(keys) - 1 - last[at], -1)


def expected_count(probability: np.ndarray, count: int, tries: int) -> np.ndarray:
    """Return the expected count of a class; at most 1 if drawing without repeats took
    more tries.
    """
    p = np.asarray(probability, np.float32)
    if tries == count:
        return p * np.float32(count)
    return -np.expm1(np.float32(tries) * np.log1p(-p))


# -- Distributions ---------------------------------------------------------------------------------


def _pairs(stream: Stream, samples: int) -> tuple[np.ndarray, np.ndarray]:
    whole = words(stream, samples).reshape(-1).astype(np.uint64)
    return whole[::2], whole[1::2]


def _below(numbers: np.ndarray, limit: int, bits: int) -> np.ndarray:
    """Reduce random numbers below a limit; leave out those that would bias the result."""
    first = (1 << bits) % limit
    return numbers[numbers >= first] % numbers.dtype.type(limit)


def uniform(size: int) -> Distribution:
    """All classes are equally likely."""

    def pick(stream: Stream, samples: int) -> np.ndarray:
        low, high = _pairs(stream, samples)
        return _below(high << np.uint64(32) | low, size, 64).astype(np.int64)

    return Distribution(size, pick, lambda c: np.full(np.shape(c), 1.0 / size))


def log_uniform(size: int) -> Distribution:
    """Class c has probability log((c + 2) / (c + 1)) / log(size + 1): Zipf's law."""
    scale = np.log1p(float(size))

    def pick(stream: Stream, samples: int) -> np.ndarray:
        numbers = draw_uniform(stream, [2 * samples], np.float64)
        numbers *= scale
        found = np.exp(numbers, out=numbers).astype(np.int64)
        found -= 1
        found[found == size] = 0  # by rounding
        return found

    def probability(classes: np.ndarray) -> np.ndarray:
        c = np.asarray(classes, np.float64)
        return np.log((c + 2.0) / (c + 1.0)) / scale

    return Distribution(size, pick, probability)


def weighed(weights: np.ndarray) -> Distribution:
    """Class c has a probability proportional to its (integer) weight."""
    ends = np.cumsum(weights)
    total = int(ends[-1])

    def pick(stream: Stream, samples: int) -> np.ndarray:
        raw = words(stream, samples).reshape(-1)
        return np.searchsorted(ends, _below(raw, total, 32), side="right").astype(np.int64)

    def probability(classes: np.ndarray) -> np.ndarray:
        return _weights_of(classes, weights) / total

    return Distribution(len(weights), pick, probability)


def _weights_of(classes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weights of classes; 0 for classes out of range."""
    inside = (classes >= 0) & (classes < len(weights))
    return np.where(inside, weights[np.where(inside, classes, 0)], weights.dtype.type(0))


def fixed(weights: Sequence[float]) -> Distribution:
    """Class c has a probability proportional to its weight, by the alias method: pick any class,
    then keep it or take its alias.
    """
    size, given = len(weights), np.asarray(weights, np.float32)
    total = np.float32(given.sum(dtype=np.float32))
    keep, alias = alias_table(given)

    def pick(stream: Stream, samples: int) -> np.ndarray:
        low, high = _pairs(stream, samples)
        fractions = (low & np.uint64(0x7FFFFF)).astype(np.float64) * 2.0**-23
        chosen = (high % np.uint64(size)).astype(np.int64)
        return np.where(fractions < keep[chosen], chosen, alias[chosen])

    def probability(classes: np.ndarray) -> np.ndarray:
        return _weights_of(classes, given) / total

    return Distribution(int(np.count_nonzero(given)), pick, probability)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each class, the probability of keeping it once picked, and its alias.

    Classes below the mean are filled up from classes above it, the last of both first.
    """
    size = len(weights)
    shares = weights.astype(np.float64) * size / float(weights.astype(np.float64).sum())
    keep, alias = np.ones(size, np.float32), np.arange(size)
    low = np.flatnonzero(shares < 1.0).tolist()
    high = np.flatnonzero(shares >= 1.0).tolist()
    while low and high:
        poor, rich = low.pop(), high.pop()
        keep[poor], alias[poor] = shares[poor], rich
        shares[rich] -= 1.0 - shares[poor]
        (low if shares[rich] < 1.0 else high).append(rich)
    return keep, alias


def outcome(
    state: PhiloxState, distribution: Distribution, true_classes: Any, count: int, unique: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the drawn classes and the expected counts of the true classes and of the
    drawn ones.
    """
    drawn, tries = draw(state, distribution, count, unique)
    true_classes = np.asarray(true_classes)
    classes = np.concatenate([true_classes.reshape(-1), drawn])
    expected = expected_count(distribution.probability(classes), count, tries)
    expected = expected.astype(np.float32, copy=False)
    of_true = expected[: true_classes.size].reshape(true_classes.shape)
    return drawn, of_true, expected[true_classes.size :]
