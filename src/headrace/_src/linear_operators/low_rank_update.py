"""An operator plus a matrix of low rank."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.diag import LinearOperatorDiag
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.identity import LinearOperatorIdentity
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.operator_lists import check_operator
from headrace._src.linear_operators.shapes import (
    as_parameter,
    broadcast_shapes,
    cholesky_solve,
    matrix_solve,
)
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["LinearOperatorLowRankUpdate"]


@export("linalg.LinearOperatorLowRankUpdate")
class LinearOperatorLowRankUpdate(LinearOperator):
    """The operator L + U D V^H, for an operator L and a diagonal matrix D of small size.

    base_operator: L. diag_update: the diagonal of D, of ones by default. v: V, U by default.
    is_diag_update_positive: a hint that D's elements are positive.

    Solutions use the matrix inversion lemma, determinants the determinant lemma, with the
    "capacitance" C = D^-1 + V^H L^-1 U. A Cholesky factor of it serves if the operator, and so C,
    is positive definite and self-adjoint, and V = U.
    """

    def __init__(
        self,
        base_operator: Any,
        u: Any,
        diag_update: Any = None,
        v: Any = None,
        is_diag_update_positive: bool | None = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowRankUpdate",
    ) -> None:
        check_operator(base_operator)
        if diag_update is None:
            is_diag_update_positive = always(
                is_diag_update_positive,
                "Default diagonal is the identity, which is positive.  However, user set "
                "'is_diag_update_positive' to False.",
            )
        real = not base_operator.dtype.is_complex
        symmetric = v is None and base_operator.is_self_adjoint
        if symmetric and (is_diag_update_positive or real):
            is_self_adjoint = always(
                is_self_adjoint,
                "A = L + UDU^H, with L self-adjoint and D real diagonal.  Since UDU^H is "
                "self-adjoint, this must be a self-adjoint operator.",
            )
        if symmetric and is_diag_update_positive and base_operator.is_positive_definite:
            reason = "Arguments imply this is self-adjoint positive-definite operator."
            is_positive_definite = always(is_positive_definite, reason)
            is_non_singular = always(is_non_singular, reason)
        with name_scope(name, values=[u, v, diag_update, *base_operator.graph_parents]):
            self._u = as_parameter(u, "u")
            self._v = self._u if v is None else as_parameter(v, "v")
            self._diag_update = None
            if diag_update is not None:
                self._diag_update = as_parameter(diag_update, "diag_update")
            self._base_operator = base_operator
            self._check_shapes()
            parameters = [self._u, self._v]
            if self._diag_update is not None:
                parameters.append(self._diag_update)
            super().__init__(
                base_operator.dtype,
                [*base_operator.graph_parents, *parameters],
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )
            self._is_diag_update_positive = is_diag_update_positive
            self._has_own_v = v is not None
            self._diag_operator = self._make_diag_operator(is_diag_update_positive)

    def _check_shapes(self) -> None:
        base, u, v = self._base_operator.shape, self._u.shape, self._v.shape
        broadcast_shapes([u, v])
        for matrix, own in ((u, -2), (v, -1)):
            if base.rank is not None and matrix.rank is not None:
                base[own].assert_is_compatible_with(matrix[-2])
        diagonal = self._diag_update
        if diagonal is not None and None not in (diagonal.shape.rank, u.rank):
            u[-1].assert_is_compatible_with(diagonal.shape[-1])

    def _make_diag_operator(self, positive: bool | None) -> Any:
        if self._diag_update is not None:
            return LinearOperatorDiag(self._diag_update, is_positive_definite=positive)
        rank = None if self._u.shape.rank is None else self._u.shape[-1].value
        size = b.shape(self._u)[-1] if rank is None else rank
        return LinearOperatorIdentity(size, dtype=self.dtype)

    @property
    def base_operator(self) -> Any:
        """L."""
        return self._base_operator

    @property
    def u(self) -> Any:
        """U."""
        return self._u

    @property
    def v(self) -> Any:
        """V, which is U by default."""
        return self._v

    @property
    def diag_update(self) -> Any:
        """The diagonal of D; None if D is the identity."""
        return self._diag_update

    @property
    def diag_operator(self) -> Any:
        """D."""
        return self._diag_operator

    @property
    def is_diag_update_positive(self) -> bool | None:
        """The hint that the elements of D are positive."""
        return self._is_diag_update_positive

    def _shape(self) -> TensorShape:
        base = self._base_operator.shape
        if base.rank is None:
            return base
        batches = [base[:-2], self._u.shape[:-2], self._v.shape[:-2]]
        if self._diag_update is not None:
            batches.append(self._diag_update.shape[:-1])
        return broadcast_shapes(batches).concatenate(base[-2:])

    def _shape_tensor(self) -> Any:
        base = self._base_operator.shape_tensor()
        batches = [base[:-2], b.shape(self._u)[:-2], b.shape(self._v)[:-2]]
        if self._diag_update is not None:
            batches.append(b.shape(self._diag_update)[:-1])
        return b.concat([broadcast_shapes(batches), base[-2:]], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        u, v = (self._v, self._u) if adjoint else (self._u, self._v)
        product = self._base_operator.matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg)
        small = b.matmul(v, x, adjoint_a=True, adjoint_b=adjoint_arg)
        return product + b.matmul(u, self._diag_operator.matmul(small, adjoint=adjoint))

    def _uses_cholesky(self) -> bool:
        return bool(
            not self._has_own_v
            and self.is_positive_definite
            and self._base_operator.is_self_adjoint
            and self._is_diag_update_positive
        )

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        u, v = (self._v, self._u) if adjoint else (self._u, self._v)
        base = self._base_operator
        first = base.solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)
        small = b.matmul(v, first, adjoint_a=True)
        capacitance = self._capacitance()
        if self._uses_cholesky():
            small = cholesky_solve(b.cholesky(capacitance), small)
        else:
            small = matrix_solve(capacitance, small, adjoint=adjoint)
        return first - base.solve(b.matmul(u, small), adjoint=adjoint)

    def _capacitance(self) -> Any:
        """Return D^-1 + V^H L^-1 U."""
        product = b.matmul(self._v, self._base_operator.solve(self._u), adjoint_a=True)
        return self._diag_operator.inverse().add_to_tensor(product)

    def _determinant(self) -> Any:
        if self.is_positive_definite:
            return b.exp(self.log_abs_determinant())
        small = b.matrix_determinant(self._capacitance())
        return small * self._diag_operator.determinant() * self._base_operator.determinant()

    def _log_abs_determinant(self) -> Any:
        of_diagonal = self._diag_operator.log_abs_determinant()
        of_base = b.cast(self._base_operator.log_abs_determinant(), self.dtype)
        capacitance = self._capacitance()
        if self._uses_cholesky():
            diagonal = b.matrix_diag_part(b.cholesky(capacitance))
            small = 2 * b.reduce_sum(b.log(diagonal), axis=[-1])
        else:
            small = b.log(b.abs(b.matrix_determinant(capacitance)))
            small = b.cast(small, self.dtype)
        return small + of_diagonal + of_base
