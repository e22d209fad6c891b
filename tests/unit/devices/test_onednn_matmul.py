"""Matrix products by oneDNN against NumPy in float64."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from headrace._src.devices import onednn


def sample(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def stored(matrix, transposed):
    return np.ascontiguousarray(np.swapaxes(matrix, -1, -2)) if transposed else matrix


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((1, 1), (1, 1)),
        ((5, 7), (7, 3)),
        ((1, 100), (100, 1)),
        ((64, 64), (64, 64)),
        ((33, 300), (300, 65)),
        ((513, 1025), (1025, 1031)),  # large enough for the right operand to be reordered
        ((4, 5, 6), (4, 6, 7)),
        ((4, 5, 6), (6, 7)),
        ((5, 6), (4, 6, 7)),
        ((2, 1, 5, 6), (3, 6, 7)),
        ((1, 3, 2, 4), (2, 1, 4, 5)),
    ],
)
def test_matmul(a_shape, b_shape, flags):
    a, b = sample(*a_shape), sample(*b_shape, seed=1)
    got = onednn.matmul(stored(a, flags[0]), stored(b, flags[1]), *flags)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert got.dtype == np.float32 and got.shape == want.shape and got.ctypes.data % 64 == 0
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_views_are_copied():
    a, b = sample(6, 8)[:, ::2], sample(4, 10)[:, 1:6]
    np.testing.assert_allclose(onednn.matmul(a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_bfloat16_accumulates_in_float32():
    a = sample(9, 512).astype(ml_dtypes.bfloat16)
    b = sample(512, 5, seed=1).astype(ml_dtypes.bfloat16)
    try:
        got = onednn.matmul(a, b)
    except onednn.Unsupported as refusal:  # a CPU without AVX-512
        assert "unimplemented" in str(refusal)
        return
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "reason"),
    [
        ((2, 3), (4, 5), "invalid_arguments"),
        ((2, 3, 4), (3, 4, 5), "batches"),
        ((3,), (3, 4), "fewer than 2"),
        ((0, 3), (3, 4), "empty"),
        ((1,) * 12 + (2, 3), (3, 4), "invalid_arguments"),
    ],
)
def test_what_does_not_fit_is_unsupported(a_shape, b_shape, reason):
    with pytest.raises(onednn.Unsupported, match=reason):
        onednn.matmul(sample(*a_shape), sample(*b_shape))


def test_other_and_mixed_dtypes_are_unsupported():
    a = np.eye(2)
    for left, right in [(a, a), (a.astype(np.float32), a), (a.astype(int), a.astype(int))]:
        with pytest.raises(onednn.Unsupported, match="float32"):
            onednn.matmul(left, right)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (7, 5, 3), (65, 33, 129)])
def test_gemm(rows, depth, columns, transpose_a, transpose_b):
    rng = np.random.default_rng(0)
    a = rng.random((depth, rows) if transpose_a else (rows, depth), np.float32)
    b = rng.random((columns, depth) if transpose_b else (depth, columns), np.float32)
    exact = (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    np.testing.assert_allclose(onednn.gemm(a, b, transpose_a, transpose_b), exact, rtol=1e-5)


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5)), ((0, 3), (3, 2)), ((2, 3, 4), (4, 5))])
def test_gemm_refuses_what_does_not_fit(shapes):
    a, b = (np.zeros(s, np.float32) for s in shapes)
    with pytest.raises(onednn.Unsupported):
        onednn.gemm(a, b)
