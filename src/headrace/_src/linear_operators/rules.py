"""Which operator is the adjoint, the inverse or the Cholesky factor of an operator, and the product
or the quotient of two: the rules of `algebra`, in the order in which they are tried.
"""

from __future__ import annotations

from typing import Any

from headrace._src.linear_operators.adjoint import LinearOperatorAdjoint
from headrace._src.linear_operators.algebra import ADJOINT, CHOLESKY, INVERSE, PRODUCT, QUOTIENT
from headrace._src.linear_operators.block_diag import LinearOperatorBlockDiag
from headrace._src.linear_operators.circulant import LinearOperatorCirculant
from headrace._src.linear_operators.composition import LinearOperatorComposition
from headrace._src.linear_operators.diag import LinearOperatorDiag
from headrace._src.linear_operators.hints import in_product
from headrace._src.linear_operators.householder import LinearOperatorHouseholder
from headrace._src.linear_operators.identity import (
    LinearOperatorIdentity,
    LinearOperatorScaledIdentity,
)
from headrace._src.linear_operators.inversion import LinearOperatorInversion
from headrace._src.linear_operators.kronecker import LinearOperatorKronecker
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.linear_operators.lower_triangular import LinearOperatorLowerTriangular
from headrace._src.linear_operators.zeros import LinearOperatorZeros
from headrace._src.ops.base.define import b

__all__ = []


def _hints(operator: Any) -> dict[str, Any]:
    """Return the hints of an operator, which its adjoint and its inverse share."""
    return {
        "is_non_singular": operator.is_non_singular,
        "is_self_adjoint": operator.is_self_adjoint,
        "is_positive_definite": operator.is_positive_definite,
        "is_square": True,
    }


# -- Adjoints; those of self-adjoint operators are themselves --------------------------------------


@ADJOINT.of(LinearOperatorAdjoint)
def _(operator: Any) -> Any:
    return operator.operator


@ADJOINT.of(LinearOperatorDiag)
def _(operator: Any) -> Any:
    return LinearOperatorDiag(b.conj(operator.diag), **_hints(operator))


@ADJOINT.of(LinearOperatorScaledIdentity)
def _(operator: Any) -> Any:
    return LinearOperatorScaledIdentity(
        operator._num_rows, b.conj(operator.multiplier), **_hints(operator)
    )


# As in TensorFlow, the adjoint, the inverse and the product of circulant operators are for vectors
# of complex64, whatever the operators are for.


@ADJOINT.of(LinearOperatorCirculant)
def _(operator: Any) -> Any:
    return LinearOperatorCirculant(b.conj(operator.spectrum), **_hints(operator))


@ADJOINT.of(LinearOperatorBlockDiag)
def _(operator: Any) -> Any:
    return LinearOperatorBlockDiag([o.adjoint() for o in operator.operators], **_hints(operator))


@ADJOINT.of(LinearOperatorKronecker)
def _(operator: Any) -> Any:
    hints = {**_hints(operator), "is_square": operator.is_square}
    return LinearOperatorKronecker([o.adjoint() for o in operator.operators], **hints)


@ADJOINT.of(LinearOperator)
def _(operator: Any) -> Any:
    return LinearOperatorAdjoint(operator)


# -- Inverses --------------------------------------------------------------------------------------


@INVERSE.of(LinearOperatorInversion)
def _(operator: Any) -> Any:
    return operator.operator


@INVERSE.of(LinearOperatorIdentity)
@INVERSE.of(LinearOperatorHouseholder)
def _(operator: Any) -> Any:
    return operator


@INVERSE.of(LinearOperatorDiag)
def _(operator: Any) -> Any:
    return LinearOperatorDiag(1.0 / operator.diag, **_hints(operator))


@INVERSE.of(LinearOperatorScaledIdentity)
def _(operator: Any) -> Any:
    return LinearOperatorScaledIdentity(
        operator._num_rows, 1.0 / operator.multiplier, **_hints(operator)
    )


@INVERSE.of(LinearOperatorCirculant)
def _(operator: Any) -> Any:
    return LinearOperatorCirculant(1.0 / operator.spectrum, **_hints(operator))


@INVERSE.of(LinearOperatorBlockDiag)
def _(operator: Any) -> Any:
    return LinearOperatorBlockDiag([o.inverse() for o in operator.operators], **_hints(operator))


@INVERSE.of(LinearOperatorKronecker)
def _(operator: Any) -> Any:
    if any(o.is_square is False for o in operator.operators):
        return LinearOperatorInversion(operator)
    return LinearOperatorKronecker([o.inverse() for o in operator.operators], **_hints(operator))


@INVERSE.of(LinearOperator)
def _(operator: Any) -> Any:
    return LinearOperatorInversion(operator)


# -- Cholesky factors ------------------------------------------------------------------------------

_POSITIVE: dict[str, Any] = dict.fromkeys(
    ("is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square"), True
)


@CHOLESKY.of(LinearOperatorIdentity)
def _(operator: Any) -> Any:
    return operator


@CHOLESKY.of(LinearOperatorDiag)
def _(operator: Any) -> Any:
    return LinearOperatorDiag(b.sqrt(operator.diag), **_POSITIVE)


@CHOLESKY.of(LinearOperatorScaledIdentity)
def _(operator: Any) -> Any:
    return LinearOperatorScaledIdentity(
        operator._num_rows, b.sqrt(operator.multiplier), **_POSITIVE
    )


@CHOLESKY.of(LinearOperatorBlockDiag)
@CHOLESKY.of(LinearOperatorKronecker)
def _(operator: Any) -> Any:
    factors = [o.cholesky() for o in operator.operators]
    triangular = not all(f.is_self_adjoint for f in factors)
    hints = {"is_self_adjoint": False} if triangular else {}
    return type(operator)(factors, is_non_singular=True, is_square=True, **hints)


@CHOLESKY.of(LinearOperator)
def _(operator: Any) -> Any:
    return LinearOperatorLowerTriangular(
        b.cholesky(operator.to_dense()),
        is_non_singular=True,
        is_self_adjoint=False,
        is_square=True,
    )


# -- Products --------------------------------------------------------------------------------------


def _check_zeros(zeros: Any, other: Any) -> None:
    if not (zeros.is_square and other.is_square):
        raise ValueError(
            "Matmul with non-square `LinearOperator`s or non-square `LinearOperatorZeros` not "
            "supported at this time."
        )


@PRODUCT.of(LinearOperatorZeros, LinearOperator)
def _(left: Any, right: Any) -> Any:
    _check_zeros(left, right)
    return left


@PRODUCT.of(LinearOperator, LinearOperatorZeros)
def _(left: Any, right: Any) -> Any:
    _check_zeros(right, left)
    return right


@PRODUCT.of(LinearOperatorIdentity, LinearOperator)
def _(left: Any, right: Any) -> Any:
    return right


@PRODUCT.of(LinearOperator, LinearOperatorIdentity)
def _(left: Any, right: Any) -> Any:
    return left


@PRODUCT.of(LinearOperatorDiag, LinearOperatorDiag)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorDiag(left.diag * right.diag, **hints)


@PRODUCT.of(LinearOperatorDiag, LinearOperatorScaledIdentity)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorDiag(left.diag * b.expand_dims(right.multiplier, -1), **hints)


@PRODUCT.of(LinearOperatorScaledIdentity, LinearOperatorDiag)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorDiag(right.diag * b.expand_dims(left.multiplier, -1), **hints)


@PRODUCT.of(LinearOperatorDiag, LinearOperatorLowerTriangular)
def _(left: Any, right: Any) -> Any:
    return _triangular(b.expand_dims(left.diag, -1) * right.to_dense(), left, right)


@PRODUCT.of(LinearOperatorLowerTriangular, LinearOperatorDiag)
def _(left: Any, right: Any) -> Any:
    return _triangular(left.to_dense() * b.expand_dims(right.diag, -2), left, right)


def _triangular(tril: Any, left: Any, right: Any) -> Any:
    hints = {**in_product(left, right, commuting=True), "is_positive_definite": None}
    return LinearOperatorLowerTriangular(tril, **hints)


@PRODUCT.of(LinearOperatorCirculant, LinearOperatorCirculant)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorCirculant(left.spectrum * right.spectrum, **hints)


@PRODUCT.of(LinearOperator, LinearOperator)
def _(left: Any, right: Any) -> Any:
    return LinearOperatorComposition([left, right], **in_product(left, right))


# -- Quotients: left^-1 @ right --------------------------------------------------------------------


@QUOTIENT.of(LinearOperatorInversion, LinearOperator)
def _(left: Any, right: Any) -> Any:
    return left.operator.matmul(right)


@QUOTIENT.of(LinearOperatorIdentity, LinearOperator)
def _(left: Any, right: Any) -> Any:
    return right


@QUOTIENT.of(LinearOperatorDiag, LinearOperatorDiag)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorDiag(right.diag / left.diag, **hints)


@QUOTIENT.of(LinearOperatorDiag, LinearOperatorScaledIdentity)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorDiag(b.expand_dims(right.multiplier, -1) / left.diag, **hints)


@QUOTIENT.of(LinearOperatorScaledIdentity, LinearOperatorDiag)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorDiag(right.diag / b.expand_dims(left.multiplier, -1), **hints)


@QUOTIENT.of(LinearOperatorDiag, LinearOperatorLowerTriangular)
def _(left: Any, right: Any) -> Any:
    return _triangular(right.to_dense() / b.expand_dims(left.diag, -1), left, right)


@QUOTIENT.of(LinearOperatorCirculant, LinearOperatorCirculant)
def _(left: Any, right: Any) -> Any:
    hints = in_product(left, right, commuting=True)
    return LinearOperatorCirculant(right.spectrum / left.spectrum, **hints)


@QUOTIENT.of(LinearOperator, LinearOperator)
def _(left: Any, right: Any) -> Any:
    return LinearOperatorComposition(
        [LinearOperatorInversion(left), right], **in_product(left, right)
    )
