"""The largest elements: every way to find them gives the same, ties and NaN included."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.ops.array.sorting import _largest

RANDOM = np.random.RandomState(0)


def expected(x, k):
    """Descending, NaN first, equal ones from left to right."""
    size = x.shape[-1]
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    return (size - 1 - backwards[..., ::-1])[..., :k]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u1", "i2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("shape", [(4, 5), (50, 60), (2, 3, 400), (1, 2000), (0, 3)])
def test_many_equal_elements(dtype, shape):
    x = RANDOM.randint(0, 20, shape).astype(dtype)
    if x.dtype.kind != "u":
        x *= RANDOM.choice([-1, 1], shape).astype(dtype)  # -0.0 equals 0.0
    for k in (0, 1, 2, shape[-1] // 5, shape[-1]):
        values, places = _largest(x, k)
        assert (values.dtype, places.dtype) == (x.dtype, np.int32)
        np.testing.assert_array_equal(places, expected(x, k))
        np.testing.assert_array_equal(values, np.take_along_axis(x, expected(x, k), -1))


@pytest.mark.parametrize("dtype", ["f4", "f8", ml_dtypes.bfloat16])
def test_infinite_and_nan(dtype):
    x = RANDOM.choice([np.nan, np.inf, -np.inf, 0, 1, 2], (30, 100)).astype(dtype)
    for k in (1, 3, 20, 100):
        np.testing.assert_array_equal(_largest(x, k)[1], expected(x.astype("d"), k))


def test_nan_beside_elements_equal_to_the_least_chosen():
    x = np.array([[np.nan, 5, 5, 5, *[0] * 60]], "f")
    assert _largest(x, 3)[1].tolist() == [[0, 1, 2]]
