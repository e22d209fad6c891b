"""Reflections at hyperplanes."""

from __future__ import annotations

from typing import Any

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.hints import always, never
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.shapes import as_parameter
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["LinearOperatorHouseholder"]


@export("linalg.LinearOperatorHouseholder")
class LinearOperatorHouseholder(LinearOperator):
    """The operator I - 2 v v^H, which reflects vectors at the plane orthogonal to v. `v` is
    `reflection_axis`, scaled to length 1.
    """

    def __init__(
        self,
        reflection_axis: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorHouseholder",
    ) -> None:
        with name_scope(name, values=[reflection_axis]):
            self._reflection_axis = as_parameter(
                reflection_axis, "reflection_axis", rank=1, words="1 dimension"
            )
            is_self_adjoint = always(
                is_self_adjoint, "A Householder operator is always self adjoint."
            )
            is_positive_definite = never(
                is_positive_definite, "A Householder operator is always non-positive definite."
            )
            is_square = always(is_square, "A Householder operator is always square.")
            super().__init__(
                self._reflection_axis.dtype,
                [self._reflection_axis],
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )

    @property
    def reflection_axis(self) -> Any:
        """The vectors that are reversed."""
        return self._reflection_axis

    def _shape(self) -> TensorShape:
        shape = self._reflection_axis.shape
        return shape.concatenate(shape[-1:])

    def _shape_tensor(self) -> Any:
        shape = b.shape(self._reflection_axis)
        return b.concat([shape, shape[-1:]], 0)

    def _unit(self) -> Any:
        axis = self._reflection_axis
        return axis / b.norm(axis, axis=-1, keepdims=True)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = b.adjoint(x) if adjoint_arg else x
        v = self._unit()[..., None]
        along = b.matmul(v, x, adjoint_a=True)
        return x - 2 * v * along

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._matmul(rhs, adjoint, adjoint_arg)  # a reflection is its own inverse

    def _determinant(self) -> Any:
        return -b.ones(self.batch_shape_tensor(), self.dtype)

    def _log_abs_determinant(self) -> Any:
        return b.zeros(self.batch_shape_tensor(), self.dtype)

    def _trace(self) -> Any:
        size = b.cast(self.domain_dimension_tensor() - 2, self.dtype)
        return size * b.ones(self.batch_shape_tensor(), self.dtype)

    def _diag_part(self) -> Any:
        v = self._unit()
        return 1.0 - 2 * v * b.conj(v)

    def _to_dense(self) -> Any:
        v = self._unit()[..., None]
        dense = -2 * b.matmul(v, v, adjoint_b=True)
        return b.matrix_set_diag(dense, 1.0 + b.matrix_diag_part(dense))

    def _assert_non_singular(self) -> Any:
        return b.no_op(name="assert_non_singular")

    def _assert_positive_definite(self) -> Any:
        raise InvalidArgumentError(
            None, None, "Householder operators are always non-positive definite."
        )

    def _assert_self_adjoint(self) -> Any:
        return b.no_op(name="assert_self_adjoint")
