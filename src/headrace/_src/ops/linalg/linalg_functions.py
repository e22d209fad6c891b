"""Composed linear algebra: norms, identity matrices, least squares, ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["cholesky_solve", "eye", "matrix_rank", "matrix_solve_ls", "norm", "pinv", "trace"]


@composed
@export("eye", "linalg.eye")
def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return an identity matrix, or a batch of them.

    num_columns: defaults to num_rows. batch_shape: the leading dimensions of the result.
    """
    sizes = (num_rows, num_columns)
    static = all(isinstance(n, int) for n in sizes)
    is_square = num_columns is None or (static and num_rows == num_columns)
    with name_scope(name, "eye", [num_rows, num_columns, batch_shape]):
        num_columns = num_rows if is_square else num_columns
        if isinstance(num_rows, int) and isinstance(num_columns, int):
            diagonal = min(num_rows, num_columns)
        else:
            diagonal = b.minimum(num_rows, num_columns)
        batch = [] if batch_shape is None else batch_shape
        if _is_static(batch) and isinstance(diagonal, int):
            ones_shape = [*batch, diagonal]
            zeros_shape = [*batch, num_rows, num_columns]
        else:
            batch = convert_to_tensor(batch, dtypes.int32, "shape")
            ones_shape = b.concat([batch, [diagonal]], axis=0)
            zeros_shape = None if is_square else b.concat([batch, [num_rows, num_columns]], axis=0)
        ones = b.ones(ones_shape, dtype=dtype)
        if is_square:
            return b.matrix_diag(ones)
        return b.matrix_set_diag(b.zeros(zeros_shape, dtype=dtype), ones)


def _is_static(batch: Any) -> bool:
    return isinstance(batch, list | tuple | np.ndarray) and all(
        isinstance(n, int | np.integer) for n in batch
    )


@composed
@export("trace", "linalg.trace")
@dispatched
def trace(x: Any, name: str | None = None) -> Tensor:
    """Return the sum of each matrix's main diagonal."""
    with name_scope(name, "Trace", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return b.reduce_sum(b.matrix_diag_part(x), [-1], name=scope)


@composed
@export("linalg.adjoint")
@dispatched
def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """Return the conjugate transpose of each matrix."""
    with name_scope(name, "adjoint", [matrix]):
        matrix = convert_to_tensor(matrix, name="matrix")
        return b.matrix_transpose(matrix, conjugate=True)


@composed
@export("linalg.logdet")
@dispatched
def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """Return the logarithm of the determinant of positive definite matrices."""
    with name_scope(name, "logdet", [matrix]):
        factor = b.cholesky(matrix)
        logs = b.log(b.real(b.matrix_diag_part(factor)))
        return 2.0 * b.reduce_sum(logs, axis=[-1])


@composed
@export("cholesky_solve", "linalg.cholesky_solve")
def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """Return x such that A x = rhs, where `chol` is the Cholesky factor of A."""
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        half = b.matrix_triangular_solve(chol, rhs, adjoint=False, lower=True)
        return b.matrix_triangular_solve(chol, half, adjoint=True, lower=True)


@composed
@export("matrix_solve_ls", "linalg.lstsq")
def matrix_solve_ls(
    matrix: Any,
    rhs: Any,
    l2_regularizer: Any = 0.0,
    fast: bool = True,
    name: str | None = None,
) -> Tensor:
    """Return x that minimises |matrix x - rhs|^2 + l2_regularizer |x|^2.

    `fast` solves the normal equations. Without it the matrix may be rank deficient, x is the
    shortest of the minimisers, and l2_regularizer is not used.
    """
    matrix = convert_to_tensor(matrix, name="matrix")
    if not fast:
        return b.matrix_solve_ls_op(matrix, rhs, l2_regularizer, fast=False, name=name)
    with name_scope(name, "matrix_solve_ls", [matrix, rhs, l2_regularizer]):
        rows, columns = matrix.shape.as_list()[-2:] if matrix.shape.rank else (None, None)
        if rows is None or columns is None:
            sizes = b.shape(matrix)[-2:]
            return b.cond(
                sizes[-2] >= sizes[-1],
                lambda: _overdetermined(matrix, rhs, l2_regularizer),
                lambda: _underdetermined(matrix, rhs, l2_regularizer),
            )
        if rows >= columns:
            return _overdetermined(matrix, rhs, l2_regularizer)
        return _underdetermined(matrix, rhs, l2_regularizer)


def _gram_factor(matrix: Any, l2_regularizer: Any, first_kind: bool) -> Any:
    gram = b.matmul(matrix, matrix, adjoint_a=first_kind, adjoint_b=not first_kind)
    if not (isinstance(l2_regularizer, int | float) and l2_regularizer == 0):
        shape = b.shape(matrix)
        batch = shape[:-2]
        size = shape[-1] if first_kind else shape[-2]
        identity = eye(size, batch_shape=batch, dtype=matrix.dtype.base_dtype)
        gram = gram + l2_regularizer * identity
    return b.cholesky(gram)


def _overdetermined(matrix: Any, rhs: Any, l2_regularizer: Any) -> Any:
    factor = _gram_factor(matrix, l2_regularizer, first_kind=True)
    return cholesky_solve(factor, b.matmul(matrix, rhs, adjoint_a=True))


def _underdetermined(matrix: Any, rhs: Any, l2_regularizer: Any) -> Any:
    factor = _gram_factor(matrix, l2_regularizer, first_kind=False)
    return b.matmul(matrix, cholesky_solve(factor, rhs), adjoint_a=True)


@composed
@export("self_adjoint_eig", "linalg.eigh")
def self_adjoint_eig(tensor: Any, name: str | None = None) -> tuple[Any, Any]:
    """Return eigenvalues in ascending order and eigenvectors as columns."""
    e, v = b.self_adjoint_eig_v2(tensor, compute_v=True, name=name)
    return e, v


@composed
@export("self_adjoint_eigvals", "linalg.eigvalsh")
def self_adjoint_eigvals(tensor: Any, name: str | None = None) -> Tensor:
    """Return the eigenvalues of self-adjoint matrices in ascending order."""
    return b.self_adjoint_eig_v2(tensor, compute_v=False, name=name).e


@composed
@export("svd", "linalg.svd")
def svd(
    tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Any:
    """Return singular values in descending order, or (s, u, v) with tensor = u diag(s) v^H.

    full_matrices: whether u and v are square. compute_uv: whether to return u and v too.
    """
    s, u, v = b.svd_op(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    if not compute_uv:
        return b.real(s)
    return b.real(s), u, v


# Norms -----------------------------------------------------------------------------------------

_MATRIX_NORMS = ["euclidean", "fro", 1, 2, np.inf]


def _check_norm(ord_: Any, axis: Any) -> bool:
    """Whether `axis` selects a matrix norm; ValueError if `ord_` doesn't match it."""
    if isinstance(axis, list | tuple):
        if len(axis) != 2 or axis[0] == axis[1] or not all(isinstance(a, int) for a in axis):
            raise ValueError("'axis' must be None, an integer, or a tuple of 2 unique integers")
        if ord_ not in _MATRIX_NORMS:
            raise ValueError(
                f"'ord' must be a supported matrix norm in {_MATRIX_NORMS}, got {ord_}"
            )
        return True
    if not (axis is None or isinstance(axis, int)):
        raise ValueError("'axis' must be None, an integer, or a tuple of 2 unique integers")
    if ord_ != "euclidean" and (isinstance(ord_, str) or not ord_ > 0):
        raise ValueError(f"'ord' must be a supported vector norm, got {ord_}")
    return False


@composed
@export("norm", "linalg.norm")
def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the norm of vectors (`axis` an integer, None for all) or of matrices (two integers).

    `ord` is "euclidean", a positive number or infinity; for matrices "euclidean", "fro", 1, 2 (the
    largest singular value) or infinity.
    """
    keepdims = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    is_matrix = _check_norm(ord, axis)
    with name_scope(name, "norm", [tensor]):
        tensor = convert_to_tensor(tensor)
        result = _reduced(tensor, ord, axis, is_matrix)
        return result if keepdims else b.squeeze(result, axis)


def _reduced(x: Any, ord_: Any, axis: Any, is_matrix: bool) -> Any:
    """Return the norm, with the reduced dimensions kept."""
    pair: Any = axis if is_matrix else (axis, None)
    axes = axis if axis is None or is_matrix else [axis]
    if ord_ in ("fro", "euclidean", 2, 2.0):
        if is_matrix and ord_ in (2, 2.0):
            return _spectral(x, axis)
        squares = b.multiply(x, b.conj(x), name="mul")
        return b.sqrt(b.reduce_sum(squares, axes, keepdims=True))
    size = b.abs(x)
    first, second = pair
    if ord_ == 1:
        total = b.reduce_sum(size, first, keepdims=True)
        return b.reduce_max(total, second, keepdims=True) if is_matrix else total
    if ord_ == np.inf:
        if is_matrix:
            size = b.reduce_sum(size, second, keepdims=True)
        return b.reduce_max(size, first, keepdims=True)
    total = b.reduce_sum(b.pow(size, ord_), axes, keepdims=True)
    return b.pow(total, 1.0 / ord_)


def _spectral(x: Any, axis: Any) -> Any:
    """Return the largest singular value of the matrices in two dimensions, which are kept."""
    order, back = _brought_last(x, axis)
    values = svd(b.transpose(x, order), compute_uv=False)
    largest = b.expand_dims(b.reduce_max(values, -1, keepdims=True), -1)
    return b.transpose(largest, back)


def _brought_last(x: Any, axis: Any) -> tuple[Any, Any]:
    """Return the permutation that moves two dimensions to the end, and its inverse."""
    if x.shape.rank is None:
        rank = b.rank(x)
        at = b.floormod(list(axis), rank)
        others, _ = b.setdiff1d(b.range(rank), at)
        order = b.concat([others, at], 0)
        return order, b.invert_permutation(order)
    at = [a % x.shape.rank for a in axis]
    order = [i for i in range(x.shape.rank) if i not in at] + at
    return order, np.argsort(order).tolist()


@composed
@export("linalg.normalize")
def normalize(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return `tensor` divided by its norm, and the norm."""
    with name_scope(name, "normalize", [tensor]):
        tensor = convert_to_tensor(tensor)
        length = norm(tensor, ord, axis, keepdims=True)
        length = b.cast(length, tensor.dtype)
        return b.realdiv(tensor, length, name="truediv"), length


# Ranks and pseudo-inverses ---------------------------------------------------------------------


def _checked(a: Any, validate_args: bool) -> Any:
    if not a.dtype.is_floating:
        raise TypeError(f"Input `a` must have `float`-like `dtype` (saw {a.dtype.name}).")
    if a.shape.rank is not None:
        if a.shape.rank < 2:
            raise ValueError(f"Input `a` must have at least 2 dimensions (saw: {a.shape.rank}).")
        return a
    if validate_args:
        enough = b.greater_equal(b.rank(a), 2)
        check = b.Assert(enough, ["Input `a` must have at least 2 dimensions."])
        return b.with_dependencies([check], a)
    return a


def _larger_side(a: Any) -> Any:
    """Return the larger of the numbers of rows and columns, as a number if both are known."""
    sizes: list[Any] = a.shape.as_list()[-2:] if a.shape.rank else [None]
    return b.reduce_max(b.shape(a)[-2:]) if None in sizes else max(sizes)


@composed
@export("linalg.matrix_rank")
def matrix_rank(
    a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """Return the number of singular values of each matrix that are above `tol`.

    The default is the rounding error of the largest: eps * max(M, N) * max(s).
    """
    with name_scope(name, "matrix_rank", [a, tol]):
        a = _checked(convert_to_tensor(a, name="a"), validate_args)
        values = svd(a, compute_uv=False)
        if tol is None:
            largest = _larger_side(a)
            if isinstance(largest, int):
                largest = np.int64(largest)
            eps = np.finfo(a.dtype.numpy).eps
            tol = b.multiply(eps, b.cast(largest, a.dtype), name="mul")
            tol = b.multiply(tol, b.reduce_max(values, -1, keepdims=True), name="mul")
        above = b.cast(b.greater(values, tol), dtypes.int32)
        return b.reduce_sum(above, axis=-1)


@composed
@export("linalg.pinv")
def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Return the pseudo-inverse; singular values up to rcond times the largest are
    treated as zero.
    """
    with name_scope(name, "pinv", [a, rcond]):
        a = _checked(convert_to_tensor(a, name="a"), validate_args)
        dtype = a.dtype.numpy
        if rcond is None:
            largest = _larger_side(a)
            largest = float(largest) if isinstance(largest, int) else b.cast(largest, a.dtype)
            rcond = 10.0 * largest * np.finfo(dtype).eps
        rcond = convert_to_tensor(rcond, a.dtype, "rcond")
        s, u, v = svd(a, full_matrices=False, compute_uv=True)
        cutoff = b.multiply(rcond, b.reduce_max(s, axis=-1), name="mul")
        kept = b.greater(s, b.expand_dims(cutoff, -1))
        s = b.where_v2(kept, s, np.array(np.inf, dtype))
        scaled = b.realdiv(v, b.expand_dims(s, -2), name="truediv")
        return b.matmul(scaled, u, adjoint_b=True)
