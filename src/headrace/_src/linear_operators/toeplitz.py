"""Matrices with equal elements along each diagonal."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, broadcast
from headrace._src.linear_operators.circulant import LinearOperatorCirculant
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.shapes import as_parameter, broadcast_shapes, shape_of
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = ["LinearOperatorToeplitz"]


@export("linalg.LinearOperatorToeplitz")
class LinearOperatorToeplitz(LinearOperator):
    """The operator of square matrices given by their first columns and first rows. The diagonal is
    col[..., 0]; row[..., 0] is not read.

    Products come from a circulant operator of twice the size, of which this one is a corner.
    """

    def __init__(
        self,
        col: Any,
        row: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorToeplitz",
    ) -> None:
        with name_scope(name, values=[row, col]):
            self._row = as_parameter(row, "row", rank=1, words="1 dimension")
            self._col = as_parameter(col, "col", rank=1, words="1 dimension")
            is_square = always(is_square, "Only square Toeplitz operators currently supported.")
            if not self._row.shape[-1:].is_compatible_with(self._col.shape[-1:]):
                raise ValueError(
                    "Expected square matrix, got row and col with mismatched dimensions."
                )
            above = b.reverse(self._row[..., 1:], axis=[-1])
            middle = b.zeros_like(self._col[..., :1])
            kernel = b.concat(_same_leading(self._col, middle, above), axis=-1)
            if not kernel.dtype.is_complex:
                wide = kernel.dtype.base_dtype is dtypes.float64
                kernel = b.cast(kernel, dtypes.complex128 if wide else dtypes.complex64)
            super().__init__(
                self._row.dtype,
                [self._row, self._col],
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )
            self._circulant = LinearOperatorCirculant(
                b.fft(kernel), input_output_dtype=self._row.dtype.base_dtype
            )

    @property
    def col(self) -> Any:
        """The first columns."""
        return self._col

    @property
    def row(self) -> Any:
        """The first rows, of which the first element is not used."""
        return self._row

    def _shape(self) -> TensorShape:
        shape = broadcast(self._row.shape, self._col.shape)
        return shape.concatenate(shape[-1:])

    def _shape_tensor(self) -> Any:
        shape = broadcast_shapes([shape_of(self._row), shape_of(self._col)])
        return b.concat([shape, shape[-1:]], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = b.adjoint(x) if adjoint_arg else x
        padded = b.concat([x, b.zeros_like(x)], axis=-2)
        product = self._circulant.matmul(padded, adjoint=adjoint)
        size = self.domain_dimension.value
        return product[..., : self.domain_dimension_tensor() if size is None else size, :]

    def _trace(self) -> Any:
        return b.cast(self.domain_dimension_tensor(), self.dtype) * self._diagonal()[..., 0]

    def _diag_part(self) -> Any:
        return self._diagonal() * b.ones(b.stack([self.domain_dimension_tensor()]), self.dtype)

    def _diagonal(self) -> Any:
        """Return the diagonals' common elements, for the whole batch."""
        if self._row.shape.rank == self._col.shape.rank == 1:
            return self._col[..., :1]
        return self._col[..., :1] + b.zeros_like(self._row[..., :1])

    def _assert_self_adjoint(self) -> Any:
        return b.assert_equal(
            self._row[..., 1:],
            b.conj(self._col)[..., 1:],
            message="row and col are not the same, and so this operator is not self-adjoint.",
        )


def _same_leading(*vectors: Any) -> list[Any]:
    """Broadcast the leading dimensions of vectors."""
    if all(v.shape.rank == 1 for v in vectors):
        return list(vectors)
    batch = broadcast_shapes(shape_of(v)[:-1] for v in vectors)
    return [b.broadcast_to(v, b.concat([batch, b.shape(v)[-1:]], 0)) for v in vectors]
