"""Linear algebra on batches of matrices [..., M, N]: NumPy's functions with TensorFlow's errors,
and those that NumPy lacks: triangular and tridiagonal systems, LU factors, matrix functions.

In: arrays of float32, float64, complex64 or complex128, and float16, which is widened to float32
and rounded back. Out: arrays of the same dtype. Bad input raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from headrace._src.lowering import generated

Array = np.ndarray

# Matrix sizes for which generated code beats LAPACK, which NumPy calls in float64 for float32 too.
_LEAST_ROWS, _MOST_ROWS = 128, 384


def _widened(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel compute float16, which LAPACK lacks, in float32."""

    @wraps(kernel)
    def run(*arrays: Array, **options: Any) -> Any:
        if arrays[0].dtype != np.float16:
            return kernel(*arrays, **options)
        found = kernel(*[a.astype(np.float32) for a in arrays], **options)
        if isinstance(found, tuple):
            return tuple(_rounded(f) for f in found)
        return _rounded(found)

    return run


def _rounded(x: Array) -> Array:
    return x.astype(np.float16) if x.dtype == np.float32 else x


def adjoint(x: Array) -> Array:
    """The conjugate transpose of each matrix."""
    swapped = np.swapaxes(x, -1, -2)
    return swapped.conj() if x.dtype.kind == "c" else swapped


def _check_matrix(*arrays: Array) -> None:
    for i, array in enumerate(arrays):
        if array.ndim < 2:
            raise ValueError(f"Input tensor {i} must have rank >= 2, got {array.ndim}")
        if array.shape[:-2] != arrays[0].shape[:-2]:
            raise ValueError("All input tensors must have the same outer dimensions.")


def check_square(x: Array) -> None:
    """Raise ValueError unless `x` holds square matrices."""
    _check_matrix(x)
    if x.shape[-1] != x.shape[-2]:
        raise ValueError("Input matrix must be square.")


def _check_system(matrix: Array, rhs: Array) -> None:
    _check_matrix(matrix, rhs)
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError("Input matrix must be square.")
    if matrix.shape[-2] != rhs.shape[-2]:
        raise ValueError("Input matrix and rhs are incompatible.")


# Decompositions --------------------------------------------------------------------------------


@_widened
def cholesky(x: Array) -> Array:
    """The lower triangular L with L L^H = x; only the lower triangle of x is read."""
    check_square(x)
    try:
        return _of_large(generated.cholesky, np.linalg.cholesky, x)
    except np.linalg.LinAlgError:
        raise ValueError(
            "Cholesky decomposition was not successful. The input might not be valid."
        ) from None


def _of_large(find: Callable[[], Any], plain: Callable[[Array], Array], x: Array) -> Array:
    """Use generated code for real matrices of moderate size; fall back to NumPy where there is
    none, or where it fails.
    """
    n = x.shape[-1]
    if x.dtype.kind == "f" and x.size >= generated.LEAST and _LEAST_ROWS <= n <= _MOST_ROWS:
        run = find()
        found = None if run is None else run(x.reshape(-1, n, n))
        if found is not None:
            return found.reshape(x.shape)
    return plain(x)


@_widened
def cholesky_grad(factor: Array, grad: Array) -> Array:
    """The gradient with respect to x of L = cholesky(x), given dL; symmetric."""
    check_square(factor)
    if factor.shape != grad.shape:
        raise ValueError("Inputs to cholesky_grad must have the same shape")
    middle = np.tril(adjoint(factor) @ np.tril(grad))
    i = np.arange(factor.shape[-1])
    middle[..., i, i] *= 0.5
    left = triangular_solve(factor, middle, lower=True, adjoint=True)
    both = adjoint(triangular_solve(factor, adjoint(left), lower=True, adjoint=True))
    return 0.5 * (both + adjoint(both))


@_widened
def qr(x: Array, *, full_matrices: bool) -> tuple[Array, Array]:
    """q with orthonormal columns and upper triangular r such that q r = x."""
    _check_matrix(x)
    q, r = np.linalg.qr(x, mode="complete" if full_matrices else "reduced")
    return q, r


@_widened
def svd(x: Array, *, compute_uv: bool, full_matrices: bool) -> tuple[Array, ...]:
    """Singular values in descending order, left and right singular vectors (in columns)."""
    _check_matrix(x)
    if not np.all(np.isfinite(x)):
        return _not_a_number_svd(x, compute_uv, full_matrices)
    if not compute_uv:
        none = np.zeros(0, x.dtype)
        return np.linalg.svd(x, compute_uv=False).astype(x.dtype), none, none
    u, s, vh = np.linalg.svd(x, full_matrices=full_matrices)
    return s.astype(x.dtype), u, adjoint(vh)


def _not_a_number_svd(x: Array, compute_uv: bool, full_matrices: bool) -> tuple[Array, ...]:
    """LAPACK fails on NaN; the original returns NaN."""
    *batch, m, n = x.shape
    p = min(m, n)
    shapes = (
        (*batch, p),
        (*batch, m, m if full_matrices else p) if compute_uv else (0,),
        (*batch, n, n if full_matrices else p) if compute_uv else (0,),
    )
    return tuple(np.full(shape, np.nan, x.dtype) for shape in shapes)


@_widened
def self_adjoint_eig(x: Array, *, compute_v: bool) -> tuple[Array, Array]:
    """Eigenvalues in ascending order and eigenvectors; only the lower triangle of x is read."""
    check_square(x)
    if not np.all(np.isfinite(x)):
        raise ValueError(
            "Self-adjoint eigen decomposition was not successful. The input might not be valid."
        )
    if compute_v:
        values, vectors = np.linalg.eigh(x)
        return values.astype(x.dtype, copy=False), vectors
    return np.linalg.eigvalsh(x).astype(x.dtype, copy=False), np.zeros(0, x.dtype)


@_widened
def lu(x: Array) -> tuple[Array, Array]:
    """Return L (unit diagonal, not stored) and U of P x in one array, and P as the order of rows.

    Column by column with partial pivoting (Golub and Van Loan, "Matrix computations", 3.4.1), all
    matrices of the batch at once.
    """
    check_square(x)
    size = x.shape[-1]
    factors = x.reshape(math.prod(x.shape[:-2]), size, size).copy()
    order = np.tile(np.arange(size), (len(factors), 1))
    every = np.arange(len(factors))
    for k in range(size):
        pivot = k + np.abs(factors[:, k:, k]).argmax(axis=1)
        for rows in (factors, order):
            rows[every, k], rows[every, pivot] = rows[every, pivot], rows[every, k]
        if not np.all(np.abs(factors[:, k, k]) > 0):  # also false for NaN
            raise ValueError("Input is not invertible.")
        factors[:, k + 1 :, k] /= factors[:, k, k, None]
        factors[:, k + 1 :, k + 1 :] -= factors[:, k + 1 :, k, None] * factors[:, None, k, k + 1 :]
    return factors.reshape(x.shape), order.reshape(x.shape[:-1])


# Determinants, inverses and systems ------------------------------------------------------------


@_widened
def determinant(x: Array) -> Array:
    """The determinant of each matrix."""
    check_square(x)
    return np.asarray(np.linalg.det(x), x.dtype)


@_widened
def log_determinant(x: Array) -> tuple[Array, Array]:
    """The determinant's sign (or phase) and the logarithm of its magnitude."""
    check_square(x)
    sign, log = np.linalg.slogdet(x)
    return np.asarray(sign, x.dtype), np.asarray(log, x.dtype)


@_widened
def inverse(x: Array, *, adjoint: bool) -> Array:
    """The inverse of each matrix, or of its adjoint."""
    check_square(x)
    if np.isnan(x).any():
        raise ValueError("Input is not invertible.")
    try:
        return _of_large(generated.inverse, np.linalg.inv, _adjoint_if(adjoint, x))
    except np.linalg.LinAlgError:
        raise ValueError("Input is not invertible.") from None


def _adjoint_if(wanted: bool, x: Array) -> Array:
    return adjoint(x) if wanted else x


@_widened
def solve(matrix: Array, rhs: Array, *, adjoint: bool) -> Array:
    """x with matrix x = rhs, or with the matrix's adjoint."""
    _check_system(matrix, rhs)
    if np.isnan(matrix).any():
        raise ValueError("Input matrix is not invertible.")
    try:
        return np.linalg.solve(_adjoint_if(adjoint, matrix), rhs)
    except np.linalg.LinAlgError:
        raise ValueError("Input matrix is not invertible.") from None


# The rows of a diagonal block of this size are substituted one by one, the rest is matrix products:
# NumPy doesn't expose LAPACK's triangular solver.
_BLOCK = 64


@_widened
def triangular_solve(matrix: Array, rhs: Array, *, lower: bool, adjoint: bool) -> Array:
    """Return x such that matrix x = rhs; only the given triangle of the matrix is read.

    By substitution: a row of x depends only on the rows before it, to the last bit.
    """
    _check_system(matrix, rhs)
    if not np.all(np.abs(np.diagonal(matrix, axis1=-2, axis2=-1)) > 0):  # also false for NaN
        raise ValueError("Input matrix is not invertible.")
    triangle = _adjoint_if(adjoint, matrix)
    if lower != adjoint:
        return _substituted(triangle, rhs)
    # From the last row back: reverse the system.
    return _substituted(triangle[..., ::-1, ::-1], rhs[..., ::-1, :])[..., ::-1, :]


def _substituted(triangle: Array, rhs: Array) -> Array:
    """The solution of a lower triangular system."""
    triangle, out = np.ascontiguousarray(triangle), np.array(rhs, order="C")
    size = triangle.shape[-1]
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        for row in range(start, stop):
            if row > start:
                known = triangle[..., row : row + 1, start:row] @ out[..., start:row, :]
                out[..., row : row + 1, :] -= known
            out[..., row, :] /= triangle[..., row, row, None]
        if stop < size:
            out[..., stop:, :] -= triangle[..., stop:, start:stop] @ out[..., start:stop, :]
    return out


def solve_ls(matrix: Array, rhs: Array, regularizer: float, *, fast: bool) -> Array:
    """Return x that minimises |matrix x - rhs|^2 + regularizer |x|^2.

    `fast` solves the normal equations by Cholesky. Without it the matrix may be rank deficient, x
    is the shortest of the minimisers, and the regularizer is ignored.
    """
    if np.ndim(regularizer):
        raise ValueError(f"l2_regularizer must be scalar, got shape {list(np.shape(regularizer))}")
    if not regularizer >= 0:
        raise ValueError("l2_regularizer must be >= 0.")
    return _solve_ls(matrix, rhs, regularizer=float(regularizer), fast=fast)


@_widened
def _solve_ls(matrix: Array, rhs: Array, *, regularizer: float, fast: bool) -> Array:
    _check_matrix(matrix, rhs)
    if matrix.shape[-2] != rhs.shape[-2]:
        raise ValueError("Input matrix and rhs are incompatible.")
    rows, columns = matrix.shape[-2:]
    if not matrix.size or not rhs.size:
        return np.zeros((*rhs.shape[:-2], columns, rhs.shape[-1]), matrix.dtype)
    if not fast:
        return np.linalg.pinv(matrix) @ rhs
    tall = rows >= columns
    left, right = (adjoint(matrix), matrix) if tall else (matrix, adjoint(matrix))
    gram = left @ right + regularizer * np.eye(min(rows, columns), dtype=matrix.dtype)
    try:
        factor = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        raise ValueError(
            "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide "
            "a larger l2_regularizer > 0."
        ) from None
    target = left @ rhs if tall else rhs
    half = triangular_solve(factor, target, lower=True, adjoint=False)
    found = triangular_solve(factor, half, lower=True, adjoint=True)
    return found if tall else right @ found


# Tridiagonal systems ---------------------------------------------------------------------------


def tridiagonal_solve(diagonals: Array, rhs: Array, *, partial_pivoting: bool) -> Array:
    """Return x with T x = rhs; `diagonals` [..., 3, M] holds T's upper, main and lower diagonals.

    The last element of the upper and the first of the lower one are not read.
    """
    _check_tridiagonal(diagonals, rhs)
    if not rhs.size:
        return rhs
    rows = np.moveaxis(diagonals, -1, 0)[..., None]
    upper, main, lower = (rows[..., i, :] for i in range(3))
    return _eliminate(lower, main, upper, np.moveaxis(rhs, -2, 0), partial_pivoting)


def _check_tridiagonal(diagonals: Array, rhs: Array) -> None:
    _check_matrix(diagonals, rhs)
    if diagonals.shape[-2] != 3:
        raise ValueError(f"Expected 3 diagonals got {diagonals.shape[-2]}")
    if diagonals.shape[-1] != rhs.shape[-2]:
        raise ValueError(
            "Expected the same number of left-hand sides and right-hand sides, got "
            f"{diagonals.shape[-1]} and {rhs.shape[-2]}."
        )


def _eliminate(lower: Array, main: Array, upper: Array, rhs: Array, pivoting: bool) -> Array:
    """Gaussian elimination down the rows, all systems at once; the row index comes first.

    With pivoting, a row may need one more element to the right, `second`.
    """
    size = len(main)
    main, upper, rhs = main.copy(), upper.copy(), rhs.copy()
    upper[-1] = 0
    second = np.zeros_like(upper)
    for k in range(size - 1):
        below, entry = lower[k + 1], main[k]
        swap = pivoting & (np.abs(below) > np.abs(entry))
        if np.any(swap):
            rows = (main[k], upper[k], second[k], rhs[k])
            nexts = (below, main[k + 1], upper[k + 1], rhs[k + 1])
            main[k], upper[k], second[k], rhs[k], below, main[k + 1], upper[k + 1], rhs[k + 1] = (
                np.where(swap, a, c) for a, c in zip((*nexts, *rows), (*rows, *nexts), strict=True)
            )
        if not np.all(main[k]):
            raise _singular(pivoting)
        factor = below / main[k]
        main[k + 1] -= factor * upper[k]
        upper[k + 1] -= factor * second[k]
        rhs[k + 1] -= factor * rhs[k]
    if not np.all(main[-1]):
        raise _singular(pivoting)
    for k in reversed(range(size)):
        if k + 1 < size:
            rhs[k] -= upper[k] * rhs[k + 1]
        if k + 2 < size:
            rhs[k] -= second[k] * rhs[k + 2]
        rhs[k] /= main[k]
    return np.moveaxis(rhs, 0, -2)


def _singular(pivoting: bool) -> ValueError:
    if pivoting:
        return ValueError("The matrix is not invertible.")
    return ValueError(
        "The matrix is either not invertible, or requires pivoting. "
        "Try setting partial_pivoting = True."
    )


def tridiagonal_mat_mul(superdiag: Array, maindiag: Array, subdiag: Array, rhs: Array) -> Array:
    """T rhs for a tridiagonal T; the diagonals are [..., 1, M], aligned by row."""
    _check_matrix(superdiag, maindiag, subdiag, rhs)
    for name, d in (("superdiag", superdiag), ("maindiag", maindiag), ("subdiag", subdiag)):
        if d.shape[-2:] != (1, rhs.shape[-2]):
            raise ValueError(f"{name} must be 1x{rhs.shape[-2]}, got {list(d.shape)}")
    upper, main, lower = (np.swapaxes(d, -1, -2) for d in (superdiag, maindiag, subdiag))
    out = main * rhs
    out[..., :-1, :] += upper[..., :-1, :] * rhs[..., 1:, :]
    out[..., 1:, :] += lower[..., 1:, :] * rhs[..., :-1, :]
    return out


# Functions of matrices -------------------------------------------------------------------------

# The diagonal Pade approximant of degree 13 and the largest 1-norm for which its error is below
# double rounding (Higham, "The scaling and squaring method for the matrix exponential revisited").
_PADE = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
_PADE_REACH = 5.371920351148152


def _over_all(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Make a kernel that computes matrix by matrix in double precision; NaN for non-finite input.

    The iterations converge at different times for each matrix, so a batch is not computed at once.
    """

    def run(x: Array) -> Array:
        check_square(x)
        wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        out = np.empty_like(wide)
        for index in np.ndindex(x.shape[:-2]):
            one = wide[index]
            finite = bool(np.all(np.isfinite(one)))
            out[index] = function(one) if finite and one.size else np.full_like(one, np.nan)
        return out.astype(x.dtype)

    return run


@_over_all
def exponential(x: Array) -> Array:
    """e^x by scaling and squaring."""
    norm = np.abs(x).sum(axis=0).max()
    squarings = max(0, int(np.ceil(np.log2(norm / _PADE_REACH)))) if norm else 0
    x = x / 2.0**squarings
    one = np.eye(len(x))
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x2 @ x4
    c = _PADE
    odd = (
        x6 @ (c[13] * x6 + c[11] * x4 + c[9] * x2) + c[7] * x6 + c[5] * x4 + c[3] * x2 + c[1] * one
    )
    even = (
        x6 @ (c[12] * x6 + c[10] * x4 + c[8] * x2) + c[6] * x6 + c[4] * x4 + c[2] * x2 + c[0] * one
    )
    odd = x @ odd
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        result = result @ result
    return result


_MOST_ITERATIONS = 100


def _square_root(x: Array) -> Array:
    """Return the principal square root; NaN if there is none in the number type of `x`.

    Denman and Beavers' iteration finds it unless `x` is singular or has negative eigenvalues; then
    the eigenvectors are used, if there are enough of them.
    """
    for candidate in (_iterated_root, _root_by_eigenvectors):
        try:
            root = candidate(x)
        except np.linalg.LinAlgError:
            continue
        if np.linalg.norm(root @ root - x) <= 1e-6 * np.linalg.norm(x):
            return root
    return np.full_like(x, np.nan)


def _iterated_root(x: Array) -> Array:
    """In product form, with scaling (Higham, "Functions of matrices", 6.29)."""
    size = len(x)
    one = np.eye(size)
    root, product = x, x
    for _ in range(_MOST_ITERATIONS):
        scale = 1.0
        magnitude = np.abs(np.linalg.det(product))
        if np.linalg.norm(product - one) > 1e-2 and 0 < magnitude < np.inf:
            scale = magnitude ** (-1 / (2 * size))
        inverse = np.linalg.inv(product) / scale**2
        root = 0.5 * scale * (root @ (one + inverse))
        product = 0.5 * (one + 0.5 * (scale**2 * product + inverse))
        distance = np.linalg.norm(product - one)
        if distance <= 1e-15 * size or not np.isfinite(distance):
            break
    return root


def _root_by_eigenvectors(x: Array) -> Array:
    values, vectors = np.linalg.eig(x.astype(np.complex128))
    # A rounding error below the negative axis would select the other root.
    is_real = np.abs(np.imag(values)) <= 1e-14 * np.abs(values)
    values = np.where(is_real, np.real(values) + 0j, values)
    root = (vectors * np.sqrt(values)) @ np.linalg.inv(vectors)
    return root if x.dtype.kind == "c" else root.real


square_root = _over_all(_square_root)


@_over_all
def logarithm(x: Array) -> Array:
    """Return the principal logarithm, by inverse scaling and squaring: log x = 2^k log x^(1/2^k).

    Near the identity it is the integral of (x - 1) / (1 + t (x - 1)) over t in [0, 1], for which
    Gauss-Legendre quadrature converges fast.
    """
    one = np.eye(len(x))
    doublings = 0
    while not np.linalg.norm(x - one, 1) < 0.25:
        x = _square_root(x)
        doublings += 1
        if doublings > _MOST_ITERATIONS or not np.all(np.isfinite(x)):
            return np.full_like(x, np.nan)
    nodes, weights = np.polynomial.legendre.leggauss(10)
    offset = x - one
    terms = [
        w / 2 * np.linalg.solve(one + (t + 1) / 2 * offset, offset)
        for t, w in zip(nodes, weights, strict=True)
    ]
    return 2.0**doublings * np.sum(terms, axis=0)
