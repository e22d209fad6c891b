"""Matrix products, linear algebra, diagonals and Fourier transforms, beside TensorFlow."""

import numpy as np

from tests.oracle.case import case


def numbers(*shape, **kwargs):
    rng = np.random.RandomState(kwargs.get("seed", 0))
    return rng.uniform(-2, 2, shape).astype(kwargs.get("dtype", np.float32))


def positive(*shape, **kwargs):
    """Well conditioned positive definite matrices, rounded since BLAS differs between NumPys."""
    x = numbers(*shape, **kwargs)
    square = np.matmul(x, x.swapaxes(-1, -2)) + 2 * np.eye(shape[-1])
    return square.round(2).astype(x.dtype)


def raw(tf, op_type, **values):
    """One op by its schema's names."""
    if hasattr(tf, "raw_ops"):
        return getattr(tf.raw_ops, op_type)(**values)
    from headrace._src.ops.base.define import build

    return build(op_type, **values)


# Products


@case
def matmul_of_matrices(tf):
    a, b = numbers(2, 3), numbers(3, 4, seed=1)
    return (
        tf.matmul(a, b),
        tf.matmul(a, a, transpose_b=True),
        tf.matmul(a, a, transpose_a=True, name="m"),
        tf.linalg.matmul(a.T, b.T, transpose_a=True, transpose_b=True),
    )


@case
def matmul_of_batches(tf):
    a, b = numbers(2, 5, 3), numbers(2, 3, 4, seed=1)
    return (
        tf.matmul(a, b),
        tf.matmul(a, a, transpose_b=True),
        tf.matmul(a, b[0]),
        tf.matmul(a[:, None], b, name="broadcast"),
        tf.matmul(a, a, adjoint_a=True),
    )


@case
def matmul_of_complex_numbers(tf):
    a = tf.complex(numbers(2, 3, 3), numbers(2, 3, 3, seed=1))
    b = tf.complex(numbers(2, 3, 3, seed=2), numbers(2, 3, 3, seed=3))
    return (
        tf.matmul(a, b, adjoint_b=True),
        tf.matmul(a, b, transpose_a=True),
        tf.matmul(a[0], b[0], adjoint_a=True),
        tf.matmul(a[0], b[0], transpose_b=True),
    )


@case
def matmul_of_integers(tf):
    a = np.arange(12, dtype=np.int32).reshape(3, 4) * 1000003
    big = np.random.RandomState(0).randint(-(2**31), 2**31, (20, 30)).astype(np.int32)
    return tf.matmul(a, a, transpose_b=True), tf.matmul(big, big, transpose_b=True)


@case(rtol=1e-2)  # TensorFlow cuts a bfloat16 product off where we round it
def matmul_in_narrow_types(tf):
    a, b = tf.constant(numbers(4, 5)), tf.constant(numbers(5, 3, seed=1))
    return (
        tf.cast(tf.matmul(tf.cast(a, tf.bfloat16), tf.cast(b, tf.bfloat16)), tf.float32),
        tf.matmul(tf.cast(a, tf.float16), tf.cast(b, tf.float16)),
        tf.matmul(tf.cast(a, tf.bfloat16), b),
    )


@case
def matmul_of_sparse_matrices(tf):
    a, b = numbers(4, 5), numbers(5, 3, seed=1)
    return (
        tf.matmul(a, b, a_is_sparse=True),
        tf.matmul(a.T, b, transpose_a=True, b_is_sparse=True),
        tf.sparse_matmul(a, b),
    )


@case
def matmul_of_unknown_rank(tf):
    x = tf.placeholder_with_default(numbers(2, 3), None)
    return tf.matmul(x, numbers(3, 2))


@case(graph=False)
def matmul_gradients(tf):
    found = []
    for ta in (False, True):
        for tb in (False, True):
            a = tf.constant(numbers(3, 2) if ta else numbers(2, 3))
            b = tf.constant(numbers(4, 3) if tb else numbers(3, 4))
            y = tf.matmul(a, b, transpose_a=ta, transpose_b=tb)
            found += tf.gradients(y, [a, b], numbers(2, 4, seed=5))
    return found


@case(graph=False)
def matmul_gradients_of_batches(tf):
    a, b = tf.constant(numbers(4, 1, 2, 3)), tf.constant(numbers(5, 3, 2, seed=1))
    c = tf.complex(a, 2 * a)
    d = tf.complex(b, -b)
    return (
        tf.gradients(tf.matmul(a, b), [a, b]),
        tf.gradients(tf.matmul(a, b, adjoint_a=True, adjoint_b=True), [a, b]),
        tf.gradients(tf.real(tf.matmul(c, d)), [c, d]),
        tf.gradients(tf.real(tf.matmul(c[0, 0], d[0])), [c, d]),
    )


@case
def matvec(tf):
    a, x = numbers(2, 3), numbers(3, seed=1)
    return tf.linalg.matvec(a, x), tf.linalg.matvec(a, x[:2], transpose_a=True, name="v")


@case
def tensordot(tf):
    a, b = numbers(2, 3, 4), numbers(4, 3, 5, seed=1)
    return (
        tf.tensordot(a, b, 1),
        tf.tensordot(a, b, [[1, 2], [1, 0]]),
        tf.tensordot(a, b, [[-1], [-3]], name="t"),
        tf.tensordot(a, b, [2, 0]),
        tf.tensordot(a, b, 0),
    )


@case
def tensordot_of_partly_known_shapes(tf):
    a = tf.placeholder_with_default(numbers(2, 3, 4), [None, 3, 4])
    b = tf.placeholder_with_default(numbers(4, 3, 5), [4, None, 5])
    return tf.tensordot(a, b, [[1, 2], [1, 0]]), tf.tensordot(a, numbers(4, 2), 1)


@case
def tensordot_of_unknown_rank(tf):
    a = tf.placeholder_with_default(numbers(2, 3, 4), None)
    b = tf.placeholder_with_default(numbers(4, 3, 5), None)
    axes = tf.constant([[1, 2], [1, 0]])
    return (
        tf.tensordot(a, b, 1),
        tf.tensordot(a, b, [[1, -1], [1, 0]]),
        tf.tensordot(a, b, axes),
    )


@case
def einsum(tf):
    def c(*shape):
        return tf.constant(numbers(*shape, seed=len(shape)))

    return (
        tf.einsum("ij,jk->ik", c(2, 3), c(3, 2)),
        tf.einsum("ij,jk", c(2, 3), c(3, 2)),
        tf.einsum("bij,bjk->bki", c(2, 2, 3), c(2, 3, 4)),
        tf.einsum("...ij,jk->...ik", c(2, 5, 2, 3), c(3, 4)),
        tf.einsum("...ij,...jk->...ik", c(5, 2, 3), c(5, 3, 4)),
        tf.einsum("ii", c(3, 3)),
        tf.einsum("ij->ji", c(2, 3)),
        tf.einsum("ij->j", c(2, 3)),
        tf.einsum("ij->", c(2, 3)),
        tf.einsum("ij,ij->ij", c(2, 3), c(2, 3)),
        tf.einsum("i,j,k->kij", c(2), c(3), c(4)),
        tf.einsum("ij,jk,kl->il", c(2, 3), c(3, 4), c(4, 2)),
        tf.einsum("ij,jk,kl->", c(2, 3), c(3, 4), c(4, 2)),
        tf.einsum("i,i->", c(4), c(4)),
        tf.einsum("ij,kl->ik", c(2, 3), c(4, 5)),
        tf.einsum("abc,cd,bd->ad", c(2, 3, 4), c(4, 5), c(3, 5)),
        tf.einsum("ij, jk -> ki", c(2, 3), c(3, 4), name="e"),
    )


@case
def einsum_of_partly_known_shapes(tf):
    x = tf.placeholder_with_default(numbers(2, 3, 4), [None, None, 4])
    y = tf.placeholder_with_default(numbers(4, 5, seed=1), [4, None])
    z = tf.placeholder_with_default(numbers(4, 3, 5, seed=1), [4, 3, None])
    return (
        tf.einsum("bij,jk->bik", x, y),
        tf.einsum("bij,bkj->bik", x, x),
        tf.einsum("bij,jhe->bhie", x, z),
        tf.einsum("abc,cbd->ad", x, z),
        tf.einsum("abc,cd->dba", x, y),
        tf.einsum("abc,bc->a", x, x[0]),
        tf.einsum("...ab,...cb->...ac", x, x),
    )


@case(graph=False)
def einsum_gradients(tf):
    x = tf.placeholder_with_default(numbers(2, 3, 4), [None, None, 4])
    y = tf.placeholder_with_default(numbers(4, 5, seed=1), [4, None])
    return tf.gradients(tf.einsum("bij,jk->ki", x, y), [x, y])


# Diagonals


@case
def diagonals(tf):
    x = numbers(2, 3, 4)
    return (
        tf.matrix_diag(x[0]),
        tf.linalg.diag(x[0, 0], name="d"),
        tf.matrix_diag_part(x),
        tf.matrix_set_diag(x, numbers(2, 3, seed=1)),
        tf.matrix_band_part(x, 1, 0),
        tf.linalg.band_part(x, -1, tf.constant(1, tf.int64)),
        tf.diag(x[0]),
        tf.diag_part(numbers(2, 3, 2, 3)),
        tf.linalg.tensor_diag([1.0, 2.0]),
    )


@case
def ranges_of_diagonals(tf):
    x = numbers(2, 4, 5)
    return (
        raw(tf, "MatrixDiagPartV2", input=x, k=[-2, 1], padding_value=9.0),
        raw(tf, "MatrixDiagPartV2", input=x, k=2, padding_value=9.0),
        raw(tf, "MatrixDiagPartV2", input=x, k=[1, 3], padding_value=0.5),
        raw(
            tf,
            "MatrixDiagV2",
            diagonal=numbers(2, 3),
            k=[0, 1],
            num_rows=-1,
            num_cols=-1,
            padding_value=7.0,
        ),
        raw(
            tf,
            "MatrixDiagV2",
            diagonal=numbers(3),
            k=-1,
            num_rows=-1,
            num_cols=4,
            padding_value=7.0,
        ),
        raw(
            tf,
            "MatrixDiagV2",
            diagonal=numbers(2, 2, 3),
            k=[-2, -1],
            num_rows=4,
            num_cols=-1,
            padding_value=0.0,
        ),
        raw(tf, "MatrixSetDiagV2", input=x, diagonal=numbers(2, 4, 4), k=[-2, 1]),
        raw(tf, "MatrixSetDiagV2", input=x, diagonal=numbers(2, 3), k=2),
    )


@case(graph=False)
def diagonal_gradients(tf):
    x, d = tf.constant(numbers(2, 3, 4)), tf.constant(numbers(2, 3))
    w = numbers(2, 3, 4, seed=4)
    return (
        tf.gradients(tf.matrix_diag_part(x), x, w[:, :, 0]),
        tf.gradients(tf.matrix_set_diag(x, d), [x, d], w),
        tf.gradients(tf.matrix_band_part(x, 1, 0), x, w),
        tf.gradients(tf.matrix_diag(d), d, numbers(2, 3, 3)),
        tf.gradients(tf.diag(d), d, numbers(2, 3, 2, 3)),
    )


@case
def identity_matrices(tf):
    return (
        tf.eye(3),
        tf.eye(2, 3, batch_shape=[4], dtype=tf.int32, name="e"),
        tf.linalg.eye(3, 2),
        tf.eye(tf.constant(2), num_columns=3),
        tf.eye(2, batch_shape=tf.constant([2])),
        tf.eye(tf.placeholder_with_default(2, [])),
    )


# Linear algebra


@case
def cholesky(tf):
    x = positive(2, 4, 4)
    factor = tf.cholesky(x)
    return factor, tf.cholesky_solve(factor, numbers(2, 4, 3)), tf.linalg.logdet(x[0])


@case
def cholesky_of_complex_numbers(tf):
    z = numbers(3, 3) + 1j * numbers(3, 3, seed=1)
    return tf.cholesky((z.dot(z.conj().T) + 3 * np.eye(3)).round(2).astype(np.complex64) + 0)


@case
def determinants_and_inverses(tf):
    x = numbers(2, 3, 3)
    return (
        tf.matrix_determinant(x),
        tf.linalg.slogdet(x),
        tf.matrix_inverse(x),
        tf.linalg.inv(x, adjoint=True, name="i"),
        tf.linalg.det(x[0]),
        tf.trace(x),
        tf.linalg.trace(x[0], name="t"),
        tf.linalg.adjoint(x),
    )


@case(rtol=1e-4, atol=1e-5)
def systems(tf):
    x, y = numbers(2, 3, 3, dtype=np.float64), numbers(2, 3, 2, seed=1, dtype=np.float64)
    return (
        tf.matrix_solve(x, y),
        tf.linalg.solve(x, y, adjoint=True),
        tf.matrix_triangular_solve(x, y),
        tf.matrix_triangular_solve(x, y, lower=False),
        tf.linalg.triangular_solve(x, y, lower=False, adjoint=True),
        tf.linalg.triangular_solve(x, y, adjoint=True, name="t"),
    )


@case(rtol=1e-3, atol=1e-4)
def least_squares(tf):
    tall, wide = numbers(5, 3), numbers(2, 4)
    return (
        tf.matrix_solve_ls(tall, numbers(5, 2)),
        tf.linalg.lstsq(tall, numbers(5, 2), l2_regularizer=0.5),
        tf.linalg.lstsq(wide, numbers(2, 2), l2_regularizer=0.5, name="l"),
        tf.linalg.lstsq(wide, numbers(2, 2), fast=False),
        tf.linalg.lstsq(tall, numbers(5, 2), fast=False),
    )


def _unsigned(tf, vectors):
    """Vectors that are known up to their signs, in a form that is known."""
    return tf.matmul(vectors, vectors, transpose_b=True)


@case(rtol=1e-4, atol=1e-5)
def decompositions(tf):
    x = tf.constant(numbers(2, 4, 3))
    q, r = tf.qr(x)
    s, u, v = tf.svd(x)
    e, w = tf.self_adjoint_eig(positive(3, 3))
    full_q, full_r = tf.linalg.qr(x, full_matrices=True)
    full_s, full_u, full_v = tf.linalg.svd(x, full_matrices=True)
    return (
        [_unsigned(tf, q), tf.matmul(q, r), s, _unsigned(tf, u), _unsigned(tf, v), e],
        [tf.matmul(u, tf.matmul(tf.matrix_diag(s), v, adjoint_b=True)), _unsigned(tf, w)],
        [tf.matmul(full_q, full_r), full_s, _unsigned(tf, full_u), _unsigned(tf, full_v)],
        [tf.svd(x, compute_uv=False, name="s"), tf.self_adjoint_eigvals(positive(3, 3))],
        tf.linalg.eigvalsh(positive(3, 3)),
        tf.linalg.lu(positive(3, 3)),
        tf.linalg.lu(numbers(2, 4, 4), output_idx_type=tf.int64),
    )


@case(graph=False, rtol=1e-3, atol=1e-4)
def linear_algebra_gradients(tf):
    x = tf.constant(positive(2, 3, 3, dtype=np.float64))
    y = tf.constant(numbers(2, 3, 2, dtype=np.float64))
    tall = tf.constant(numbers(5, 3, dtype=np.float64))
    w = numbers(2, 3, 3, seed=9, dtype=np.float64)
    q, r = tf.qr(tall)
    s, u, v = tf.svd(tall)
    e, vectors = tf.self_adjoint_eig(x)
    return (
        tf.gradients(tf.cholesky(x), x, w),
        tf.gradients(tf.matrix_inverse(x), x, w),
        tf.gradients(tf.matrix_determinant(x), x),
        tf.gradients(tf.linalg.slogdet(x)[1], x),
        tf.gradients(tf.matrix_solve(x, y), [x, y]),
        tf.gradients(tf.matrix_solve(x, y, adjoint=True), [x, y]),
        tf.gradients(tf.matrix_triangular_solve(x, y), [x, y]),
        tf.gradients(tf.matrix_triangular_solve(x, y, lower=False, adjoint=True), [x, y]),
        tf.gradients(tf.matrix_solve_ls(tall, numbers(5, 2, dtype=np.float64)), tall),
        tf.gradients(tf.square(q[0, 0]) + tf.reduce_sum(tf.square(r[:, 2])), tall),
        tf.gradients(tf.reduce_sum(s**3) + tf.square(u[1, 2]) + tf.square(v[0, 1]), tall),
        tf.gradients(tf.svd(tall, compute_uv=False), tall),
        tf.gradients(tf.reduce_sum(e**3) + tf.square(vectors[0, 0, 1]), x),
        tf.gradients(tf.self_adjoint_eigvals(x), x),
        tf.gradients(tf.linalg.sqrtm(x), x, w),
        tf.gradients(tf.linalg.logdet(x), x),
        tf.gradients(tf.norm(x, axis=-1), x),
    )


@case(graph=False, rtol=1e-4, atol=1e-5)
def gradients_of_least_squares_ops(tf):
    found = []
    for shape in ((5, 3), (2, 4)):
        a = tf.constant(numbers(*shape, dtype=np.float64))
        y = tf.constant(numbers(shape[0], 2, seed=1, dtype=np.float64))
        x = raw(tf, "MatrixSolveLs", matrix=a, rhs=y, l2_regularizer=0.25, fast=True)
        found += [x] + tf.gradients(x, [a, y])
    return found


@case(rtol=1e-4, atol=1e-5)
def functions_of_matrices(tf):
    rotated = numbers(3, 3) + 1j * numbers(3, 3, seed=1)
    return (
        tf.linalg.sqrtm(positive(2, 3, 3)),
        tf.matrix_square_root(rotated.astype(np.complex64)),
        tf.linalg.logm(rotated.astype(np.complex128), name="l"),
        tf.linalg.logm(np.diag([-2.0, 3.0, 1.0]).astype(np.complex128)),
    )


@case
def tridiagonal(tf):
    d = tf.constant(numbers(3, 4) + np.float32([[0], [4], [0]]))
    y = tf.constant(numbers(4, 2, seed=1))
    return (
        tf.linalg.tridiagonal_solve(d, y),
        tf.linalg.tridiagonal_solve(d, y[:, 0]),
        tf.linalg.tridiagonal_solve(d, y, partial_pivoting=False, name="t"),
        tf.linalg.tridiagonal_solve(d, tf.transpose(y), transpose_rhs=True),
        tf.linalg.tridiagonal_solve([d[0, :3], d[1], d[2, 1:]], y, diagonals_format="sequence"),
        tf.linalg.tridiagonal_matmul(d, y),
        tf.linalg.tridiagonal_matmul([d[0], d[1], d[2]], y, diagonals_format="sequence"),
    )


@case(graph=False)
def tridiagonal_matrices_and_gradients(tf):
    whole = tf.constant(numbers(4, 4) + 4 * np.eye(4, dtype=np.float32))
    d = tf.constant(numbers(2, 3, 4) + np.float32([[0], [4], [0]]))
    y = tf.constant(numbers(2, 4, 3, seed=1))
    solved = tf.linalg.tridiagonal_solve(d, y)
    product = tf.linalg.tridiagonal_matmul(d, y)
    w = numbers(2, 4, 3, seed=2)
    return (
        tf.linalg.tridiagonal_solve(whole, y[0], diagonals_format="matrix"),
        tf.linalg.tridiagonal_matmul(whole, y[0], diagonals_format="matrix"),
        tf.gradients(solved, [d, y], w),
        tf.gradients(product, [d, y], w),
    )


@case
def norms(tf):
    x = numbers(2, 3, 4)
    return (
        [tf.norm(x), tf.norm(x, axis=1), tf.norm(x, 1, 0), tf.norm(x, np.inf, -1, keepdims=True)],
        [tf.norm(x, 3), tf.norm(x, 1.5, axis=2, name="n"), tf.norm(x, 2, axis=0)],
        [tf.norm(x, "fro", [0, 1]), tf.norm(x, 1, [-2, -1]), tf.norm(x, np.inf, (0, 2))],
        [tf.linalg.norm(x, axis=[0, 2], keep_dims=True)],
        tf.norm(tf.complex(x, x), axis=1),
        tf.linalg.normalize(x, axis=1),
    )


@case(rtol=1e-4, atol=1e-5)
def ranks_and_pseudo_inverses(tf):
    x = tf.constant(numbers(4, 3))
    deficient = tf.constant(np.outer(np.arange(4), np.arange(3)).astype(np.float32))
    return (
        tf.linalg.matrix_rank(x),
        tf.linalg.matrix_rank(deficient, tol=0.01, name="r"),
        tf.linalg.pinv(x),
        tf.linalg.pinv(deficient, rcond=0.01, validate_args=True),
    )
