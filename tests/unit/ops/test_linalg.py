"""Linear algebra: gradients along symmetric directions and of complex matrices, errors."""

import numpy as np
import pytest

import headrace as tf
from headrace.ops import linalg_kernels as kernels

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
