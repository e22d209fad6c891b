"""What tf.linalg's functions do with linear operators: tf.matmul, tf.linalg.inv and so on."""

from __future__ import annotations

from typing import Any

from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.ops.base.define import b
from headrace._src.ops.base.dispatch import register_rules
from headrace._src.ops.base.to_tensor import name_scope

__all__: list[str] = []


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: Any = None,
) -> Any:
    if transpose_a or transpose_b:
        raise ValueError("Transposing not supported at this time.")
    if a_is_sparse or b_is_sparse:
        raise ValueError("Sparse methods not supported at this time.")
    if isinstance(a, LinearOperator):
        return a.matmul(b, adjoint=adjoint_a, adjoint_arg=adjoint_b, name=name)
    # x A = (A^H x^H)^H
    return _adjoint_of(b.matmul(a, adjoint=not adjoint_b, adjoint_arg=not adjoint_a, name=name))


def _adjoint_of(x: Any) -> Any:
    return b.adjoint(x)


def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False, name: Any = None) -> Any:
    if not isinstance(matrix, LinearOperator):
        raise ValueError(
            "Passing in `matrix` as a Tensor and `rhs` as a LinearOperator is not supported."
        )
    return matrix.solve(rhs, adjoint=adjoint, name=name)


def matrix_inverse(input: Any, adjoint: bool = False, name: Any = None) -> Any:
    inverse = input.inverse(name=name)
    return inverse.adjoint() if adjoint else inverse


def matrix_diag_part(
    input: Any, name: Any = "diag_part", k: Any = 0, padding_value: Any = 0
) -> Any:
    if isinstance(k, int) and k == 0:
        return input.diag_part(name=name)
    return b.matrix_diag_part(input.to_dense(), name, k, padding_value)


def logdet(matrix: Any, name: Any = None) -> Any:
    if not (matrix.is_positive_definite and matrix.is_self_adjoint):
        raise ValueError("Expected matrix to be self-adjoint positive definite.")
    with name_scope(name, "logdet", []):
        factor = matrix.cholesky()
        return 2.0 * b.reduce_sum(b.log(b.real(factor.diag_part())), axis=[-1])


register_rules(
    LinearOperator,
    {
        "matmul": matmul,
        "matrix_solve": matrix_solve,
        "matrix_inverse": matrix_inverse,
        "matrix_diag_part": matrix_diag_part,
        "logdet": logdet,
        "adjoint": lambda matrix, name=None: matrix.adjoint(name=name),
        "cholesky": lambda input, name=None: input.cholesky(name=name),
        "matrix_determinant": lambda input, name=None: input.determinant(name=name),
        "trace": lambda x, name=None: x.trace(name=name),
    },
)
