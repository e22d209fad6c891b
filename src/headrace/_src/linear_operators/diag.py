"""Diagonal matrices."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.checks import assert_no_zeros, assert_zero_imag_part
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.shapes import as_parameter, same_batches
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["LinearOperatorDiag", "add_to_diagonal"]


def add_to_diagonal(values: Any, matrices: Any) -> Any:
    """Return matrices with numbers added to their diagonals; both broadcast."""
    diagonal = values + b.matrix_diag_part(matrices)
    if not (diagonal.shape[:-1].is_fully_defined() and diagonal.shape[:-1] == matrices.shape[:-2]):
        _, matrices = same_batches(b.expand_dims(diagonal, -1), matrices)
    return b.matrix_set_diag(matrices, diagonal)


@export("linalg.LinearOperatorDiag")
class LinearOperatorDiag(LinearOperator):
    """The operator of diagonal matrices with given diagonals."""

    def __init__(
        self,
        diag: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorDiag",
    ) -> None:
        with name_scope(name, values=[diag]):
            self._diag = as_parameter(diag, "diag", rank=1, words="1 dimension")
            if not self._diag.dtype.is_complex:
                is_self_adjoint = always(
                    is_self_adjoint, "A real diagonal operator is always self adjoint."
                )
            is_square = always(is_square, "Only square diagonal operators currently supported.")
            super().__init__(
                self._diag.dtype,
                [self._diag],
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )

    @property
    def diag(self) -> Any:
        """The diagonals."""
        return self._diag

    def _shape(self) -> TensorShape:
        return self._diag.shape.concatenate(self._diag.shape[-1:])

    def _shape_tensor(self) -> Any:
        shape = b.shape(self._diag)
        return b.concat([shape, shape[-1:]], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        factors = b.conj(self._diag) if adjoint else self._diag
        x = b.adjoint(x) if adjoint_arg else x
        return b.expand_dims(factors, -1) * x

    def _matvec(self, x: Any, adjoint: bool = False) -> Any:
        return (b.conj(self._diag) if adjoint else self._diag) * x

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        divisors = b.conj(self._diag) if adjoint else self._diag
        rhs = b.adjoint(rhs) if adjoint_arg else rhs
        return rhs * b.expand_dims(1.0 / divisors, -1)

    def _determinant(self) -> Any:
        return b.reduce_prod(self._diag, axis=[-1])

    def _log_abs_determinant(self) -> Any:
        found = b.reduce_sum(b.log(b.abs(self._diag)), axis=[-1])
        return b.cast(found, self.dtype) if self.dtype.is_complex else found

    def _diag_part(self) -> Any:
        return convert_to_tensor(self._diag)

    def _to_dense(self) -> Any:
        return b.matrix_diag(self._diag)

    def _add_to_tensor(self, x: Any) -> Any:
        return add_to_diagonal(self._diag, x)

    def _assert_non_singular(self) -> Any:
        return assert_no_zeros(self._diag, "Singular operator:  Diagonal contained zero values.")

    def _assert_positive_definite(self) -> Any:
        if self.dtype.is_complex:
            message = (
                "Diagonal operator had diagonal entries with non-positive real part, thus was not "
                "positive definite."
            )
        else:
            message = (
                "Real diagonal operator had non-positive diagonal entries, thus was not positive "
                "definite."
            )
        return b.assert_positive(b.real(self._diag), message=message)

    def _assert_self_adjoint(self) -> Any:
        return assert_zero_imag_part(
            self._diag,
            "This diagonal operator contained non-zero imaginary values.   Thus it was not "
            "self-adjoint.",
        )
