"""Code that reduces buffers of several processes equals NumPy."""

import ctypes

import numpy as np
import pytest

from headrace._src.compile.native.buffer_reduction import (
    TYPES,
    BufferReduction,
    reduce_by_numpy,
    reduction,
)
from headrace._src.compile.native.reduction_rounds import RoundWords, quick_round, waiter
from headrace._src.devices.buffers import empty_aligned


def aligned(values):
    found = empty_aligned(values.shape, values.dtype)
    found[...] = values
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("merge", ["Add", "Mul", "Min", "Max"])
@pytest.mark.parametrize("past_caches", [False, True])
def test_equals_numpy(dtype, merge, past_caches):
    numbers = np.random.default_rng(1)
    spec = BufferReduction(dtype, merge, 3, 2, 3, past_caches)
    pieces = []
    for count in (0, 1, 100, 257):
        sources = [aligned(numbers.integers(-50, 50, count).astype(dtype)) for _ in range(3)]
        if count > 1 and np.dtype(dtype).kind == "f":
            sources[1][0] = np.nan
        pieces.append((sources, [aligned(np.zeros(count, dtype)) for _ in range(2)]))
    table = np.array(
        [[len(s[0]), *(a.ctypes.data for a in (*s, *made))] for s, made in pieces], np.uint64
    )
    reduction(spec)(table.ctypes.data, len(pieces))
    for sources, made in pieces:
        wanted = [np.empty_like(made[0])]
        with np.errstate(all="ignore"):
            reduce_by_numpy(spec, sources, wanted)
        for found in made:
            np.testing.assert_array_equal(found, wanted[0])


def test_waiter():
    words = np.array([[3, 0], [5, 7]], np.int64)
    table = np.array([row.ctypes.data for row in words], np.uint64)
    wait = waiter()
    assert wait(table.ctypes.data, 2, 0, 3, 10)
    assert not wait(table.ctypes.data, 2, 0, 4, 10)
    assert wait(table.ctypes.data, 1, 0, 3, 0)
    assert not wait(table.ctypes.data, 2, 1, 1, 0)


ARRIVED, DONE, ASLEEP, FACT = range(4)


class Round:
    """A process that takes part in round 5 with another one, whose line is `other`."""

    def __init__(self):
        self.own, self.other = np.zeros(8, np.int64), np.zeros(8, np.int64)
        self.other[FACT] = 7
        self.lines = np.array([self.other.ctypes.data, self.own.ctypes.data])
        self.facts = np.array([self.other[FACT:].ctypes.data, 7])
        self.values = [aligned(np.float32([1, 2])), aligned(np.float32([3, 4]))]
        self.total = aligned(np.zeros(2, "f"))
        pieces = np.array([2, *(a.ctypes.data for a in (*self.values, self.total))])
        function = ctypes.cast(reduction(BufferReduction("float32", "Add", 2, 1)), ctypes.c_void_p)
        self._kept = pieces
        self.table = np.array(
            [
                *(self.lines.ctypes.data, 2, self.own.ctypes.data, self.facts.ctypes.data, 1),
                *(function.value, pieces.ctypes.data, 1),
            ]
        )

    def run(self):
        """Return how many phases are over, this process's words, and the total."""
        over = quick_round(RoundWords(ARRIVED, DONE, ASLEEP))(self.table.ctypes.data, 5, 10)
        return over, self.own[:3].tolist(), self.total.tolist()


@pytest.mark.parametrize(
    ("words", "over"),
    [
        ({ARRIVED: 4, DONE: 4}, 0),
        ({ARRIVED: 5, DONE: 4, FACT: 8}, 0),
        ({ARRIVED: 5, DONE: 4, ASLEEP: 5}, 0),
        ({ARRIVED: 5, DONE: 4, ASLEEP: 3}, 1),
        ({ARRIVED: 5, DONE: 5}, 2),
        ({ARRIVED: 6, DONE: 5}, 2),
    ],
    ids=["late", "other buffers", "asleep", "has slept", "done", "ahead"],
)
def test_a_quick_round_goes_as_far_as_the_others(words, over):
    made = Round()
    for word, value in words.items():
        made.other[word] = value
    done, total = (5, [4.0, 6.0]) if over else (0, [0.0, 0.0])
    assert made.run() == (over, [5, done, 0], total)
