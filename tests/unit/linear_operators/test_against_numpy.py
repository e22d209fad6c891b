"""Every method of every linear operator gives what NumPy gives for the dense matrices, with static
and with unknown shapes, for each type, and for batches that broadcast.
"""

import functools

import numpy as np
import pytest

import headrace as tf

TYPES = ["float32", "complex128"]
TOLERANCES = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}


class Maker:
    """Makes operators of one type with random parameters, whose dense matrices it makes too."""

    def __init__(self, dtype, known, seed=0):
        self.dtype, self.known = np.dtype(dtype), known
        self.random = np.random.RandomState(seed)

    def array(self, *shape):
        values = self.random.uniform(-1, 1, shape)
        if self.dtype.kind == "c":
            values = values + 1j * self.random.uniform(-1, 1, shape)
        return values.astype(self.dtype)

    def square(self, *shape):
        """Well-conditioned matrices."""
        return self.array(*shape) + 3 * np.eye(shape[-1], dtype=self.dtype)

    def positive(self, *shape):
        x = self.array(*shape)
        return x @ adjoint(x) + np.eye(shape[-1], dtype=self.dtype)

    def away_from_zero(self, *shape):
        x = self.array(*shape)
        return x + 2 * x / np.abs(x)

    def given(self, value):
        """A parameter, as a constant or as a tensor of unknown shape."""
        return tf.constant(value) if self.known else tf.placeholder_with_default(value, None)

    def size(self, n):
        return n if self.known else tf.placeholder_with_default(n, [])


def adjoint(x):
    return np.swapaxes(x, -1, -2).conj()


def diagonal(values):
    return values[..., None] * np.eye(values.shape[-1], dtype=values.dtype)


def full(m, *batch, n=4):
    value = m.square(*batch, n, n)
    return tf.linalg.LinearOperatorFullMatrix(m.given(value), is_square=True), value


def full_positive(m, *batch):
    value = m.positive(*batch, 4, 4)
    hints = {"is_self_adjoint": True, "is_positive_definite": True}
    return tf.linalg.LinearOperatorFullMatrix(m.given(value), **hints), value


def lower_triangular(m, *batch):
    value = m.square(*batch, 4, 4)
    return tf.linalg.LinearOperatorLowerTriangular(m.given(value)), np.tril(value)


def diag(m, *batch, n=4):
    value = m.away_from_zero(*batch, n)
    return tf.linalg.LinearOperatorDiag(m.given(value)), diagonal(value)


def identity(m, *batch):
    shape = list(batch) if m.known else tf.placeholder_with_default(np.int32(batch), None)
    operator = tf.linalg.LinearOperatorIdentity(m.size(4), shape if batch else None, m.dtype)
    return operator, np.broadcast_to(np.eye(4, dtype=m.dtype), (*batch, 4, 4))


def scaled_identity(m, *batch):
    value = m.away_from_zero(*batch)
    operator = tf.linalg.LinearOperatorScaledIdentity(m.size(4), m.given(value))
    return operator, value[..., None, None] * np.eye(4, dtype=m.dtype)


def zeros(m, *batch):
    shape = list(batch) if m.known else tf.placeholder_with_default(np.int32(batch), None)
    shape = shape if batch else None
    operator = tf.linalg.LinearOperatorZeros(m.size(4), batch_shape=shape, dtype=m.dtype)
    return operator, np.zeros((*batch, 4, 4), m.dtype)


def householder(m, *batch):
    value = m.away_from_zero(*batch, 4)
    v = (value / np.linalg.norm(value, axis=-1, keepdims=True))[..., None]
    dense = np.eye(4, dtype=m.dtype) - 2 * v * adjoint(v)
    return tf.linalg.LinearOperatorHouseholder(m.given(value)), dense


def toeplitz(m, *batch):
    col, row = m.array(*batch, 4), m.array(*batch, 4)
    col[..., 0] += 4
    ring = np.concatenate([col[..., :0:-1], col[..., :1], row[..., 1:]], -1)
    dense = np.stack([ring[..., 3 - i : 7 - i] for i in range(4)], -2)[..., ::1, :]
    return tf.linalg.LinearOperatorToeplitz(m.given(col), m.given(row)), dense


def circulant(m, *batch, shape=(4,)):
    """Circulant matrices of a random kernel, whose spectrum keeps away from zero."""
    kernel = m.array(*batch, *shape)
    kernel[(..., *[0] * len(shape))] += 6
    axes = range(-len(shape), 0)
    spectrum = np.fft.fftn(kernel, axes=axes)
    spectrum = spectrum.astype(np.result_type(m.dtype, np.complex64))
    size = int(np.prod(shape))
    positions = list(np.ndindex(*shape))
    dense = np.empty((*batch, size, size), m.dtype)
    for i, to in enumerate(positions):
        for j, origin in enumerate(positions):
            offset = tuple((a - b) % n for a, b, n in zip(to, origin, shape, strict=True))
            dense[..., i, j] = kernel[(..., *offset)]
    depth = {1: "", 2: "2D", 3: "3D"}[len(shape)]
    make = getattr(tf.linalg, "LinearOperatorCirculant" + depth)
    return make(m.given(spectrum), input_output_dtype=m.dtype), dense


def circulant_of_real_spectrum(m, *batch):
    if m.dtype.kind != "c":
        return circulant(m, *batch)
    real = np.zeros(0, m.dtype).real.dtype
    spectrum = m.random.uniform(1, 2, (*batch, 4)).astype(real)
    transform = np.fft.fft(np.eye(4))
    dense = np.linalg.inv(transform) @ diagonal(spectrum) @ transform
    operator = tf.linalg.LinearOperatorCirculant(m.given(spectrum), input_output_dtype=m.dtype)
    return operator, dense.astype(m.dtype)


def low_rank_update(m, *batch):
    base, dense = diag(m, *batch)
    u, v, d = m.array(*batch, 4, 2), m.array(*batch, 4, 2), m.away_from_zero(*batch, 2)
    parts = {"diag_update": m.given(d), "v": m.given(v)}
    operator = tf.linalg.LinearOperatorLowRankUpdate(base, m.given(u), **parts)
    return operator, dense + u @ diagonal(d) @ adjoint(v)


def positive_low_rank_update(m, *batch):
    base, dense = full_positive(m, *batch)
    u = m.array(4, 2)
    operator = tf.linalg.LinearOperatorLowRankUpdate(base, m.given(u))
    return operator, dense + u @ adjoint(u)


def kronecker(m, *batch):
    pairs = [full(m, *batch, n=2), diag(m, n=3), full(m, n=2)]
    return tf.linalg.LinearOperatorKronecker([o for o, _ in pairs]), functools.reduce(
        product_of_blocks, [dense for _, dense in pairs]
    )


def product_of_blocks(a, b):
    found = a[..., :, None, :, None] * b[..., None, :, None, :]
    rows, columns = a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]
    return found.reshape(*found.shape[:-4], rows, columns)


def kronecker_of_rectangles(m, *batch):
    a, b = m.array(*batch, 2, 3), m.array(6, 4)
    a[..., 0, 0] += 2
    operators = [tf.linalg.LinearOperatorFullMatrix(m.given(x)) for x in (a, b)]
    return tf.linalg.LinearOperatorKronecker(operators), product_of_blocks(a, b)


def block_diag(m, *batch):
    pairs = [full(m, *batch, n=2), diag(m, n=3)]
    dense = np.zeros((*batch, 5, 5), m.dtype)
    dense[..., :2, :2], dense[..., 2:, 2:] = pairs[0][1], pairs[1][1]
    return tf.linalg.LinearOperatorBlockDiag([o for o, _ in pairs]), dense


def composition(m, *batch):
    (a, x), (b, y), (c, z) = full(m, *batch), diag(m), lower_triangular(m)
    return tf.linalg.LinearOperatorComposition([a, b, c]), x @ y @ z


def composition_of_rectangles(m, *batch):
    a, b = m.array(*batch, 2, 4), m.array(4, 2)
    operators = [tf.linalg.LinearOperatorFullMatrix(m.given(x)) for x in (a, b)]
    return tf.linalg.LinearOperatorComposition(operators), a @ b


def inversion(m, *batch):
    operator, dense = full(m, *batch)
    return tf.linalg.LinearOperatorInversion(operator), np.linalg.inv(dense)


def adjoint_operator(m, *batch):
    operator, dense = full(m, *batch)
    return tf.linalg.LinearOperatorAdjoint(operator), adjoint(dense)


class Own(tf.linalg.LinearOperator):
    """An operator that defines only what it must."""

    def __init__(self, matrix):
        self._matrix = matrix
        super().__init__(matrix.dtype, [matrix], is_square=True)

    def _shape(self):
        return self._matrix.shape

    def _shape_tensor(self):
        return tf.shape(self._matrix)

    def _matmul(self, x, adjoint=False, adjoint_arg=False):
        return tf.matmul(self._matrix, x, adjoint_a=adjoint, adjoint_b=adjoint_arg)


def own(m, *batch):
    value = m.square(*batch, 4, 4)
    return Own(m.given(value)), value


KINDS = {
    f.__name__: f
    for f in (
        *(full, full_positive, lower_triangular, diag, identity, scaled_identity, zeros),
        *(householder, toeplitz, circulant, circulant_of_real_spectrum, low_rank_update),
        *(positive_low_rank_update, kronecker, kronecker_of_rectangles, block_diag),
        *(composition, composition_of_rectangles, inversion, adjoint_operator, own),
    )
}
KINDS["circulant_2d"] = functools.partial(circulant, shape=(2, 3))
KINDS["circulant_3d"] = functools.partial(circulant, shape=(2, 1, 3))

SINGULAR = ("zeros", "kronecker_of_rectangles")
# Factors of unknown shape are taken for square ones.
STATIC = ("composition_of_rectangles", "kronecker_of_rectangles")


def expected_of(dense, x, y):
    """What NumPy says: {what: value}."""
    found = {
        "dense": dense,
        "matmul": dense @ x,
        "matmul_adjoint": adjoint(dense) @ y,
        "matmul_adjoint_arg": dense @ x,
        "matvec": (dense @ x[..., :1])[..., 0],
        "diag_part": np.diagonal(dense, axis1=-2, axis2=-1),
        "trace": np.trace(dense, axis1=-2, axis2=-1),
        "add_to_tensor": dense + dense[..., :1, :],
        "shape": np.int32(dense.shape),
        "batch_shape": np.int32(dense.shape[:-2]),
        "rank": np.int32(dense.ndim),
        "domain": np.int32(dense.shape[-1]),
        "range": np.int32(dense.shape[-2]),
        "adjoint": adjoint(dense),
        "determinant": np.linalg.det(dense),
    }
    return found


def solutions_of(dense, y):
    log = np.log(np.abs(np.linalg.det(dense)))
    return {
        "log_abs_determinant": log,
        "solve": np.linalg.solve(dense, y),
        "solve_adjoint": np.linalg.solve(adjoint(dense), y),
        "solve_adjoint_arg": np.linalg.solve(dense, y),
        "solvevec": np.linalg.solve(dense, y[..., :1])[..., 0],
        "inverse": np.linalg.inv(dense),
    }


def results_of(operator, dense, x, y):
    return {
        "dense": operator.to_dense(),
        "matmul": operator.matmul(x),
        "matmul_adjoint": operator.matmul(y, adjoint=True),
        "matmul_adjoint_arg": operator.matmul(adjoint(x), adjoint_arg=True),
        "matvec": operator.matvec(x[..., 0]),
        "diag_part": operator.diag_part(),
        "trace": operator.trace(),
        "add_to_tensor": operator.add_to_tensor(
            np.broadcast_to(dense[..., :1, :], dense.shape).copy()
        ),
        "shape": operator.shape_tensor(),
        "batch_shape": operator.batch_shape_tensor(),
        "rank": operator.tensor_rank_tensor(),
        "domain": operator.domain_dimension_tensor(),
        "range": operator.range_dimension_tensor(),
        "adjoint": operator.adjoint().to_dense(),
        "determinant": operator.determinant(),
    }


def solved_by(operator, y):
    inverse = operator.inverse()
    return {
        "log_abs_determinant": operator.log_abs_determinant(),
        "solve": operator.solve(y),
        "solve_adjoint": operator.solve(y, adjoint=True),
        "solve_adjoint_arg": operator.solve(adjoint(y), adjoint_arg=True),
        "solvevec": operator.solvevec(y[..., 0]),
        "inverse": inverse.to_dense(),
    }


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_methods_equal_numpy(kind, dtype, batch, known):
    known = known or kind in STATIC
    with tf.Graph().as_default(), tf.Session() as session:
        m = Maker(dtype, known)
        operator, dense = KINDS[kind](m, *batch)
        x, y = m.array(3, 2, dense.shape[-1], 2), m.array(3, 2, dense.shape[-2], 2)
        results, expected = results_of(operator, dense, x, y), expected_of(dense, x, y)
        if kind not in SINGULAR:
            results.update(solved_by(operator, y))
            expected.update(solutions_of(dense, y))
        found = session.run(results)
    assert operator.shape.is_compatible_with(dense.shape)
    if known:
        assert operator.shape.as_list() == list(dense.shape)
    for key, right in expected.items():
        tolerance = TOLERANCES.get(found[key].dtype.name, 0)
        assert results[key].shape.is_compatible_with(found[key].shape), key
        if known:
            assert results[key].shape.is_fully_defined(), key
        np.testing.assert_allclose(
            found[key],
            right,
            rtol=tolerance,
            atol=tolerance * np.abs(right).max(initial=1),
            err_msg=key,
        )
