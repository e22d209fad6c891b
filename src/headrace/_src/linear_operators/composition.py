"""Products of operators."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.operator_lists import (
    OperatorOfSeveral,
    checked_operators,
    hint_of_all,
    log_determinants,
)
from headrace._src.linear_operators.shapes import broadcast_shapes
from headrace._src.ops.base.define import b

__all__ = ["LinearOperatorComposition"]


@export("linalg.LinearOperatorComposition")
class LinearOperatorComposition(OperatorOfSeveral):
    """The product of operators, which is applied from the last to the first."""

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        operators = checked_operators(operators, "non-empty list of operators")
        is_non_singular = hint_of_all(
            operators,
            "is_non_singular",
            is_non_singular,
            "The composition of non-singular operators is always non-singular.",
        )
        super().__init__(
            operators,
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            "_o_",
            name,
        )

    def _shape(self) -> TensorShape:
        for left, right in zip(self._operators, self._operators[1:]):
            left.domain_dimension.assert_is_compatible_with(right.range_dimension)
        batch = broadcast_shapes(o.batch_shape for o in self._operators)
        rows, columns = self._operators[0].range_dimension, self._operators[-1].domain_dimension
        return batch.concatenate([rows.value, columns.value])

    def _shape_tensor(self) -> Any:
        batch = broadcast_shapes(o.batch_shape_tensor() for o in self._operators)
        first, last = self._operators[0], self._operators[-1]
        sizes = [first.range_dimension_tensor(), last.domain_dimension_tensor()]
        return b.concat([batch, b.stack(sizes)], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        for operator in self._operators if adjoint else reversed(self._operators):
            x = operator.matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg)
            adjoint_arg = False  # the first product has used it
        return x

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        if not self._factors_are_square():
            return super()._solve(rhs, adjoint, adjoint_arg)
        for operator in reversed(self._operators) if adjoint else self._operators:
            rhs = operator.solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)
            adjoint_arg = False
        return rhs

    def _factors_are_square(self) -> bool:
        return all(o.is_square is not False for o in self._operators)

    def _determinant(self) -> Any:
        if not self._factors_are_square():
            return super()._determinant()
        return reduce(mul, (o.determinant() for o in self._operators))

    def _log_abs_determinant(self) -> Any:
        if not self._factors_are_square():
            return super()._log_abs_determinant()
        return reduce(add, log_determinants(self._operators))
