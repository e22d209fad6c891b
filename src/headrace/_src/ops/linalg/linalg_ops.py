"""Linear algebra: decompositions, systems of equations, determinants and functions of matrices.

Every op works on batches [..., M, N]. Kernels are in `linalg_kernels`; composed functions such as
tf.norm are in `linalg_functions`. Where an op reads only one triangle of its input, the gradient
follows TensorFlow: symmetric for Cholesky, in the lower triangle for eigenvalues.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted, is_complex
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.linalg import linalg_kernels as kernels

_T = "T: {float64|float32|float16|complex64|complex128}"

_POSITIVE = [[4.0, 1.0, 0.5], [1.0, 3.0, -0.25], [0.5, -0.25, 2.0]]
_BATCH = [_POSITIVE, [[2.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 3.0]]]


# Shape rules -----------------------------------------------------------------------------------


def _matrices(x: TensorShape) -> tuple[TensorShape, Any, Any] | None:
    """Return the batch shape, rows and columns; None if the rank is unknown."""
    return None if infer.with_rank_at_least(x, 2).sizes is None else _parts(x)


def _parts(x: TensorShape) -> tuple[TensorShape, Any, Any]:
    """Return the batch shape, rows and columns, which are unknown if the rank is."""
    sizes = infer.with_rank_at_least(x, 2).sizes
    if sizes is None:
        return infer.UNKNOWN, None, None
    return TensorShape.of(sizes[:-2]), sizes[-2], sizes[-1]


def equal_sizes(m: Any, n: Any) -> Any:
    """Merge two sizes that must be equal; ValueError if they differ."""
    if None not in (m, n) and m != n:
        raise ValueError(f"Dimensions must be equal, but are {m} and {n}")
    return n if m is None else m


def square_infer(c: Any, x: TensorShape) -> TensorShape | None:
    """Square matrices in, square matrices out."""
    found = _matrices(x)
    if found is None:
        return None
    batch, rows, columns = found
    size = equal_sizes(rows, columns)
    return batch.concatenate((size, size))


def _batch_infer(c: Any, x: TensorShape) -> TensorShape | None:
    square = square_infer(c, x)
    return None if square is None else square[:-2]


def _system_infer(c: Any, matrix: TensorShape, rhs: TensorShape) -> TensorShape | None:
    left, height, width = _parts(matrix)
    right, rows, columns = _parts(rhs)
    size = equal_sizes(equal_sizes(height, width), rows)
    return left.merge_with(right).concatenate((size, columns))


# Decompositions --------------------------------------------------------------------------------


def _times_inverse_adjoint(b: OpBuilder, x: Any, triangle: Any, lower: bool) -> Any:
    """x T^-H, where T is triangular: the adjoint of T^-1 x^H."""
    return b.adjoint(b.matrix_triangular_solve(triangle, b.adjoint(x), lower=lower))


def _cholesky_nodes(op, grad):
    return 45 if op.inputs[0].shape.ndims is None else 33 + 2 * is_complex(op)


@counted(_cholesky_nodes)
def _cholesky_gradient(b, op, grad):
    """L^-H P L^-1, made self-adjoint; P is the lower triangle of L^H grad, its diagonal halved."""
    factor = op.outputs[0]
    product = b.matmul(factor, grad, adjoint_a=True)
    halved = b.multiply(b.matrix_diag_part(product), _number(b, 0.5, grad))
    lower = b.matrix_band_part(b.matrix_set_diag(product, halved), -1, 0)
    left = b.matrix_triangular_solve(factor, lower, adjoint=True)
    both = b.adjoint(b.matrix_triangular_solve(factor, b.adjoint(left), adjoint=True))
    return b.multiply(b.add_v2(both, b.adjoint(both)), _number(b, 0.5, grad))


def _number(b: OpBuilder, value: float, like: Any) -> Any:
    return b.cast(b.constant(value), like.dtype.base_dtype)


@export("cholesky", "linalg.cholesky")
@define(
    "Cholesky",
    "input: T -> output: T",
    _T,
    infer=square_infer,
    kernel=kernels.cholesky,
    gradient=_cholesky_gradient,
    samples=[Sample(_POSITIVE), Sample(_BATCH)],
)
def cholesky(input, name=None):
    """Return the lower triangular L with L L^H = input, which is positive definite."""


def _cholesky_grad_infer(c: Any, factor: TensorShape, grad: TensorShape) -> TensorShape | None:
    return square_infer(c, factor)


@define(
    "CholeskyGrad",
    "l: T, grad: T -> output: T",
    "T: {float16|float32|float64}",
    infer=_cholesky_grad_infer,
    kernel=kernels.cholesky_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample([[1.0, 0.0], [2.0, 3.0]], r(2, 2))],
)
def cholesky_grad(l, grad, name=None):  # noqa: E741
    """Return the gradient of the matrix whose Cholesky factor is `l`, given that of `l`."""


def _qr_infer(c: Any, x: TensorShape) -> Any:
    found = _matrices(x)
    if found is None:
        return [None, None]
    batch, m, n = found
    p = m if c.attrs["full_matrices"] else _least(m, n)
    return [batch.concatenate((m, p)), batch.concatenate((p, n))]


def _least(m: int | None, n: int | None) -> int | None:
    return None if m is None or n is None else min(m, n)


def _qr_gradient(b, op, dq, dr):
    q, r_ = op.outputs
    rows, columns = (
        (q.shape.as_list()[-2], r_.shape.as_list()[-1]) if q.shape.rank else (None, None)
    )
    if q.dtype.is_complex:
        raise NotImplementedError(f"QrGrad not implemented for dtype: {q.dtype.name}")
    if rows is None or columns is None:
        raise NotImplementedError("QrGrad not implemented with dynamic shapes.")
    if columns > rows or (op._attrs["full_matrices"] and columns != rows):
        raise NotImplementedError(
            "QrGrad not implemented when ncols > nrows or full_matrices is true and ncols != nrows."
        )
    qdq = b.matmul(q, dq, adjoint_a=True)
    rdr = b.matmul(r_, dr, adjoint_b=True)
    turn = b.add_v2(b.subtract(qdq, b.adjoint(qdq)), b.subtract(rdr, b.adjoint(rdr)))
    lower = b.matrix_band_part(turn, -1, 0)
    inside = b.add_v2(dr, _times_inverse_adjoint(b, lower, r_, lower=False))
    outside = b.subtract(dq, b.matmul(q, qdq))
    return b.add_v2(b.matmul(q, inside), _times_inverse_adjoint(b, outside, r_, lower=False))


@export("qr", "linalg.qr")
@define(
    "Qr",
    "input: T -> q: T, r: T",
    "full_matrices: bool = False; " + _T,
    infer=_qr_infer,
    kernel=kernels.qr,
    gradient=_qr_gradient,
    samples=[
        Sample(r(3, 3)),
        Sample(r(2, 4, 3)),
        Sample(r(3, 3), full_matrices=True),
        Sample([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]),
        Sample([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], full_matrices=True),
    ],
)
def qr(input, full_matrices=False, name=None):
    """Return q with orthonormal columns and upper triangular r such that q r = input.

    full_matrices: whether q is [..., M, M] instead of [..., M, min(M, N)].
    """


def _svd_infer(c: Any, x: TensorShape) -> Any:
    found = _matrices(x)
    if found is None:
        return [None, None, None] if c.attrs["compute_uv"] else [None, (0,), (0,)]
    batch, m, n = found
    p = _least(m, n)
    values = batch.concatenate((p,))
    if not c.attrs["compute_uv"]:
        return [values, (0,), (0,)]
    if c.attrs["full_matrices"]:
        return [values, batch.concatenate((m, m)), batch.concatenate((n, n))]
    return [values, batch.concatenate((m, p)), batch.concatenate((n, p))]


def _svd_nodes(op, *grads):
    if not op._attrs["compute_uv"]:
        return 4
    rows, columns = op.inputs[0].shape.as_list()[-2:] if op.inputs[0].shape.ndims else (None, None)
    if rows is None or columns is None or rows == columns:
        return 54
    return (62 if rows < columns else 64) + 11 * op._attrs["full_matrices"]


@counted(_svd_nodes)
def _svd_gradient(b, op, ds, du, dv):
    """Townsend's "Differentiating the singular value decomposition" (2016), for real matrices.

    The extra columns of full matrices span the complement of the other vectors, and rotate with it.
    """
    (x,) = op.inputs
    if not op._attrs["compute_uv"]:
        _, u, v = b.svd_op(x, compute_uv=True)
        scaled = b.matrix_diag(b.cast(ds, x.dtype.base_dtype))
        return b.matmul(u, b.matmul(scaled, v, adjoint_b=True))
    if x.dtype.is_complex:
        raise NotImplementedError(
            "SVD gradient is not implemented for complex types and compute_uv=True. The "
            "gradient of the singular values alone is, with compute_uv=False."
        )
    s, u, v = op.outputs
    if op._attrs["full_matrices"]:
        count = b.shape(s)[-1]
        u, du = _without_complement(b, u, du, count)
        v, dv = _without_complement(b, v, dv, count)
    squares = b.square(s)
    gaps = b.subtract(b.expand_dims(squares, -2), b.expand_dims(squares, -1))
    inverse_gaps = b.matrix_set_diag(
        b.reciprocal(b.matrix_set_diag(gaps, b.ones_like(s))), b.zeros_like(s)
    )
    left = b.multiply(_turn(b, u, du), b.expand_dims(s, -2))
    right = b.multiply(_turn(b, v, dv), b.expand_dims(s, -1))
    middle = b.add_v2(
        b.matrix_diag(ds),
        b.add_v2(b.multiply(inverse_gaps, left), b.multiply(inverse_gaps, right)),
    )
    core = b.matmul(u, b.matmul(middle, v, adjoint_b=True))
    shrink = b.expand_dims(b.reciprocal(s), -2)
    u_part = b.multiply(_outside(b, u, du), shrink)
    v_part = b.multiply(_outside(b, v, dv), shrink)
    return b.add_n([core, b.matmul(u_part, v, adjoint_b=True), b.matmul(u, v_part, adjoint_b=True)])


def _turn(b: OpBuilder, vectors: Any, grad: Any) -> Any:
    product = b.matmul(vectors, grad, adjoint_a=True)
    return b.subtract(product, b.adjoint(product))


def _outside(b: OpBuilder, vectors: Any, grad: Any) -> Any:
    """Return the part of `grad` that is orthogonal to the vectors."""
    inside = b.matmul(vectors, b.matmul(vectors, grad, adjoint_a=True))
    return b.subtract(grad, inside)


def _without_complement(b: OpBuilder, vectors: Any, grad: Any, count: Any) -> tuple[Any, Any]:
    """Return the first `count` vectors, and their gradient including that of the others."""
    first, rest = vectors[..., :count], vectors[..., count:]
    carried = b.matmul(rest, b.matmul(grad[..., count:], first, adjoint_a=True))
    return first, b.subtract(grad[..., :count], carried)


@define(
    "Svd",
    "input: T -> s: T, u: T, v: T",
    "compute_uv: bool = True; full_matrices: bool = False; " + _T,
    infer=_svd_infer,
    kernel=kernels.svd,
    gradient=_svd_gradient,
    samples=[
        Sample(r(3, 3)),
        Sample(r(2, 3, 4)),
        Sample(r(4, 3), full_matrices=True),
        Sample(r(3, 4), compute_uv=False),
    ],
)
def svd_op(input, compute_uv=True, full_matrices=False, name=None):
    """Return the singular values of matrices, and their left and right vectors in columns."""


def _eig_infer(c: Any, x: TensorShape) -> Any:
    square = square_infer(c, x)
    values = None if square is None else square[:-1]
    return [values, square if c.attrs["compute_v"] else (0,)]


def _eig_nodes(op, *grads):
    more = 12 if op.inputs[0].shape.ndims is None else 2 * is_complex(op)
    return 14 + 10 * op._attrs["compute_v"] + more


@counted(_eig_nodes)
def _eig_gradient(b, op, de, dv):
    (x,) = op.inputs
    if op._attrs["compute_v"]:
        e, v = op.outputs
        gaps = b.subtract(b.expand_dims(e, -2), b.expand_dims(e, -1))
        inverse_gaps = b.matrix_set_diag(
            b.reciprocal(b.matrix_set_diag(gaps, b.ones_like(e))), b.zeros_like(e)
        )
        turn = b.multiply(inverse_gaps, b.matmul(v, dv, adjoint_a=True))
        middle = b.add_v2(b.matrix_diag(de), turn)
    else:
        _, v = b.self_adjoint_eig_v2(x)
        middle = b.matrix_diag(de)
    whole = b.matmul(v, b.matmul(middle, v, adjoint_b=True))
    # Only the lower triangle is read, so the upper one's gradient is added to it.
    folded = b.matrix_band_part(b.add_v2(whole, b.adjoint(whole)), -1, 0)
    halved = b.multiply(b.matrix_diag_part(folded), _number(b, 0.5, folded))
    return b.matrix_set_diag(folded, halved)


@define(
    "SelfAdjointEigV2",
    "input: T -> e: T, v: T",
    "compute_v: bool = True; " + _T,
    infer=_eig_infer,
    kernel=kernels.self_adjoint_eig,
    gradient=_eig_gradient,
    samples=[Sample(r(3, 3)), Sample(r(2, 3, 3)), Sample(r(3, 3), compute_v=False)],
)
def self_adjoint_eig_v2(input, compute_v=True, name=None):
    """Return the eigenvalues of self-adjoint matrices in ascending order, and eigenvectors."""


def _lu(x, *, output_idx_type):
    factors, order = kernels.lu(x)
    return factors, order.astype(output_idx_type.numpy)


def _lu_infer(c: Any, x: TensorShape) -> Any:
    square = square_infer(c, x)
    return [square, None if square is None else square[:-1]]


def _lu_gradient(b, op, grad, _):
    """P^T L^-H (strictly lower triangle of L^H dL + upper triangle of dU U^H) U^-H."""
    factors, order = op.outputs
    lower = b.matrix_set_diag(b.matrix_band_part(factors, -1, 0), b.ones_like(factors[..., 0]))
    upper = b.matrix_band_part(factors, 0, -1)
    d_upper = b.matrix_band_part(grad, 0, -1)
    d_lower = b.subtract(grad, d_upper)
    below = b.matmul(lower, d_lower, adjoint_a=True)
    below = b.subtract(below, b.matrix_band_part(below, 0, -1))
    above = b.matrix_band_part(b.matmul(d_upper, upper, adjoint_b=True), 0, -1)
    left = b.matrix_triangular_solve(lower, b.add_v2(below, above), lower=True, adjoint=True)
    both = _times_inverse_adjoint(b, left, upper, lower=False)
    permutation = b.one_hot(order, b.shape(order)[-1], dtype=both.dtype)
    return b.matmul(permutation, both, transpose_a=True)


@export("linalg.lu")
@define(
    "Lu",
    "input: T -> lu: T, p: output_idx_type",
    _T + "; output_idx_type: {index} = int32",
    infer=_lu_infer,
    kernel=_lu,
    gradient=_lu_gradient,
    samples=[Sample(r(3, 3)), Sample(r(2, 3, 3)), Sample(r(0, 2, 2))],
)
def lu(input, output_idx_type=dtypes.int32, name=None):
    """Return the LU factors of matrices in one array, and the order of their rows."""


# Determinants, inverses and systems ------------------------------------------------------------


def _spread(b: OpBuilder, x: Any) -> Any:
    """Return one number per matrix, shaped to multiply the matrix."""
    return b.expand_dims(b.expand_dims(x, -1), -1)


@counted(8)
def _determinant_gradient(b, op, grad):
    scale = b.multiply(grad, b.conj(op.outputs[0]))
    return b.multiply(_spread(b, scale), b.matrix_inverse(op.inputs[0], adjoint=True))


@export("matrix_determinant", "linalg.det")
@define(
    "MatrixDeterminant",
    "input: T -> output: T",
    "T: {float16|float32|float64|complex64|complex128}",
    infer=_batch_infer,
    kernel=kernels.determinant,
    gradient=_determinant_gradient,
    samples=[Sample(r(3, 3)), Sample(r(2, 2, 2)), Sample([[1.0, 2.0], [2.0, 4.0]])],
)
def matrix_determinant(input, name=None):
    """Return the determinants of matrices."""


@export("linalg.slogdet")
@define(
    "LogMatrixDeterminant",
    "input: T -> sign: T, log_abs_determinant: T",
    "T: {float16|float32|float64|complex64|complex128}",
    infer=lambda c, x: [_batch_infer(c, x)] * 2,
    kernel=kernels.log_determinant,
    gradient=counted(
        7,
        lambda b, op, _, grad: b.multiply(
            _spread(b, grad), b.matrix_inverse(op.inputs[0], adjoint=True)
        ),
    ),
    samples=[Sample(r(3, 3)), Sample(r(2, 2, 2)), Sample([[1.0, 2.0], [2.0, 4.0]])],
)
def log_matrix_determinant(input, name=None):
    """Return the determinants' signs and the logarithms of their magnitudes."""


def _inverse_gradient(b, op, grad):
    y = op.outputs[0]
    if op._attrs["adjoint"]:
        return b.negative(b.matmul(y, b.matmul(grad, y, adjoint_a=True)))
    return b.negative(b.matmul(y, b.matmul(grad, y, adjoint_b=True), adjoint_a=True))


@export("matrix_inverse", "linalg.inv")
@define(
    "MatrixInverse",
    "input: T -> output: T",
    "adjoint: bool = False; " + _T,
    infer=square_infer,
    kernel=kernels.inverse,
    gradient=_inverse_gradient,
    samples=[Sample(r(3, 3)), Sample(r(2, 2, 2), adjoint=True), Sample(r(0, 2, 2))],
)
def matrix_inverse(input, adjoint=False, name=None):
    """Return the inverses of matrices, or of their adjoints.

    adjoint: invert the adjoints instead.
    """


def _solve_gradients(b: OpBuilder, op: Any, d_rhs: Any) -> Any:
    """Return the matrix's gradient, given the right hand side's."""
    x = op.outputs[0]
    left, right = (x, d_rhs) if op._attrs["adjoint"] else (d_rhs, x)
    return b.negative(b.matmul(left, right, adjoint_b=True))


def _solve_gradient(b, op, grad):
    d_rhs = b.matrix_solve(op.inputs[0], grad, adjoint=not op._attrs["adjoint"])
    return _solve_gradients(b, op, d_rhs), d_rhs


@export("matrix_solve", "linalg.solve")
@define(
    "MatrixSolve",
    "matrix: T, rhs: T -> output: T",
    "adjoint: bool = False; " + _T,
    infer=_system_infer,
    kernel=kernels.solve,
    gradient=_solve_gradient,
    samples=[Sample(r(3, 3), r(3, 2)), Sample(r(2, 2, 2), r(2, 2, 1), adjoint=True)],
)
def matrix_solve(matrix, rhs, adjoint=False, name=None):
    """Return x such that matrix x = rhs.

    adjoint: use the matrix's adjoint.
    """


def _triangular_solve_gradient(b, op, grad):
    lower, adjoint = op._attrs["lower"], op._attrs["adjoint"]
    d_rhs = b.matrix_triangular_solve(op.inputs[0], grad, lower=lower, adjoint=not adjoint)
    band = (-1, 0) if lower else (0, -1)
    return b.matrix_band_part(_solve_gradients(b, op, d_rhs), *band), d_rhs


@export("matrix_triangular_solve", "linalg.triangular_solve")
@define(
    "MatrixTriangularSolve",
    "matrix: T, rhs: T -> output: T",
    "lower: bool = True; adjoint: bool = False; " + _T,
    infer=_system_infer,
    kernel=kernels.triangular_solve,
    gradient=_triangular_solve_gradient,
    samples=[
        Sample(r(3, 3), r(3, 2)),
        Sample(r(2, 2, 2), r(2, 2, 1), adjoint=True),
        Sample(r(3, 3), r(3, 2), lower=False),
        Sample(r(3, 3), r(3, 2), lower=False, adjoint=True),
    ],
)
def matrix_triangular_solve(matrix, rhs, lower=True, adjoint=False, name=None):
    """Return x such that matrix x = rhs; only the lower or the upper triangle is read.

    lower: which triangle to read. adjoint: use the matrix's adjoint.
    """


def _solve_ls_infer(c: Any, matrix: TensorShape, rhs: TensorShape, regularizer: TensorShape) -> Any:
    infer.with_rank(regularizer, 0)
    left, right = _parts(matrix), _parts(rhs)
    equal_sizes(left[1], right[1])
    return left[0].merge_with(right[0]).concatenate((left[2], right[2]))


def _solve_ls_nodes(op, grad):
    rows, columns = op.inputs[0].shape.as_list()[-2:] if op.inputs[0].shape.ndims else (0, 0)
    tall = None in (rows, columns) or rows >= columns
    cast = op.inputs[0].dtype is not dtypes.float64
    return (31 if tall else 32) + cast + 3 * is_complex(op)


@counted(_solve_ls_nodes)
def _solve_ls_gradient(b, op, grad):
    """Use the normal equations N x = A^H b, or x = A^H y with N y = b where A is wide."""
    if not op._attrs["fast"]:
        raise ValueError("Gradient not defined for fast=False")
    matrix, rhs, regularizer = op.inputs
    x = op.outputs[0]
    rows, columns = matrix.shape.as_list()[-2:] if matrix.shape.rank else (None, None)
    if rows is None or columns is None:
        raise NotImplementedError("the gradient of MatrixSolveLs needs a matrix of static size")
    tall = rows >= columns
    gram = b.matmul(matrix, matrix, adjoint_a=tall, adjoint_b=not tall)
    ridge = b.cast(regularizer, matrix.dtype.base_dtype)
    identity = b.eye(min(rows, columns), dtype=matrix.dtype.base_dtype)
    factor = b.cholesky(b.add_v2(gram, b.multiply(ridge, identity)))
    if tall:
        z = b.cholesky_solve(factor, grad)
        d_rhs = b.matmul(matrix, z)
        residual = b.subtract(rhs, b.matmul(matrix, x))
        first = b.matmul(residual, z, adjoint_b=True)
        return b.subtract(first, b.matmul(d_rhs, x, adjoint_b=True)), d_rhs, None
    y = b.cholesky_solve(factor, rhs)
    w = b.cholesky_solve(factor, b.matmul(matrix, grad))
    rest = b.subtract(grad, b.matmul(matrix, w, adjoint_a=True))
    first = b.matmul(y, rest, adjoint_b=True)
    return b.subtract(first, b.matmul(w, x, adjoint_b=True)), w, None


@define(
    "MatrixSolveLs",
    "matrix: T, rhs: T, l2_regularizer: float64 -> output: T",
    _T + "; fast: bool = True",
    infer=_solve_ls_infer,
    kernel=kernels.solve_ls,
    gradient=_solve_ls_gradient,
    samples=[
        Sample(r(4, 2), r(4, 1), 0.0),
        Sample(r(2, 2, 3), r(2, 2, 2), 0.5),
        Sample([[1.0, 2.0], [2.0, 4.0]], [[1.0], [3.0]], 0.0, fast=False),
    ],
)
def matrix_solve_ls_op(matrix, rhs, l2_regularizer, fast=True, name=None):
    """Return x that minimises |matrix x - rhs|^2 + l2_regularizer |x|^2."""
