"""Kronecker products."""

from __future__ import annotations

import math
from functools import reduce
from operator import add, mul
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Dimension, TensorShape
from headrace._src.linear_operators.operator_lists import (
    OperatorOfSeveral,
    checked_operators,
    hints_of_all,
    log_determinants,
)
from headrace._src.linear_operators.shapes import broadcast_shapes
from headrace._src.ops.base.define import b

__all__ = ["LinearOperatorKronecker"]


@export("linalg.LinearOperatorKronecker")
class LinearOperatorKronecker(OperatorOfSeveral):
    """The Kronecker product of operators."""

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        operators = checked_operators(operators, "list of >=1 operators")
        hints = (is_non_singular, is_self_adjoint, is_positive_definite)
        hints = hints_of_all(operators, "Kronecker product", hints, "positive-definite")
        super().__init__(operators, *hints, is_square, "_x_", name)

    def _shape(self) -> TensorShape:
        rows = math.prod((o.range_dimension for o in self._operators), start=Dimension(1))
        columns = math.prod((o.domain_dimension for o in self._operators), start=Dimension(1))
        batch = broadcast_shapes(o.batch_shape for o in self._operators)
        return batch.concatenate([rows.value, columns.value])

    def _shape_tensor(self) -> Any:
        rows = reduce(mul, (o.range_dimension_tensor() for o in self._operators))
        columns = reduce(mul, (o.domain_dimension_tensor() for o in self._operators))
        batch = broadcast_shapes(o.batch_shape_tensor() for o in self._operators)
        return b.concat([batch, b.stack([rows, columns])], 0)

    def _applied(self, method: str, x: Any, adjoint: bool, adjoint_arg: bool, sizes: Any) -> Any:
        """Apply each operator to its dimension of the vectors.

        With rows x1, ..., xk and columns c, `x` is an array [x1, ..., xk, c]. Each step applies an
        operator to the first dimension, which then becomes the last: [x2, ..., xk, c, y1], and so
        on to [c, y1, ..., yk].
        """
        x = b.adjoint(x) if adjoint_arg else x
        columns = b.shape(x)[-1]
        for operator, size in zip(self._operators, sizes, strict=True):
            x = b.reshape(x, b.concat([b.shape(x)[:-2], b.stack([size, -1])], 0))
            x = b.matrix_transpose(getattr(operator, method)(x, adjoint=adjoint))
        x = b.reshape(x, b.concat([b.shape(x)[:-2], b.stack([columns, -1])], 0))
        return b.matrix_transpose(x)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        ends = "range" if adjoint else "domain"
        sizes = [getattr(o, ends + "_dimension_tensor")() for o in self._operators]
        found = self._applied("matmul", x, adjoint, adjoint_arg, sizes)
        rows = self.domain_dimension if adjoint else self.range_dimension
        return self._with_static_shape(found, x, rows, adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        if any(o.is_square is False for o in self._operators):
            return super()._solve(rhs, adjoint, adjoint_arg)
        sizes = [o.range_dimension_tensor() for o in self._operators]
        found = self._applied("solve", rhs, adjoint, adjoint_arg, sizes)
        return self._with_static_shape(found, rhs, self.range_dimension, adjoint_arg)

    def _with_static_shape(self, found: Any, x: Any, rows: Dimension, adjoint_arg: bool) -> Any:
        if x.shape.rank is not None and self.batch_shape.rank is not None:
            batch = broadcast_shapes([self.batch_shape, x.shape[:-2]])
            columns = x.shape[-2 if adjoint_arg else -1]
            found.set_shape(batch.concatenate([rows.value, columns.value]))
        return found

    # -- Numbers; those of a product of rectangular matrices don't follow from its factors ---------

    def _factors_are_square(self) -> bool:
        return all(o.is_square is not False for o in self._operators)

    def _multiplicities(self) -> list[Any]:
        """Return how often each operator's eigenvalues occur."""
        size = self.domain_dimension_tensor()
        return [b.cast(size // o.domain_dimension_tensor(), self.dtype) for o in self._operators]

    def _determinant(self) -> Any:
        if not self._factors_are_square():
            return super()._determinant()
        pairs = zip(self._operators, self._multiplicities(), strict=True)
        return reduce(mul, (o.determinant() ** n for o, n in pairs))

    def _log_abs_determinant(self) -> Any:
        if not self._factors_are_square():
            return super()._log_abs_determinant()
        logs = log_determinants(self._operators)
        pairs = zip(logs, self._multiplicities(), strict=True)
        return reduce(add, (log * n for log, n in pairs))

    def _trace(self) -> Any:
        if not self._factors_are_square():
            return super()._trace()
        return reduce(mul, (o.trace() for o in self._operators))

    def _diag_part(self) -> Any:
        if not self._factors_are_square():
            return super()._diag_part()
        found = self._operators[0].diag_part()
        for operator in self._operators[1:]:
            pairs = found[..., :, None] * operator.diag_part()[..., None, :]
            found = b.reshape(pairs, b.concat([b.shape(pairs)[:-2], [-1]], 0))
        if self.batch_shape.rank is not None:
            found.set_shape(self.batch_shape.concatenate([self.domain_dimension.value]))
        return found

    def _to_dense(self) -> Any:
        found = self._operators[0].to_dense()
        for operator in self._operators[1:]:
            other = operator.to_dense()
            pairs = found[..., :, None, :, None] * other[..., None, :, None, :]
            sizes = b.shape(found)[-2:] * b.shape(other)[-2:]
            found = b.reshape(pairs, b.concat([b.shape(pairs)[:-4], sizes], 0))
        found.set_shape(self.shape)
        return found

    def _assert_non_singular(self) -> Any:
        if any(o.is_square is False for o in self._operators):
            return super()._assert_non_singular()
        return b.group(*(o.assert_non_singular() for o in self._operators))

    def _assert_self_adjoint(self) -> Any:
        if any(o.is_square is False for o in self._operators):
            return super()._assert_self_adjoint()
        return b.group(*(o.assert_self_adjoint() for o in self._operators))
