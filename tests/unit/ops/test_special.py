"""The special functions against recorded numbers, TensorFlow's edge cases, and identities."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from headrace._src.ops.math import special_kernels

FIXTURES = Path(__file__).parents[2] / "fixtures" / "special"
VALUES = json.loads((FIXTURES / "values.json").read_text())
EDGES = json.loads((FIXTURES / "edges.json").read_text())
# Where a tail of 1e-100 and less is in the grid, the reference itself is off by this much.
TOLERANCE = {"igamma": 1e-13, "igammac": 1e-13, "ndtr": 5e-14, "betainc": 1e-13}


def _arrays(case, dtype):
    arguments = [np.array(values, float).astype(dtype) for values in case["args"]]
    return arguments, np.array(case["expected"], float)


@pytest.mark.parametrize("name", VALUES)
def test_float64_is_accurate_to_nearly_all_digits(name):
    arguments, expected = _arrays(VALUES[name], np.float64)
    result = getattr(special_kernels, name)(*arguments)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE.get(name, 2e-14), atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", VALUES)
def test_narrow_types_round_the_wide_result(name, dtype):
    function = getattr(special_kernels, name)
    with np.errstate(over="ignore"):
        arguments = [np.array(v).astype(dtype) for v in VALUES[name]["args"]]
        expected = function(*(a.astype(np.float64) for a in arguments)).astype(dtype)
    result = function(*arguments)
    assert result.dtype == dtype
    epsilon = float(ml_dtypes.finfo(dtype).eps)
    smallest = float(ml_dtypes.finfo(dtype).smallest_normal)
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=1.01 * epsilon, atol=smallest
    )


@pytest.mark.parametrize("key", EDGES)
def test_edge_cases_are_tensorflows(key):
    name, dtype = key.split("/")
    arguments, expected = _arrays(EDGES[key], dtype)
    result = getattr(special_kernels, name)(*arguments)
    rtol, atol = (1e-9, 1e-14) if dtype == "float64" else (2e-5, 1e-7)
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("erfinv", [-2, -1, 0, 1, 2, np.nan], [np.nan, -np.inf, 0, np.inf, np.nan, np.nan]),
        ("ndtri", [-1, 0, 0.5, 1, 2, np.nan], [np.nan, -np.inf, 0, np.inf, np.nan, np.nan]),
        ("ndtr", [-np.inf, 0, np.inf, np.nan], [0, 0.5, 1, np.nan]),
    ],
)
def test_inverses_at_the_ends(name, arguments, expected):
    np.testing.assert_array_equal(
        getattr(special_kernels, name)(np.array(arguments, float)), expected
    )


def test_zeros_keep_relative_accuracy():
    h = np.array([1e-15, -1e-12, 1e-9])
    slope = np.array([-0.5772156649015329, 0.42278433509846714])  # digamma(1), digamma(2)
    for point, derivative in zip((1.0, 2.0), slope, strict=True):
        step = (point + h) - point
        np.testing.assert_allclose(special_kernels.lgamma(point + h), derivative * step, rtol=3e-9)
    # The next digits of digamma's zero, times digamma' there.
    np.testing.assert_allclose(
        special_kernels.digamma(np.array(1.4616321449683622)),
        -9.549995429965697e-17 * 0.96767224544762,
        rtol=1e-9,
    )


def test_incomplete_gamma_for_a_large_shape():
    a = np.array([1e4, 1e7, 1e15])
    # P(a, a) = 1/2 + 1/(3 sqrt(2 pi a)) + O(a**-1.5)
    expected = 0.5 + 1 / (3 * np.sqrt(2 * np.pi * a))
    np.testing.assert_allclose(special_kernels.igamma(a, a), expected, rtol=1e-8)
    np.testing.assert_allclose(special_kernels.random_gamma_grad(a, a), 1 + 1 / (3 * a), rtol=1e-4)


def test_igamma_grad_a_is_the_derivative():
    a = np.array([0.1, 0.9, 3.0, 24.9, 25.1, 40.0, 300.0])
    x = np.array([0.3, 2.0, 2.5, 27.0, 20.0, 70.0, 290.0])
    h = 1e-4 * a
    shifted = [special_kernels.igamma(a + k * h, x) for k in (-2, -1, 1, 2)]
    numeric = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * h)
    np.testing.assert_allclose(special_kernels.igamma_grad_a(a, x), numeric, rtol=1e-8)


def test_betainc_is_symmetric_and_covers_huge_shapes():
    a = np.array([0.3, 20.0, 2e3, 1e5, 1e9, 1e12])
    b = np.array([7.0, 0.2, 3e3, 40.0, 0.5, 1e12])
    x = a / (a + b)
    lower, upper = special_kernels.betainc(a, b, x), special_kernels.betainc(b, a, 1 - x)
    assert np.all((lower > 0) & (lower < 1))
    # 1 - x is rounded, which counts a times over.
    np.testing.assert_allclose(lower + upper, 1, atol=1e-9)


def test_polygamma_neither_overflows_nor_underflows_halfway():
    # (n-1)!/x**n (1 + n/(2x) + ...) with n! beyond, or x**-n below, the range of float64.
    n, x = np.array([200.0, 90.0]), np.array([1e6, 4e6])
    log_factorial = np.log(np.arange(1, 200)).cumsum()
    leading = log_factorial[[198, 88]] - n * np.log(x) + np.log1p(n / (2 * x))
    np.testing.assert_allclose(
        special_kernels.polygamma(n, x), [0.0, -np.exp(leading[1])], rtol=1e-6
    )
    assert np.isfinite(special_kernels.polygamma(np.array(200.0), np.array(60.0)))


def test_arguments_broadcast_over_many_blocks():
    a = np.linspace(0.5, 30, 70)[:, None]
    x = np.linspace(0, 40, 301)
    result = special_kernels.igamma(a, x)
    assert result.shape == (70, 301)
    np.testing.assert_array_equal(
        result[11], special_kernels.igamma(np.broadcast_to(a[11], 301), x)
    )
    np.testing.assert_allclose(result + special_kernels.igammac(a, x), 1, rtol=1e-14)
    cube = special_kernels.betainc(a[:, :, None], np.array([0.5, 2.0]), np.array(0.3))
    assert cube.shape == (70, 1, 2)
    assert special_kernels.erf(np.zeros((0, 3))).shape == (0, 3)
    assert special_kernels.erf(np.array(1.0)).shape == ()


def test_strided_input_is_read_and_left_alone():
    x = np.arange(24.0).reshape(4, 6)
    before = x.copy()
    np.testing.assert_array_equal(
        special_kernels.lgamma(x.T[::2]), special_kernels.lgamma(np.array(x.T[::2]))
    )
    np.testing.assert_array_equal(x, before)


def test_xlogy_and_xdivy_take_complex_numbers():
    x = np.array([0, 1 + 1j], np.complex64)
    y = np.array([0, 2j], np.complex64)
    np.testing.assert_allclose(special_kernels.xlogy(x, y), [0, x[1] * np.log(y[1])], rtol=1e-6)
    np.testing.assert_allclose(special_kernels.xdivy(x, y), [0, x[1] / y[1]], rtol=1e-6)
    assert special_kernels.xlogy(x, y).dtype == np.complex64


def test_wrong_dtypes_are_refused():
    with pytest.raises(TypeError, match=r"erf takes .* got int64"):
        special_kernels.erf(np.array([1], np.int64))
    with pytest.raises(TypeError, match=r"igamma takes .* got float32, float64"):
        special_kernels.igamma(np.float32(1), np.float64(1))
