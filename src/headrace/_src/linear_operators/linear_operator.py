"""LinearOperator: a batch of matrices that need not exist as such. In: what defines the matrices.
Out: products, solutions, determinants and so on, as graph code.

The public methods check their arguments, open a name scope and call the method of the same name
with an underscore. A subclass defines `_shape`, `_shape_tensor` and `_matmul`; everything else
follows from these, and a subclass overrides what it can compute better. `algebra` has the
operations that choose by class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Dimension, TensorShape
from headrace._src.graph.operation import Tensor
from headrace._src.linear_operators import algebra
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.shapes import cholesky_solve, matrix_solve
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.variables.module import ModuleBase

__all__ = ["LinearOperator"]


@export("linalg.LinearOperator")
class LinearOperator(ModuleBase, ABC):
    """A batch of matrices, of shape [B1, ..., Bb, M, N].

    graph_parents: the tensors that define it. is_non_singular, is_self_adjoint,
    is_positive_definite (x^H A x has a positive real part, for all x but 0) and is_square are
    hints: they select algorithms, and nothing checks them at run time; None means unknown.
    """

    def __init__(
        self,
        dtype: Any,
        graph_parents: Any = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        if is_positive_definite:
            is_non_singular = always(
                is_non_singular, "A positive definite matrix is always non-singular."
            )
        if is_non_singular:
            is_square = always(is_square, "A non-singular matrix is always square.")
        if is_self_adjoint:
            is_square = always(is_square, "A self-adjoint matrix is always square.")
        parents = [] if graph_parents is None else list(graph_parents)
        for i, parent in enumerate(parents):
            if parent is None:
                raise ValueError(f"Graph parent item {i} cannot be None; {parents}.")
        self._dtype = None if dtype is None else as_dtype(dtype).base_dtype
        self._graph_parents = parents
        self._is_non_singular = is_non_singular
        self._is_self_adjoint = is_self_adjoint
        self._is_positive_definite = is_positive_definite
        self._is_square = is_square
        self._name = name or type(self).__name__

    @contextmanager
    def _name_scope(self, name: str | None) -> Iterator[str]:
        path = f"{self.name}/{name}" if name else self.name
        with name_scope(path, values=self._graph_parents) as scope:
            yield scope

    # -- Properties --------------------------------------------------------------------------------

    @property
    def dtype(self) -> Any:
        """The type of the matrices' elements."""
        return self._dtype

    @property
    def name(self) -> str:
        """The name scope of the operator's operations."""
        return self._name

    @property
    def name_scope(self) -> name_scope:
        """A name scope of the operator's name."""
        return name_scope(self._name)

    @property
    def graph_parents(self) -> list[Any]:
        """The tensors and variables that define the operator."""
        return self._graph_parents

    @property
    def is_non_singular(self) -> bool | None:
        return self._is_non_singular

    @property
    def is_self_adjoint(self) -> bool | None:
        return self._is_self_adjoint

    @property
    def is_positive_definite(self) -> bool | None:
        return self._is_positive_definite

    @property
    def is_square(self) -> bool | None:
        """Whether M = N: as the static shape or, if it says nothing, the hint says."""
        rows, columns = self.range_dimension.value, self.domain_dimension.value
        found = None if rows is None or columns is None else rows == columns
        if found and self._is_square is False:
            raise ValueError("User set is_square hint to False, but the operator was square.")
        return found if self._is_square is None else self._is_square

    def _can_use_cholesky(self) -> bool:
        return bool(self.is_self_adjoint and self.is_positive_definite)

    # -- Shapes ------------------------------------------------------------------------------------

    @abstractmethod
    def _shape(self) -> TensorShape:
        """Return the static shape."""

    @abstractmethod
    def _shape_tensor(self) -> Any:
        """Return the shape as a tensor."""

    @property
    def shape(self) -> TensorShape:
        """The static shape, [B1, ..., Bb, M, N]."""
        return self._shape()

    @property
    def batch_shape(self) -> TensorShape:
        """The static shape of the batch, [B1, ..., Bb]."""
        return self.shape[:-2]

    @property
    def tensor_rank(self) -> int | None:
        """The number of dimensions, b + 2."""
        return self.shape.rank

    @property
    def domain_dimension(self) -> Dimension:
        """N, the size of the vectors that the operator is applied to."""
        return Dimension(None) if self.shape.rank is None else self.shape[-1]

    @property
    def range_dimension(self) -> Dimension:
        """M, the size of the results."""
        return Dimension(None) if self.shape.rank is None else self.shape[-2]

    def shape_tensor(self, name: str = "shape_tensor") -> Tensor:
        """Return the shape as a tensor; a constant if it is known."""
        with self._name_scope(name):
            if self.shape.is_fully_defined():
                return _constant(self.shape.as_list())
            return self._shape_tensor()

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """Return the shape of the batch as a tensor."""
        with self._name_scope(name):
            if self.batch_shape.is_fully_defined():
                return _constant(self.batch_shape.as_list(), "batch_shape")
            return self._shape_tensor()[:-2]

    def tensor_rank_tensor(self, name: str = "tensor_rank_tensor") -> Tensor:
        """Return the number of dimensions as a tensor."""
        with self._name_scope(name):
            if self.tensor_rank is not None:
                return _constant(self.tensor_rank)
            return b.size(self._shape_tensor())

    def domain_dimension_tensor(self, name: str = "domain_dimension_tensor") -> Tensor:
        """Return N as a tensor."""
        with self._name_scope(name):
            if self.domain_dimension.value is not None:
                return _constant(self.domain_dimension.value)
            return self._shape_tensor()[-1]

    def range_dimension_tensor(self, name: str = "range_dimension_tensor") -> Tensor:
        """Return M as a tensor."""
        with self._name_scope(name):
            if self.range_dimension.value is not None:
                return _constant(self.range_dimension.value)
            return self._shape_tensor()[-2]

    # -- Products ----------------------------------------------------------------------------------

    @abstractmethod
    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        """Return the product with a tensor."""

    def matmul(
        self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul"
    ) -> Any:
        """Return the product with matrices `x`, which may be another operator.

        adjoint, adjoint_arg: use the adjoint of this operator, or of `x`.
        """
        if isinstance(x, LinearOperator):
            return self._combined(algebra.PRODUCT, x, adjoint, adjoint_arg, name, "x")
        with self._name_scope(name):
            x = self._checked(x, "x", -2 if adjoint else -1, -1 if adjoint_arg else -2)
            return self._matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _combined(
        self, rules: Any, other: Any, adjoint: bool, adjoint_arg: bool, name: str, argument: str
    ) -> Any:
        left = self.adjoint() if adjoint else self
        right = other.adjoint() if adjoint_arg else other
        inner, outer = left.domain_dimension.value, right.range_dimension.value
        if inner is not None and outer is not None and inner != outer:
            raise ValueError(
                f"Operators are incompatible. Expected `{argument}` to have dimension {inner} but "
                f"got {outer}."
            )
        with self._name_scope(name):
            return rules(left, right)

    def _checked(self, x: Any, name: str, own: int, other: int) -> Any:
        """Return an argument as a tensor of our type, whose dimension `other` fits our `own`."""
        x = convert_to_tensor(x, name=name)
        self._check_dtype(x)
        if self.shape.rank is not None and x.shape.rank is not None:
            if x.shape.rank < -other:
                raise ValueError(
                    f"Expected `{name}` to have at least {-other} dimensions. Found: {x}"
                )
            self.shape[own].assert_is_compatible_with(x.shape[other])
        return x

    def _check_dtype(self, x: Any) -> None:
        if x.dtype.base_dtype != self.dtype:
            raise TypeError(
                f"Expected argument to have dtype {self.dtype!s}.  Found: {x.dtype!s} in tensor {x}"
            )

    def matvec(self, x: Any, adjoint: bool = False, name: str = "matvec") -> Tensor:
        """Return the product with vectors `x`."""
        with self._name_scope(name):
            return self._matvec(self._checked(x, "x", -2 if adjoint else -1, -1), adjoint=adjoint)

    def _matvec(self, x: Any, adjoint: bool = False) -> Any:
        return b.squeeze(self.matmul(b.expand_dims(x, axis=-1), adjoint=adjoint), axis=-1)

    # -- Solutions ---------------------------------------------------------------------------------

    def solve(
        self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve"
    ) -> Any:
        """Return X such that A X = rhs. If `rhs` is another operator, the result is one too.

        adjoint, adjoint_arg: use the adjoint of this operator, or of `rhs`.
        """
        if self.is_non_singular is False:
            raise NotImplementedError(
                "Exact solve not implemented for an operator that is expected to be singular."
            )
        if self.is_square is False:
            raise NotImplementedError(
                "Exact solve not implemented for an operator that is expected to not be square."
            )
        if isinstance(rhs, LinearOperator):
            return self._combined(algebra.QUOTIENT, rhs, adjoint, adjoint_arg, name, "rhs")
        with self._name_scope(name):
            rhs = self._checked(rhs, "rhs", -1 if adjoint else -2, -1 if adjoint_arg else -2)
            return self._solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = b.adjoint(rhs) if adjoint_arg else rhs
        if self._can_use_cholesky():
            return cholesky_solve(b.cholesky(self.to_dense()), rhs)
        return matrix_solve(self.to_dense(), rhs, adjoint=adjoint)

    def solvevec(self, rhs: Any, adjoint: bool = False, name: str = "solve") -> Tensor:
        """Return x such that A x = rhs, for vectors."""
        with self._name_scope(name):
            rhs = self._checked(rhs, "rhs", -1 if adjoint else -2, -1)
            return self._solvevec(rhs, adjoint=adjoint)

    def _solvevec(self, rhs: Any, adjoint: bool = False) -> Any:
        return b.squeeze(self.solve(b.expand_dims(rhs, axis=-1), adjoint=adjoint), axis=-1)

    # -- Other operators ---------------------------------------------------------------------------

    def adjoint(self, name: str = "adjoint") -> Any:
        """Return the operator of the conjugate transpose."""
        if self.is_self_adjoint is True:
            return self
        with self._name_scope(name):
            return algebra.ADJOINT(self)

    @property
    def H(self) -> Any:
        """The adjoint."""
        return self.adjoint()

    def inverse(self, name: str = "inverse") -> Any:
        """Return the operator of the inverse."""
        if self.is_square is False:
            raise ValueError(
                "Cannot take the Inverse: This operator represents a non square matrix."
            )
        if self.is_non_singular is False:
            raise ValueError("Cannot take the Inverse: This operator represents a singular matrix.")
        with self._name_scope(name):
            return algebra.INVERSE(self)

    def cholesky(self, name: str = "cholesky") -> Any:
        """Return the operator of the Cholesky factor: lower triangular L with L L^H = A."""
        if not self._can_use_cholesky():
            raise ValueError(
                "Cannot take the Cholesky decomposition: Not a positive definite self adjoint "
                "matrix."
            )
        with self._name_scope(name):
            return algebra.CHOLESKY(self)

    # -- Numbers -----------------------------------------------------------------------------------

    def _check_square(self) -> None:
        if self.is_square is False:
            raise NotImplementedError(
                "Determinant not implemented for an operator that is expected to not be square."
            )

    def determinant(self, name: str = "det") -> Tensor:
        """Return the determinants."""
        self._check_square()
        with self._name_scope(name):
            return self._determinant()

    def _determinant(self) -> Any:
        if self._can_use_cholesky():
            return b.exp(self.log_abs_determinant())
        return b.matrix_determinant(self.to_dense())

    def log_abs_determinant(self, name: str = "log_abs_det") -> Tensor:
        """Return the logarithms of the determinants' absolute values."""
        self._check_square()
        with self._name_scope(name):
            return self._log_abs_determinant()

    def _log_abs_determinant(self) -> Any:
        if self._can_use_cholesky():
            diagonal = b.matrix_diag_part(b.cholesky(self.to_dense()))
            return 2 * b.reduce_sum(b.log(diagonal), axis=[-1])
        return b.log_matrix_determinant(self.to_dense()).log_abs_determinant

    def trace(self, name: str = "trace") -> Tensor:
        """Return the sums of the diagonals."""
        with self._name_scope(name):
            return self._trace()

    def _trace(self) -> Any:
        return b.reduce_sum(self.diag_part(), axis=-1)

    def diag_part(self, name: str = "diag_part") -> Tensor:
        """Return the main diagonals."""
        with self._name_scope(name):
            return self._diag_part()

    def _diag_part(self) -> Any:
        return b.matrix_diag_part(self.to_dense())

    # -- Matrices ----------------------------------------------------------------------------------

    def to_dense(self, name: str = "to_dense") -> Tensor:
        """Return the matrices."""
        with self._name_scope(name):
            return self._to_dense()

    def _to_dense(self) -> Any:
        shape = self.batch_shape
        batch = shape.as_list() if shape.is_fully_defined() else self.batch_shape_tensor()
        columns = self.domain_dimension.value
        if columns is None:
            columns = self.domain_dimension_tensor()
        return self.matmul(b.eye(columns, batch_shape=batch, dtype=self.dtype))

    def add_to_tensor(self, x: Any, name: str = "add_to_tensor") -> Tensor:
        """Return A + x."""
        with self._name_scope(name):
            x = convert_to_tensor(x, name="x")
            self._check_dtype(x)
            return self._add_to_tensor(x)

    def _add_to_tensor(self, x: Any) -> Any:
        return self.to_dense() + x

    # -- Assertions --------------------------------------------------------------------------------

    def assert_non_singular(self, name: str = "assert_non_singular") -> Any:
        """Return an operation that fails if the matrices are singular, up to rounding."""
        with self._name_scope(name):
            return self._assert_non_singular()

    def _assert_non_singular(self) -> Any:
        if self._can_use_cholesky():
            return self.assert_positive_definite()
        values = b.svd(self.to_dense(), compute_uv=False)
        condition = b.reduce_max(values, axis=-1) / b.reduce_min(values, axis=-1)
        return b.assert_less(
            condition,
            self._largest_condition_number(),
            message="Singular matrix up to precision epsilon.",
        )

    def _largest_condition_number(self) -> Any:
        """Return the condition number from which on a matrix counts as singular."""
        with name_scope(None, "max_nonsingular_condition_number", self._graph_parents):
            dtype: DType = self.dtype.real_dtype
            sizes = [self.range_dimension_tensor(), self.domain_dimension_tensor()]
            largest = b.reduce_max([100.0, *(b.cast(n, dtype) for n in sizes)])
            return 1 / (largest * float(ml_dtypes.finfo(dtype.numpy).eps))

    def assert_positive_definite(self, name: str = "assert_positive_definite") -> Any:
        """Return an operation that fails if the matrices are not positive definite."""
        with self._name_scope(name):
            return self._assert_positive_definite()

    def _assert_positive_definite(self) -> Any:
        if not self.is_self_adjoint:
            raise NotImplementedError("assert_positive_definite is not implemented.")
        return b.assert_positive(
            b.real(b.matrix_diag_part(b.cholesky(self.to_dense()))),
            message="Matrix was not positive definite.",
        )

    def assert_self_adjoint(self, name: str = "assert_self_adjoint") -> Any:
        """Return an operation that fails if the matrices are not self-adjoint."""
        with self._name_scope(name):
            return self._assert_self_adjoint()

    def _assert_self_adjoint(self) -> Any:
        dense = self.to_dense()
        return b.assert_equal(
            dense, b.adjoint(dense), message="Matrix was not equal to its adjoint."
        )


def _constant(value: Any, name: str | None = None) -> Tensor:
    return convert_to_tensor(np.array(value, np.int32), name=name)
