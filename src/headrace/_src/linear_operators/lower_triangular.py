"""Lower triangular matrices."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.checks import assert_no_zeros
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.shapes import as_parameter, triangular_solve
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["LinearOperatorLowerTriangular"]


@export("linalg.LinearOperatorLowerTriangular")
class LinearOperatorLowerTriangular(LinearOperator):
    """The operator of the lower triangles of matrices; what is above the diagonal is not read."""

    def __init__(
        self,
        tril: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowerTriangular",
    ) -> None:
        is_square = always(
            is_square, "Only square lower triangular operators supported at this time."
        )
        with name_scope(name, values=[tril]):
            self._tril = as_parameter(tril, "tril", rank=2, words="2 dimensions")
            super().__init__(
                self._tril.dtype,
                [self._tril],
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )

    def _shape(self) -> TensorShape:
        return self._tril.shape

    def _shape_tensor(self) -> Any:
        return b.shape(self._tril)

    def _to_dense(self) -> Any:
        return b.matrix_band_part(self._tril, -1, 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return b.matmul(self._to_dense(), x, adjoint_a=adjoint, adjoint_b=adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = b.adjoint(rhs) if adjoint_arg else rhs
        return triangular_solve(self._to_dense(), rhs, adjoint=adjoint)

    def _determinant(self) -> Any:
        return b.reduce_prod(b.matrix_diag_part(self._tril), axis=[-1])

    def _log_abs_determinant(self) -> Any:
        return b.reduce_sum(b.log(b.abs(b.matrix_diag_part(self._tril))), axis=[-1])

    def _assert_non_singular(self) -> Any:
        return assert_no_zeros(
            b.matrix_diag_part(self._tril), "Singular operator:  Diagonal contained zero values."
        )
