"""Inverses of operators that have no better form."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.hints import agreed
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.operator_lists import check_operator
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["LinearOperatorInversion"]


@export("linalg.LinearOperatorInversion")
class LinearOperatorInversion(LinearOperator):
    """The inverse of an operator: its products are the operator's solutions."""

    def __init__(
        self,
        operator: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        check_operator(operator)
        self._operator = operator
        for hint, given in (("is_non_singular", is_non_singular), ("is_square", is_square)):
            own = getattr(operator, hint)
            if own is False or given is False:
                raise ValueError(
                    f"operator and supplied hints must have `{hint}` equal to `True` or `None`.  "
                    f"Found {own}, {given}"
                )
        same = "An operator is {0} if and only if its inverse is {0}."
        is_non_singular = agreed(is_non_singular, operator.is_non_singular, "")
        is_square = agreed(is_square, operator.is_square, "")
        is_self_adjoint = agreed(
            is_self_adjoint, operator.is_self_adjoint, same.format("self-adjoint")
        )
        is_positive_definite = agreed(
            is_positive_definite, operator.is_positive_definite, same.format("positive-definite")
        )
        name = name or operator.name + "_inv"
        with name_scope(name, values=operator.graph_parents):
            super().__init__(
                operator.dtype,
                operator.graph_parents,
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )

    @property
    def operator(self) -> Any:
        """The operator that is inverted."""
        return self._operator

    def _shape(self) -> TensorShape:
        return self._operator.shape

    def _shape_tensor(self) -> Any:
        return self._operator.shape_tensor()

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._operator.solve(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._operator.matmul(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _determinant(self) -> Any:
        return 1.0 / self._operator.determinant()

    def _log_abs_determinant(self) -> Any:
        return -1.0 * self._operator.log_abs_determinant()

    def _assert_non_singular(self) -> Any:
        return self._operator.assert_non_singular()

    def _assert_positive_definite(self) -> Any:
        return self._operator.assert_positive_definite()

    def _assert_self_adjoint(self) -> Any:
        return self._operator.assert_self_adjoint()
