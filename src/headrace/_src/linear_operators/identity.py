"""The identity, and its multiples."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.checks import checked_size, checked_sizes
from headrace._src.linear_operators.diag import add_to_diagonal
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.shapes import as_parameter, constant_of
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["LinearOperatorIdentity", "LinearOperatorScaledIdentity", "OfSize"]


class OfSize(LinearOperator):
    """An operator that is given by its shape.

    State: the number of rows as a tensor, and as an integer if it's known.
    """

    _assert_proper_shapes = False

    def _set_rows(self, num_rows: Any, assert_proper_shapes: bool) -> None:
        self._assert_proper_shapes = assert_proper_shapes
        self._num_rows = checked_size(num_rows, "num_rows", assert_proper_shapes)
        known = constant_of(self._num_rows)
        self._static_rows = None if known is None else int(known)

    def _rows(self) -> Any:
        return self._num_rows if self._static_rows is None else self._static_rows

    def _fitting(self, x: Any, adjoint: bool, adjoint_arg: bool) -> Any:
        """Return the argument's adjoint if wanted, checked at run time if wanted."""
        x = b.adjoint(x) if adjoint_arg else x
        if self._assert_proper_shapes:
            size = self.range_dimension_tensor() if adjoint else self.domain_dimension_tensor()
            fits = b.assert_equal(b.shape(x)[-2], size, message="Incompatible matrix dimensions.")
            x = b.with_dependencies([fits], x)
        return x


@export("linalg.LinearOperatorIdentity")
class LinearOperatorIdentity(OfSize):
    """The operator of identity matrices.

    dtype: float32 by default. assert_proper_shapes: check sizes that are not known while the graph
    is built at run time.
    """

    def __init__(
        self,
        num_rows: Any,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool | None = True,
        is_self_adjoint: bool | None = True,
        is_positive_definite: bool | None = True,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorIdentity",
    ) -> None:
        with name_scope(name):
            always(is_self_adjoint, "An identity operator is always self adjoint.")
            always(is_square, "An identity operator is always square.")
            always(is_non_singular, "An identity operator is always non-singular.")
            always(is_positive_definite, "An identity operator is always positive-definite.")
            super().__init__(as_dtype(dtype or dtypes.float32), None, True, True, True, True, name)
            self._set_rows(num_rows, assert_proper_shapes)
            self._batch = None
            if batch_shape is not None:
                self._batch = checked_sizes(batch_shape, assert_proper_shapes)

    def _shape(self) -> TensorShape:
        batch = TensorShape([]) if self._batch is None else _static_shape(self._batch)
        return batch.concatenate([self._static_rows] * 2)

    def _shape_tensor(self) -> Any:
        matrix = b.stack([self._num_rows, self._num_rows])
        return matrix if self._batch is None else b.concat([self._batch, matrix], 0)

    def _zeros(self) -> Any:
        """Return zeros of shape [B1, ..., Bb, 1, 1], which broadcast an argument to the batch."""
        known = constant_of(self._batch)
        if known is not None:
            return b.zeros([*known.tolist(), 1, 1], self.dtype)
        return b.zeros(b.concat([self._batch, [1, 1]], 0), self.dtype)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = self._fitting(x, adjoint, adjoint_arg)
        return x if self._batch is None else x + self._zeros()

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._matmul(rhs, adjoint, adjoint_arg)

    def _ones(self, *sizes: Any) -> Any:
        """Return ones of the batch's shape and further dimensions."""
        batch = [] if self._batch is None else constant_of(self._batch)
        if batch is not None and all(isinstance(n, int) for n in sizes):
            return b.ones([*np.asarray(batch, np.int64).tolist(), *sizes], self.dtype)
        return b.ones(b.concat([self.batch_shape_tensor(), b.stack(list(sizes))], 0), self.dtype)

    def _determinant(self) -> Any:
        return b.ones(self.batch_shape_tensor(), self.dtype)

    def _log_abs_determinant(self) -> Any:
        return b.zeros(self.batch_shape_tensor(), self.dtype)

    def _diag_part(self) -> Any:
        return self._ones(self._rows())

    def _trace(self) -> Any:
        if self._static_rows is not None and self.batch_shape.is_fully_defined():
            return self._static_rows * self._ones()
        return b.cast(self._num_rows, self.dtype) * self._determinant()

    def _to_dense(self) -> Any:
        if self._batch is None:
            return b.eye(self._rows(), dtype=self.dtype)
        known = constant_of(self._batch)
        batch = self._batch if known is None else known.tolist()
        return b.eye(self._rows(), batch_shape=batch, dtype=self.dtype)

    def add_to_tensor(self, mat: Any, name: str = "add_to_tensor") -> Any:
        """Return the identity + mat."""
        with self._name_scope(name):
            mat = convert_to_tensor(mat, name="mat")
            self._check_dtype(mat)
            return add_to_diagonal(1, mat)

    def _assert_non_singular(self) -> Any:
        return b.no_op(name="assert_non_singular")

    def _assert_positive_definite(self) -> Any:
        return b.no_op(name="assert_positive_definite")

    def _assert_self_adjoint(self) -> Any:
        return b.no_op(name="assert_self_adjoint")


def _static_shape(batch: Any) -> TensorShape:
    known = constant_of(batch)
    return TensorShape(None) if known is None else TensorShape(known.tolist())


@export("linalg.LinearOperatorScaledIdentity")
class LinearOperatorScaledIdentity(OfSize):
    """The operator c I, for each number c of `multiplier`, whose shape is the batch's.

    assert_proper_shapes: check sizes that are not known while the graph is built at run time.
    """

    def __init__(
        self,
        num_rows: Any,
        multiplier: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorScaledIdentity",
    ) -> None:
        with name_scope(name, values=[multiplier]):
            self._multiplier = as_parameter(multiplier, "multiplier")
            if not self._multiplier.dtype.is_complex:
                is_self_adjoint = always(
                    is_self_adjoint, "A real diagonal operator is always self adjoint."
                )
            is_square = always(is_square, "A ScaledIdentity operator is always square.")
            super().__init__(
                self._multiplier.dtype,
                None,
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )
            self._set_rows(num_rows, assert_proper_shapes)

    @property
    def multiplier(self) -> Any:
        """The factors c."""
        return self._multiplier

    def _shape(self) -> TensorShape:
        return self._multiplier.shape.concatenate([self._static_rows] * 2)

    def _shape_tensor(self) -> Any:
        return b.concat([b.shape(self._multiplier), b.stack([self._num_rows] * 2)], 0)

    def _factors(self, adjoint: bool) -> Any:
        """Return the factors, of shape [B1, ..., Bb, 1, 1]."""
        factors = b.conj(self._multiplier) if adjoint else self._multiplier
        return b.expand_dims(b.expand_dims(factors, -1), -1)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._fitting(x, adjoint, adjoint_arg) * self._factors(adjoint)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._fitting(rhs, adjoint, adjoint_arg) / self._factors(adjoint)

    def _determinant(self) -> Any:
        return self._multiplier ** b.cast(self._num_rows, self.dtype)

    def _log_abs_determinant(self) -> Any:
        logs = b.log(b.abs(self._multiplier))
        return b.cast(self._num_rows, logs.dtype) * logs

    def _diag_part(self) -> Any:
        return b.ones(b.stack([self._num_rows]), self.dtype) * b.expand_dims(self._multiplier, -1)

    def _trace(self) -> Any:
        return self._multiplier * b.cast(self._num_rows, self.dtype)

    def add_to_tensor(self, mat: Any, name: str = "add_to_tensor") -> Any:
        """Return c I + mat."""
        with self._name_scope(name):
            mat = convert_to_tensor(mat, name="mat")
            self._check_dtype(mat)
            return add_to_diagonal(b.expand_dims(self._multiplier, -1), mat)

    def _assert_non_singular(self) -> Any:
        return b.assert_positive(b.abs(self._multiplier), message="LinearOperator was singular")

    def _assert_positive_definite(self) -> Any:
        return b.assert_positive(
            b.real(self._multiplier), message="LinearOperator was not positive definite."
        )

    def _assert_self_adjoint(self) -> Any:
        imaginary = b.imag(self._multiplier)
        return b.assert_equal(
            b.zeros_like(imaginary), imaginary, message="LinearOperator was not self-adjoint"
        )
