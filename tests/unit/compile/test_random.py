"""Random kernels against ops.random.philox: the same numbers from the same streams."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.kernels.singles.random_numbers import RandomNumbers, StreamOfSeed
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.ops.random import philox
from tests.unit.compile.arrays import numpy_type

FLOATS = ("float32", "float64", "float16", "bfloat16")
STREAM = philox.Stream(0x0123456789ABCDEF, (7 << 64) | 12345)
# Its counters' lower halves run over.
LAST = philox.Stream(5, (3 << 64) | (2**64 - 9))


def draw(
    distribution: str, count: int, dtype: str, stream: philox.Stream = STREAM, threads: int = 2,
    bounds: tuple[int, int] | None = None,
) -> np.ndarray:  # fmt: skip
    result = np.zeros(count, numpy_type(dtype))
    limits = np.array([count, *(bounds or ())])
    run_kernel(RandomNumbers(distribution, dtype), [stream.words(), limits, result], threads)
    return result


@pytest.mark.parametrize("count", [1, 3, 4, 31, 32, 33, 1000, 10_001])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stream", [STREAM, LAST])
def test_uniform_is_equal(stream, dtype, count):
    expected = philox.draw_uniform(stream, [count], numpy_type(dtype))
    np.testing.assert_array_equal(draw("uniform", count, dtype, stream), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 33, 20_000])
@pytest.mark.parametrize("distribution", ["normal", "truncated"])
def test_normal_is_equal(distribution, dtype, count):
    """Of float64, up to rounding. A wrong acceptance would shift all later numbers of a group."""
    expected = philox.draw(distribution, STREAM, [count], numpy_type(dtype))
    got = draw(distribution, count, dtype)
    if dtype == "float64":
        np.testing.assert_allclose(got, expected, rtol=1e-15, atol=1e-15)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("bounds", [(0, 10), (-5, 1), (0, 1), (-(2**31), 2**31 - 1), (7, 2**30)])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_equal(dtype, bounds):
    expected = philox._draw_uniform_int(STREAM, [999], *bounds, np.dtype(dtype))
    np.testing.assert_array_equal(draw("integer", 999, dtype, bounds=bounds), expected)


def test_threads_do_not_matter():
    results = [draw("normal", 5003, "float32", threads=t) for t in (1, 2, 5)]
    assert all(np.array_equal(r, results[0]) for r in results)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("seed", [(1, 2), (-3, 9), (0, 0)])
def test_stream_of_seed(dtype, seed):
    stream = np.zeros(3, np.uint64)
    run_kernel(StreamOfSeed(dtype), [np.array(seed, dtype), stream])
    expected = philox.stateless_stream(np.array(seed, dtype)).words()
    np.testing.assert_array_equal(stream, expected)
