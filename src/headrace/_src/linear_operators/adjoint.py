"""Adjoints of operators that have no better form."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.hints import agreed
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.operator_lists import check_operator
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["LinearOperatorAdjoint"]


@export("linalg.LinearOperatorAdjoint")
class LinearOperatorAdjoint(LinearOperator):
    """The adjoint of an operator; hints are the operator's."""

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
        same = "An operator is {0} if and only if its adjoint is {0}."
        is_square = agreed(is_square, operator.is_square, same.format("square"))
        is_non_singular = agreed(
            is_non_singular, operator.is_non_singular, same.format("non-singular")
        )
        is_self_adjoint = agreed(
            is_self_adjoint, operator.is_self_adjoint, same.format("self-adjoint")
        )
        is_positive_definite = agreed(
            is_positive_definite, operator.is_positive_definite, same.format("positive-definite")
        )
        name = name or operator.name + "_adjoint"
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
        """The operator before the adjoint."""
        return self._operator

    def _shape(self) -> TensorShape:
        shape = self._operator.shape
        if shape.rank is None:
            return shape
        return shape[:-2].concatenate([shape[-1].value, shape[-2].value])

    def _shape_tensor(self) -> Any:
        shape = self._operator.shape_tensor()
        return b.concat([shape[:-2], shape[-1:], shape[-2:-1]], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._operator.matmul(x, adjoint=not adjoint, adjoint_arg=adjoint_arg)

    def _matvec(self, x: Any, adjoint: bool = False) -> Any:
        return self._operator.matvec(x, adjoint=not adjoint)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._operator.solve(rhs, adjoint=not adjoint, adjoint_arg=adjoint_arg)

    def _solvevec(self, rhs: Any, adjoint: bool = False) -> Any:
        return self._operator.solvevec(rhs, adjoint=not adjoint)

    def _determinant(self) -> Any:
        return b.conj(self._operator.determinant())

    def _log_abs_determinant(self) -> Any:
        return self._operator.log_abs_determinant()

    def _trace(self) -> Any:
        return b.conj(self._operator.trace())

    def _to_dense(self) -> Any:
        return b.adjoint(self._operator.to_dense())

    def _assert_non_singular(self) -> Any:
        return self._operator.assert_non_singular()

    def _assert_positive_definite(self) -> Any:
        return self._operator.assert_positive_definite()

    def _assert_self_adjoint(self) -> Any:
        return self._operator.assert_self_adjoint()
