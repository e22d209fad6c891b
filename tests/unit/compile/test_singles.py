"""Kernels for single operations against NumPy: any sizes, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.kernels.rows.largest import LargestOfAny
from headrace._src.compile.kernels.rows.spans import ColumnSums, RowUpdates, Span, block_of
from headrace._src.compile.kernels.singles.fourier import Fourier
from headrace._src.compile.kernels.singles.matrix_factors import Inverse
from headrace._src.compile.run import single_ops
from headrace._src.devices.target import host
from headrace._src.lowering.pointwise import record
from tests.unit.compile.arrays import numpy_type

RNG = np.random.default_rng(0)


def complexes(*shape):
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


# -- Element by element --------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1, 7, 63, 1000])
def test_span_takes_any_number_of_elements(more):
    program = record(lambda e, x, y: e.exp(x) + y, ["float32"] * 2)
    count = block_of(program, host()) + more
    x = RNG.standard_normal(count).astype(np.float32)
    (found,) = single_ops.elementwise(program, ("full", "single"))(x, np.array(2, np.float32))
    np.testing.assert_allclose(found, np.exp(x) + 2, rtol=1e-6)


def test_span_of_fewer_elements_than_a_block_is_declined():
    program = record(lambda e, x: x + 1, ["float32"])
    too_few = np.zeros(block_of(program, host()) - 1, np.float32)
    assert single_ops.elementwise(program, ("full",))(too_few) is None


@pytest.mark.parametrize("columns", [128, 130, 515])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_span_combines_every_row_with_one(rows, columns):
    program = record(lambda e, x, y, z: (x - y) * z, ["float64"] * 3)
    x, y = RNG.standard_normal((rows, columns)), RNG.standard_normal(columns)
    z = np.array(3.0)
    (found,) = single_ops.elementwise(program, ("full", "row", "single"))(x, y, z)
    np.testing.assert_array_equal(found, (x - y) * z)


def test_span_gives_several_outputs_of_several_types():
    program = record(lambda e, x: (e.cast(x, "float64"), x > 0), ["float32"])
    x = RNG.standard_normal(1000).astype(np.float32)
    wide, positive = single_ops.elementwise(program, ("full",))(x)
    np.testing.assert_array_equal(wide, x.astype(np.float64))
    np.testing.assert_array_equal(positive, x > 0)


def test_positions_have_no_span():
    program = record(lambda e, x: x + e.cast(e.index(0), "float32"), ["float32"])
    assert single_ops.elementwise(program, ("full",)) is None


# -- Sums and updates ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_column_sums(rows, dtype):
    program = record(lambda e, x, m: (e.square(x - m), x), [dtype] * 2)
    x = RNG.standard_normal((rows, 64)).astype(dtype) + 1
    mean = x.mean(0)
    squares, sums = single_ops.column_sums(program, ("full", "row"))(x, mean)
    exact = x.astype(np.float64)
    assert squares.dtype == sums.dtype == np.float64
    close = {"rtol": 1e-5 if dtype == "float32" else 1e-13}
    np.testing.assert_allclose(squares, np.square(exact - mean).sum(0), **close)
    np.testing.assert_allclose(sums, exact.sum(0), atol=rows * close["rtol"] / 10, **close)


def test_column_sums_of_part_of_a_vector_are_declined():
    program = record(lambda e, x: x, ["float32"])
    assert single_ops.column_sums(program, ("full",))(np.ones((5, 63), np.float32)) is None


@pytest.mark.parametrize("shape", [(70, 1000), (9000, 16), (4000, 17), (1, 70001), (40, 31, 63)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax(shape, dtype):
    x = (5 * RNG.standard_normal(shape)).astype(dtype)
    exact = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    found = single_ops.routine("softmax", dtype)(x)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, exact, rtol=5e-6 if dtype == "float32" else 1e-14)


def test_softmax_of_rows_with_infinities_and_nan():
    x = RNG.standard_normal((1000, 100)).astype(np.float32)
    x[3, 5], x[4, 99], x[5, 98], x[6], x[7, 0] = np.nan, np.inf, -np.inf, -np.inf, 1e38
    found = single_ops.routine("softmax", "float32")(x)
    assert np.isnan(found[[3, 4, 6]]).all()
    assert not np.isnan(np.delete(found, [3, 4, 6], 0)).any()
    assert found[5, 98] == 0
    assert found[7, 0] == 1
    assert found[7, 1:].max() == 0


def test_softmax_of_rows_shorter_than_a_vector_is_declined():
    assert single_ops.routine("softmax", "float32")(np.ones((90000, 1), np.float32)) is None


@pytest.mark.parametrize("columns", [1, 3, 8, 64, 77])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_rows_are_updated_in_order(dtype, columns):
    program = record(lambda e, old, new: old - new, [dtype] * 2)
    keys = RNG.integers(0, 50, 2000)
    rows = RNG.integers(-9, 9, (2000, columns)).astype(dtype)
    target = RNG.integers(-9, 9, (50, columns)).astype(dtype)
    expected = target.copy()
    np.subtract.at(expected, keys, rows)
    single_ops.row_updates(program)(target, keys, rows)
    np.testing.assert_array_equal(target, expected)


# -- The largest elements ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("length", [32, 33, 100, 517])
@pytest.mark.parametrize("k", [1, 5, 32])
def test_largest(k, length, dtype):
    x = (RNG.standard_normal((9, length)) * 20 + 100).round().astype(numpy_type(dtype))
    if "float" in dtype:
        x[1, length // 2] = np.nan
        x[2] = -np.inf
        x[3, ::3] = -0.0
    values, places = np.zeros((9, k), x.dtype), np.zeros((9, k), np.int32)
    single_ops.largest(dtype)(x, values, places)
    # A NaN is larger than any number, and of equal elements the first comes first.
    wide = x.astype(np.float64)
    for r in range(9):
        by = sorted(range(length), key=lambda i: (not np.isnan(wide[r, i]), -wide[r, i], i))[:k]
        np.testing.assert_array_equal(places[r], by)
        np.testing.assert_array_equal(values[r].astype(np.float64), wide[r, by])


# -- Fourier transforms --------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [64, 128, 256, 1024, 8192])
@pytest.mark.parametrize("outer, inner", [(1, 1), (3, 1), (1, 64), (3, 16)])
def test_fourier(n, outer, inner, dtype, inverse):
    x = complexes(outer, n, inner).astype(np.complex64 if dtype == "float32" else np.complex128)
    y = np.empty_like(x)
    single_ops.fourier(dtype, inverse)(x, y)
    exact = (np.fft.ifft if inverse else np.fft.fft)(x.astype(np.complex128), axis=1)
    error = np.abs(y - exact).max() / np.abs(exact).max()
    assert error < (1e-6 if dtype == "float32" else 2e-15)


@pytest.mark.parametrize("inner", [1, 16])
def test_fourier_in_place(inner):
    x = complexes(2, 256, inner)
    exact = np.fft.fft(x, axis=1)
    single_ops.fourier("float64", False)(x, x)
    np.testing.assert_allclose(x, exact, atol=1e-12)


# -- Factors and inverses ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 31, 32, 33, 100, 257])
@pytest.mark.parametrize("count", [1, 3])
def test_cholesky(count, n):
    a = RNG.standard_normal((count, n, n))
    x = a @ a.transpose(0, 2, 1) + np.eye(n)
    expected = np.linalg.cholesky(x)
    lower = np.tril(x) + 7 * np.triu(np.ones((n, n)), 1)  # what is above isn't read
    np.testing.assert_allclose(single_ops.cholesky()(lower), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_no_factor_of_what_is_not_positive_definite(bad):
    x = np.eye(40)
    x[17, 17] = bad
    assert single_ops.cholesky()(np.stack([np.eye(40), x])) is None


@pytest.mark.parametrize("n", [1, 5, 31, 32, 33, 100, 257])
@pytest.mark.parametrize("count", [1, 3])
def test_inverse(count, n):
    x = RNG.standard_normal((count, n, n)) + np.eye(n)
    exact = np.linalg.inv(x)
    found = single_ops.inverse()(x)
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=1e-9 * np.abs(exact).max())


def test_inverse_of_a_permutation_needs_every_swap():
    order = RNG.permutation(70)
    x = np.eye(70)[order]
    np.testing.assert_array_equal(single_ops.inverse()(x[None])[0], x.T)


def test_no_inverse_of_a_singular_matrix():
    x = np.stack([np.eye(64), np.eye(64)])
    x[1, 5] = 0
    assert single_ops.inverse()(x) is None


# -- Specs ---------------------------------------------------------------------------------------


def test_a_spec_says_nothing_of_sizes():
    """Its repr is its identity on disk: one piece of code serves all sizes."""
    program = record(lambda e, x: x + 1, ["float32"])
    specs = [
        Span(program, ("full",)),
        ColumnSums(program, ("full",)),
        RowUpdates(record(lambda e, x, y: x + y, ["float32"] * 2)),
        LargestOfAny("float32"),
        Fourier("float32", False),
        Inverse("float64"),
    ]
    for spec in specs:
        assert not spec.counters
        assert not spec.scratch(2)
        assert len(spec.arguments) > 1
