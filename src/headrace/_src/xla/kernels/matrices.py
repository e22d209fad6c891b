"""Linear algebra. In: matrices, as an op's kernel has them. Out: outputs.

A matrix that has no decomposition or no inverse is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from string import ascii_letters
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.xla.kernels.faults import check

__all__ = ["KERNELS"]


def _wide(x: Any) -> Any:
    """A matrix in a type that LAPACK has."""
    x = jnp.asarray(x)
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _narrow(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of matrices whose results have the type of its first input."""

    @wraps(function)
    def run(*inputs: Any, **attributes: Any) -> Any:
        results = function(*map(_wide, inputs), **attributes)
        dtype = inputs[0].dtype
        if isinstance(results, tuple):
            return tuple(r.astype(dtype) for r in results)
        return results.astype(dtype)

    return run


def _checked(x: Any) -> Any:
    """A result that is not finite where the op's kernel refuses its input."""
    check(~jnp.all(jnp.isfinite(x)))
    return x


def _adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


@_narrow
def _cholesky(x: Any) -> Any:
    return _checked(jax.lax.linalg.cholesky(x, symmetrize_input=False))


@_narrow
def _inverse(x: Any, *, adjoint: bool) -> Any:
    return _checked(jnp.linalg.inv(_adjoint(x) if adjoint else x))


@_narrow
def _solve(matrix: Any, rhs: Any, *, adjoint: bool) -> Any:
    return _checked(jnp.linalg.solve(_adjoint(matrix) if adjoint else matrix, rhs))


@_narrow
def _triangular_solve(matrix: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    check(jnp.any(jnp.diagonal(matrix, 0, -2, -1) == 0))
    batch = jnp.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    matrix = jnp.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
    rhs = jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
    return jax.lax.linalg.triangular_solve(
        matrix, rhs, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
    )


@_narrow
def _qr(x: Any, *, full_matrices: bool) -> Any:
    return tuple(jnp.linalg.qr(x, "complete" if full_matrices else "reduced"))


@_narrow
def _determinant(x: Any) -> Any:
    return jnp.linalg.det(x)


@_narrow
def _log_determinant(x: Any) -> Any:
    return tuple(jnp.linalg.slogdet(x))


@_narrow
def _eigen(x: Any, *, compute_v: bool) -> Any:
    # Of a symmetric matrix, only the lower triangle counts.
    lower = jnp.tril(x)
    whole = lower + _adjoint(jnp.tril(x, -1))
    if not compute_v:
        return jnp.linalg.eigvalsh(whole), jnp.zeros(0, x.dtype)
    return tuple(jnp.linalg.eigh(whole, symmetrize_input=False))


@_narrow
def _svd(x: Any, *, compute_uv: bool, full_matrices: bool) -> Any:
    if not compute_uv:
        empty = jnp.zeros(0, x.dtype)
        return jnp.linalg.svd(x, compute_uv=False), empty, empty
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return s, u, _adjoint(vh)


def _einsum(inputs: Sequence[Any], *, equation: str) -> Any:
    operands = [jnp.asarray(x) for x in inputs]
    given, wanted = equation.replace(" ", "").split("->")
    # A label that the output has twice is a diagonal, for which JAX has no notation.
    sizes = _label_sizes(given.split(","), operands)
    free = (c for c in ascii_letters if c not in equation)
    output = ""
    for label in wanted:
        if label in output and label != ".":
            other = next(free)
            operands.append(jnp.eye(sizes[label], dtype=operands[0].dtype))
            given += f",{label}{other}"
            label = other
        output += label
    return jnp.einsum(f"{given}->{output}", *operands)


def _label_sizes(terms: Sequence[str], operands: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        front, _, back = term.partition("...")
        sizes.update(zip(front, operand.shape, strict=False))
        sizes.update(zip(reversed(back), reversed(operand.shape), strict=False))
    return sizes


KERNELS: dict[str, Callable[..., Any]] = {
    "Cholesky": _cholesky,
    "Cross": lambda a, b: jnp.cross(jnp.asarray(a), jnp.asarray(b)),
    "Einsum": _einsum,
    "LogMatrixDeterminant": _log_determinant,
    "MatrixDeterminant": _determinant,
    "MatrixInverse": _inverse,
    "MatrixSolve": _solve,
    "MatrixTriangularSolve": _triangular_solve,
    "Qr": _qr,
    "SelfAdjointEigV2": _eigen,
    "Svd": _svd,
}
