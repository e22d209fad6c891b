"""Matrices of zeros."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.checks import checked_size, checked_sizes
from headrace._src.linear_operators.hints import never
from headrace._src.linear_operators.identity import OfSize
from headrace._src.linear_operators.shapes import batch_of, broadcast_shapes, constant_of
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["LinearOperatorZeros"]


@export("linalg.LinearOperatorZeros")
class LinearOperatorZeros(OfSize):
    """The operator of matrices of zeros; square, unless is_square and is_self_adjoint are False.

    num_columns: num_rows by default. dtype: float32 by default. assert_proper_shapes: check sizes
    that are not known while the graph is built at run time.
    """

    def __init__(
        self,
        num_rows: Any,
        num_columns: Any = None,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool | None = False,
        is_self_adjoint: bool | None = True,
        is_positive_definite: bool | None = False,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorZeros",
    ) -> None:
        with name_scope(name):
            if not is_self_adjoint and is_square:
                raise ValueError("A zero operator is always self adjoint.")
            is_non_singular = never(is_non_singular, "A zero operator is always singular.")
            is_positive_definite = never(
                is_positive_definite, "A zero operator is always not positive-definite."
            )
            super().__init__(
                as_dtype(dtype or dtypes.float32),
                None,
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )
            self._set_rows(num_rows, assert_proper_shapes)
            columns = num_rows if num_columns is None else num_columns
            self._num_columns = checked_size(columns, "num_columns", assert_proper_shapes)
            known = constant_of(self._num_columns)
            self._static_columns = None if known is None else int(known)
            self._batch = None
            if batch_shape is not None:
                self._batch = checked_sizes(batch_shape, assert_proper_shapes)
            sizes = self._static_rows, self._static_columns
            if is_square and None not in sizes and sizes[0] != sizes[1]:
                raise ValueError(
                    "LinearOperatorZeros initialized as is_square=True, but got "
                    f"num_rows({sizes[0]}) != num_columns({sizes[1]})"
                )

    def _shape(self) -> TensorShape:
        matrix = TensorShape([self._static_rows, self._static_columns])
        if self._batch is None:
            return matrix
        known = constant_of(self._batch)
        return TensorShape(None if known is None else known.tolist()).concatenate(matrix)

    def _shape_tensor(self) -> Any:
        matrix = b.stack([self._num_rows, self._num_columns])
        return matrix if self._batch is None else b.concat([self._batch, matrix], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = self._fitting(x, adjoint, adjoint_arg)
        batch = batch_of(x)
        if self._batch is not None:
            known = constant_of(self._batch)
            batch = broadcast_shapes([batch, self._batch if known is None else known])
        rows = self.domain_dimension_tensor() if adjoint else self.range_dimension_tensor()
        shape = b.concat([batch, b.stack([rows, b.shape(x)[-1]])], 0)
        return b.zeros(shape, self.dtype)

    def _zeros(self, *sizes: Any) -> Any:
        """Return zeros of the batch's shape and further dimensions."""
        if self.shape.is_fully_defined():
            batch: Any = self.batch_shape.as_list()
            return b.zeros([*batch, *sizes], self.dtype)
        batch = self.batch_shape_tensor()
        return b.zeros(b.concat([batch, b.stack(sizes)], 0) if sizes else batch, self.dtype)

    def _determinant(self) -> Any:
        return self._zeros()

    def _trace(self) -> Any:
        return self._zeros()

    def _diag_part(self) -> Any:
        if self._static_rows is None or self._static_columns is None:
            return self._zeros(
                b.minimum(self.range_dimension_tensor(), self.domain_dimension_tensor())
            )
        return self._zeros(min(self._static_rows, self._static_columns))

    def add_to_tensor(self, mat: Any, name: str = "add_to_tensor") -> Any:
        """Return `mat`, broadcast to the operator's batch."""
        with self._name_scope(name):
            mat = convert_to_tensor(mat, name="mat")
            self._check_dtype(mat)
            return mat if self._batch is None else self.to_dense() + mat

    def _assert_non_singular(self) -> Any:
        raise InvalidArgumentError(None, None, "Zero operators are always non-invertible.")

    def _assert_positive_definite(self) -> Any:
        raise InvalidArgumentError(None, None, "Zero operators are always non-positive definite.")

    def _assert_self_adjoint(self) -> Any:
        return b.no_op(name="assert_self_adjoint")
