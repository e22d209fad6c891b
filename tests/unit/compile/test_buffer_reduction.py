"""Code that reduces buffers of several processes equals NumPy."""

import numpy as np
import pytest

from headrace._src.compile.native.buffer_reduction import (
    TYPES,
    BufferReduction,
    reduce_by_numpy,
    reduction,
    waiter,
)
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
