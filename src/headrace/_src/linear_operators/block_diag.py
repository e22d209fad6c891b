"""Block diagonal matrices."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Dimension, TensorShape
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.operator_lists import (
    OperatorOfSeveral,
    checked_operators,
    hints_of_all,
    log_determinants,
)
from headrace._src.linear_operators.shapes import broadcast_shapes, same_batches
from headrace._src.ops.base.define import b

__all__ = ["LinearOperatorBlockDiag"]


@export("linalg.LinearOperatorBlockDiag")
class LinearOperatorBlockDiag(OperatorOfSeveral):
    """The operator with square operators along its diagonal."""

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        name: str | None = None,
    ) -> None:
        operators = checked_operators(operators, "non-empty list of operators")
        hints = (is_non_singular, is_self_adjoint, is_positive_definite)
        hints = hints_of_all(operators, "direct sum", hints)
        square = "Can only represent a block diagonal of square matrices."
        is_square = always(is_square, square)
        if not all(o.is_square for o in operators):
            raise ValueError(square)
        super().__init__(operators, *hints, is_square, "_ds_", name)

    def _shape(self) -> TensorShape:
        size = sum((o.range_dimension for o in self._operators), Dimension(0)).value
        batch = broadcast_shapes(o.batch_shape for o in self._operators)
        return batch.concatenate([size, size])

    def _shape_tensor(self) -> Any:
        size = reduce(add, (o.range_dimension_tensor() for o in self._operators))
        batch = broadcast_shapes(o.batch_shape_tensor() for o in self._operators)
        return b.concat([batch, b.stack([size, size])], 0)

    def _sizes(self) -> Any:
        sizes = [o.domain_dimension.value for o in self._operators]
        if None in sizes:
            return b.stack([o.domain_dimension_tensor() for o in self._operators])
        return sizes

    def _applied(self, method: str, x: Any, adjoint: bool, adjoint_arg: bool) -> Any:
        """Apply each operator to its rows of `x`."""
        axis = -1 if adjoint_arg else -2
        parts = b.split(x, self._sizes(), axis=axis, num=len(self._operators))
        found = [
            getattr(operator, method)(part, adjoint=adjoint, adjoint_arg=adjoint_arg)
            for operator, part in zip(self._operators, parts, strict=True)
        ]
        return b.concat(same_batches(*found), axis=-2)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._applied("matmul", x, adjoint, adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._applied("solve", rhs, adjoint, adjoint_arg)

    def _determinant(self) -> Any:
        return reduce(mul, (o.determinant() for o in self._operators))

    def _log_abs_determinant(self) -> Any:
        return reduce(add, log_determinants(self._operators))

    def _trace(self) -> Any:
        return reduce(add, (o.trace() for o in self._operators))

    def _diag_part(self) -> Any:
        columns = [b.expand_dims(o.diag_part(), -1) for o in self._operators]
        return b.squeeze(b.concat(same_batches(*columns), axis=-2), axis=-1)

    def _to_dense(self) -> Any:
        total = self.domain_dimension_tensor()
        rows, before = [], 0
        for operator, dense in zip(
            self._operators, same_batches(*(o.to_dense() for o in self._operators)), strict=True
        ):
            size = operator.domain_dimension_tensor()
            leading = b.zeros(b.stack([b.rank(dense) - 1, 2]), dtype=total.dtype)
            paddings = b.concat([leading, [b.stack([before, total - before - size])]], 0)
            rows.append(b.pad(dense, paddings))
            before = before + size
        dense = b.concat(rows, axis=-2)
        dense.set_shape(self.shape)
        return dense

    def _assert_non_singular(self) -> Any:
        return b.group(*(o.assert_non_singular() for o in self._operators))

    def _assert_positive_definite(self) -> Any:
        return b.group(*(o.assert_positive_definite() for o in self._operators))

    def _assert_self_adjoint(self) -> Any:
        return b.group(*(o.assert_self_adjoint() for o in self._operators))
