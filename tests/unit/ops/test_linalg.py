"""Linear algebra: gradients along symmetric directions and of complex matrices, errors."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.linalg import linalg_kernels as kernels

rng = np.random.default_rng(3)
SQUARE = rng.uniform(-1, 1, (3, 3))
POSITIVE = SQUARE @ SQUARE.T + 2 * np.eye(3)
DIRECTION = rng.uniform(-1, 1, (3, 3))
SYMMETRIC = DIRECTION + DIRECTION.T
WEIGHTS = rng.uniform(-1, 1, (3, 3))


def derivatives(function, point, direction):
    """The derivative of sum(WEIGHTS * function) at a point: by gradient, and by differences."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.as_dtype(point.dtype), point.shape)
        y = tf.reduce_sum(tf.real(function(x) * WEIGHTS))
        gradient = session.run(tf.gradients(y, x)[0], {x: point})
        step = 1e-6
        ends = [session.run(y, {x: point + s * step * direction}) for s in (1, -1)]
    return np.sum(np.real(np.conj(gradient) * direction)), (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize(
    "function",
    [
        tf.cholesky,
        tf.linalg.expm,
        tf.linalg.sqrtm,
        tf.linalg.logdet,
        lambda x: tf.cholesky_solve(tf.cholesky(x), x[:, :2] ** 2)[:, :1],
        lambda x: tf.self_adjoint_eig(x)[0],
        lambda x: tf.self_adjoint_eig(x)[1] ** 2,
        lambda x: tf.matrix_inverse(x, adjoint=True),
        lambda x: tf.norm(x, 2, [0, 1]),
        lambda x: tf.linalg.pinv(x[:, :2])[0],
        lambda x: tf.gradients(tf.cholesky(x), x)[0],
        lambda x: tf.gradients(tf.matrix_inverse(x) ** 2, x)[0],
        lambda x: tf.gradients(tf.linalg.expm(x) ** 2, x)[0],
    ],
)
def test_gradient_along_symmetric_directions(function):
    found, expected = derivatives(function, POSITIVE, SYMMETRIC)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "function",
    [
        tf.linalg.logm,
        tf.linalg.sqrtm,
        tf.linalg.expm,
        tf.matrix_inverse,
        tf.matrix_determinant,
        lambda x: tf.linalg.lu(x)[0],
        lambda x: tf.matrix_solve(x, x[:, :2], adjoint=True)[:, :1],
        lambda x: tf.matrix_triangular_solve(x, x[:, :2])[:, :1],
    ],
)
def test_gradient_of_complex_matrices(function):
    """Only analytic functions of x itself: a derivative is the same along x and along i x."""
    point = POSITIVE + 1j * DIRECTION
    found, expected = derivatives(function, point, SQUARE + 0j)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def run(function, *arrays):
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = [tf.placeholder(tf.float64) for _ in arrays]
        return session.run(function(*inputs), dict(zip(inputs, arrays, strict=True)))


SINGULAR = [[1.0, 2.0], [2.0, 4.0]]


@pytest.mark.parametrize(
    ("function", "arrays", "message"),
    [
        (tf.cholesky, ([[1.0, 2.0], [2.0, 1.0]],), "Cholesky decomposition was not successful"),
        (tf.cholesky, ([[1.0, 2.0]],), "must be square"),
        (tf.cholesky, ([1.0],), "rank >= 2"),
        (tf.matrix_inverse, (SINGULAR,), "Input is not invertible"),
        (tf.matrix_solve, (SINGULAR, [[1.0], [2.0]]), "not invertible"),
        (tf.matrix_solve, (np.eye(2), np.eye(3)), "incompatible"),
        (tf.matrix_solve, (np.ones((2, 2, 2)), np.ones((3, 2, 1))), "outer dimensions"),
        (tf.matrix_triangular_solve, ([[0.0, 1.0], [1.0, 1.0]], [[1.0], [2.0]]), "not invertible"),
        (lambda x: tf.linalg.lu(x)[0], (SINGULAR,), "Input is not invertible"),
        (tf.self_adjoint_eigvals, ([[np.nan, 1.0], [1.0, 1.0]],), "not successful"),
    ],
)
def test_bad_matrices_are_named(function, arrays, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(function, *arrays)


def test_shapes_that_cannot_go_together_fail_at_once():
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 1 and 2"):
        tf.cholesky([[1.0, 2.0]])
    with pytest.raises(ValueError, match="Shape must be at least rank 2 but is rank 1"):
        tf.qr([1.0, 2.0])


def test_least_squares_of_unknown_shape_needs_no_regularizer():
    a, y = rng.uniform(-1, 1, (5, 3)), rng.uniform(-1, 1, (5, 2))
    found = run(lambda m, v: tf.matrix_solve_ls(m, v, fast=False), a, y)
    np.testing.assert_allclose(found, np.linalg.lstsq(a, y, rcond=None)[0])


def test_large_triangular_systems_are_solved_in_blocks():
    size = 150
    lower = np.tril(rng.uniform(-1, 1, (size, size))) / 10 + np.eye(size)
    y = rng.uniform(-1, 1, (size, 3))
    for matrix, options in (
        (lower, {"lower": True, "adjoint": False}),
        (lower.T, {"lower": False, "adjoint": False}),
        (lower, {"lower": True, "adjoint": True}),
        (lower.T, {"lower": False, "adjoint": True}),
    ):
        x = kernels.triangular_solve(matrix, y, **options)
        whole = matrix.T if options["adjoint"] else matrix
        np.testing.assert_allclose(whole @ x, y, atol=1e-10)


def test_logarithm_undoes_exponential():
    x = SQUARE + 1j * DIRECTION
    np.testing.assert_allclose(kernels.logarithm(kernels.exponential(x)), x, atol=1e-10)


def test_square_root_of_what_has_none_is_nan():
    assert np.isnan(kernels.square_root(np.array([[-2.0, 1.0], [0.0, 3.0]]))).all()
    nilpotent = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert np.isnan(kernels.square_root(nilpotent)).all()


def test_diagonals_beyond_the_main_one():
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(run(lambda t: tf.matrix_diag_part(t, k=1), x), [1, 6, 11])
    found = run(lambda t: tf.matrix_diag_part(t, k=(-1, 0), padding_value=9), x)
    np.testing.assert_array_equal(found, [[0, 5, 10], [4, 9, 9]])
    found = run(lambda t: tf.linalg.diag(t[0, :2], k=1), x)
    np.testing.assert_array_equal(found, np.diag([0.0, 1.0], 1))
    found = run(lambda t: tf.linalg.set_diag(t, t[0, :2] + 50, k=2), x)
    np.testing.assert_array_equal(np.diagonal(found, 2), [50, 51])


def test_spectral_norm_of_any_two_dimensions():
    x = rng.uniform(-1, 1, (2, 3, 4))
    for axis in ([-2, -1], [0, 2], [1, 0]):
        for keepdims in (False, True):
            expected = np.linalg.norm(x, 2, tuple(axis), keepdims)
            unknown = run(lambda t, a=axis, k=keepdims: tf.norm(t, 2, a, k), x)
            np.testing.assert_allclose(unknown, expected)
            known = run(lambda a=axis, k=keepdims: tf.norm(x, 2, a, k))
            np.testing.assert_allclose(known, expected)


def test_exponential_of_what_is_known():
    rotation = 20 * np.array([[0.0, -1.0], [1.0, 0.0]])
    expected = [[np.cos(20), -np.sin(20)], [np.sin(20), np.cos(20)]]
    np.testing.assert_allclose(run(tf.linalg.expm, rotation), expected, atol=1e-12)
    nilpotent = np.array([[[0.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(run(tf.linalg.expm, nilpotent), np.eye(2) + nilpotent, atol=1e-15)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("size", [10, 130])
def test_triangular_solve_substitutes(size, dtype, lower, adjoint):
    """Accurate to the last digits, and each row is free of those that come after it."""
    random = np.random.RandomState(42)
    matrix = random.uniform(-1, 1, (2, size, size)).astype(dtype)
    matrix *= 1j if dtype == "complex128" else 1
    matrix += 2 * np.eye(size)
    rhs = random.uniform(-1, 1, (2, size, 3)).astype(dtype)
    triangle = np.tril(matrix) if lower else np.triu(matrix)
    triangle = np.conj(np.swapaxes(triangle, -1, -2)) if adjoint else triangle
    forward = lower != adjoint
    places = list(range(size) if forward else range(size - 1, -1, -1))
    wide = np.clongdouble if dtype == "complex128" else np.longdouble
    exact = np.zeros(rhs.shape, wide)
    for n, i in np.ndindex(2, size):
        row = places[i]
        known = triangle[n, row].astype(wide) @ exact[n]
        exact[n, row] = (rhs[n, row] - known) / triangle[n, row, row]
    with tf.Graph().as_default(), tf.Session() as session:
        b = tf.placeholder(dtype, rhs.shape)
        solved = tf.linalg.triangular_solve(matrix, b, lower=lower, adjoint=adjoint)
        found = session.run(solved, {b: rhs})
        changed = rhs.copy()
        changed[:, places[-1]] += 1
        after = session.run(solved, {b: changed})
    scale = np.abs(triangle).astype(float) @ np.abs(exact).astype(float) + np.abs(rhs)
    residual = np.abs(triangle.astype(wide) @ found - rhs)
    assert (residual <= 4 * size * np.finfo(float).eps * scale).all()
    if size == 10:
        assert (np.abs(found - exact) <= 1e-12 * np.abs(exact).max()).all()
    np.testing.assert_array_equal(found[:, places[:-1]], after[:, places[:-1]])


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2, 2), (2, 3, 2)])
def test_singular_values_of_complex_matrices_have_gradients(shape):
    random = np.random.RandomState(0)
    value = random.randn(*shape) + 1j * random.randn(*shape)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.complex128, shape)
        s = tf.linalg.svd(x, compute_uv=False)
        weights = np.arange(1.0, min(shape[-2:]) + 1)
        (gradient,) = session.run(tf.gradients(s * weights, x), {x: value})
        for place in np.ndindex(shape):
            for direction in (1e-6, 1e-6j):
                step = np.zeros(shape, complex)
                step[place] = direction
                ahead, behind = (
                    (session.run(s, {x: value + sign * step}) * weights).sum() for sign in (1, -1)
                )
                slope = (ahead - behind) / 2e-6
                expected = (np.conj(gradient[place]) * (direction / 1e-6)).real
                assert abs(slope - expected) < 1e-6


def test_singular_vectors_of_complex_matrices_have_no_gradient():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.complex64, [2, 2])
        with pytest.raises(NotImplementedError, match="complex types and compute_uv=True"):
            tf.gradients(tf.linalg.svd(x)[0], x)


def test_eigenvectors_of_complex_matrices_have_gradients():
    random = np.random.RandomState(0)
    m = random.randn(3, 3) + 1j * random.randn(3, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        a = tf.constant(m + m.conj().T)
        e, v = tf.linalg.eigh(a)
        found = session.run(tf.gradients(tf.abs(v), a)[0])
    assert e.dtype == tf.complex128
    expected = [  # TensorFlow 1.15.5's
        [0.0034, 0, 0],
        [0.0188 + 0.0059j, -0.0471, 0],
        [0.0909 - 0.0549j, 0.0538 - 0.0536j, 0.0437],
    ]
    np.testing.assert_allclose(found, expected, atol=6e-5)
