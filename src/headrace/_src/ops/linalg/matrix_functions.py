"""Functions of square matrices (exponential, logarithm, square root) and tridiagonal matrices."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted, is_complex
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.linalg import linalg_kernels as kernels
from headrace._src.ops.linalg.linalg_ops import equal_sizes, square_infer

__all__ = ["expm", "tridiagonal_matmul", "tridiagonal_solve"]

_T = "T: {float64|float32|float16|complex64|complex128}"
_WIDE = "T: {float64|float32|complex64|complex128}"
_NEAR_IDENTITY = [[1.5, 0.25, 0.0], [-0.25, 2.0, 0.5], [0.125, 0.0, 1.25]]


# Functions of matrices -------------------------------------------------------------------------


def _block_gradient(function: str) -> Any:
    """Return the gradient of an analytic function f: its derivative at A^H in the direction of dY.

    It is the upper right block of f([[A^H, dY], [0, A^H]]) (Higham, "Functions of matrices", 3.16).
    """

    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        a = b.adjoint(op.inputs[0])
        size = b.shape(a)[-1]
        upper = b.concat([a, grad], axis=-1)
        lower = b.concat([b.zeros_like(a), a], axis=-1)
        whole = getattr(b, function)(b.concat([upper, lower], axis=-2))
        return whole[..., :size, size:]

    return gradient


@define(
    "MatrixExponential",
    "input: T -> output: T",
    _T,
    infer=square_infer,
    kernel=kernels.exponential,
    gradient=_block_gradient("matrix_exponential"),
    samples=[Sample(r(3, 3)), Sample(r(2, 2, 2)), Sample(r(0, 0))],
)
def matrix_exponential(input, name=None):
    """Return e^input for each matrix."""


@export("linalg.logm")
@define(
    "MatrixLogarithm",
    "input: T -> output: T",
    "T: {complexes}",
    infer=square_infer,
    kernel=kernels.logarithm,
    gradient=_block_gradient("matrix_logarithm"),
    samples=[Sample(_NEAR_IDENTITY), Sample([_NEAR_IDENTITY, [[1, 2, 0], [0, 3, 1], [0, 0, 1]]])],
)
def matrix_logarithm(input, name=None):
    """Return the principal logarithm of each matrix."""


def _square_root_nodes(op: Any, grad: Any) -> int:
    return 119 if op.inputs[0].shape.ndims is not None else 155


@export("matrix_square_root", "linalg.sqrtm")
@define(
    "MatrixSquareRoot",
    "input: T -> output: T",
    _T,
    infer=square_infer,
    kernel=kernels.square_root,
    gradient=counted(_square_root_nodes, _block_gradient("matrix_square_root")),
    samples=[Sample(_NEAR_IDENTITY), Sample([[4.0, 0.0], [0.0, 0.0]])],
)
def matrix_square_root(input, name=None):
    """Return the principal square root of each matrix; NaN where there is none."""


@composed
@export("linalg.expm")
def expm(input: Any, name: str | None = None) -> Tensor:
    """Return e^input for each matrix [..., M, M]."""
    with name_scope(name, "matrix_exponential", [input]) as scope:
        matrix = convert_to_tensor(input, name="input")
        return matrix_exponential(matrix, name=scope)


# Tridiagonal matrices --------------------------------------------------------------------------


def _tridiagonal_solve_infer(c: Any, diagonals: TensorShape, rhs: TensorShape) -> Any:
    infer.with_rank_at_least(diagonals, 2)
    infer.with_rank_at_least(rhs, 2)
    if diagonals.sizes is not None and diagonals.sizes[-2] not in (None, 3):
        raise ValueError(f"Dimension must be 3 but is {diagonals.sizes[-2]}")
    if diagonals.sizes is not None and rhs.sizes is not None:
        equal_sizes(diagonals.sizes[-1], rhs.sizes[-2])
        diagonals[:-2].merge_with(rhs[:-2])
    return rhs


def _later(b: OpBuilder, x: Any) -> Any:
    """Return `x` [..., M, K] with its rows shifted up by one and zeros last."""
    return b.concat([x[..., 1:, :], b.zeros_like(x[..., :1, :])], axis=-2)


def _earlier(b: OpBuilder, x: Any) -> Any:
    return b.concat([b.zeros_like(x[..., :1, :]), x[..., :-1, :]], axis=-2)


def _inner(b: OpBuilder, x: Any, y: Any) -> Any:
    return b.reduce_sum(b.multiply(x, b.conj(y)), axis=-1)


@counted(lambda op, grad: 43 if op.inputs[0].shape.is_fully_defined() else 71)
def _tridiagonal_solve_gradient(b, op, grad):
    diagonals = op.inputs[0]
    x = op.outputs[0]
    columns = b.conj(b.expand_dims(diagonals, -1))
    upper, main, lower = (columns[..., i, :, :] for i in range(3))
    adjoint = b.stack([t[..., 0] for t in (_later(b, lower), main, _earlier(b, upper))], axis=-2)
    d_rhs = b.tridiagonal_solve_op(adjoint, grad, partial_pivoting=op._attrs["partial_pivoting"])
    products = [_inner(b, d_rhs, t) for t in (_later(b, x), x, _earlier(b, x))]
    return b.negative(b.stack(products, axis=-2)), d_rhs


@define(
    "TridiagonalSolve",
    "diagonals: T, rhs: T -> output: T",
    "partial_pivoting: bool = True; " + _WIDE,
    infer=_tridiagonal_solve_infer,
    kernel=kernels.tridiagonal_solve,
    gradient=_tridiagonal_solve_gradient,
    samples=[
        Sample(r(3, 4), r(4, 2)),
        Sample(r(2, 3, 3), r(2, 3, 1), partial_pivoting=False),
        Sample(r(3, 1), r(1, 1)),
    ],
)
def tridiagonal_solve_op(diagonals, rhs, partial_pivoting=True, name=None):
    """Return x such that T x = rhs for a tridiagonal T, given by its three diagonals."""


def _tridiagonal_mat_mul_infer(c: Any, *shapes: TensorShape) -> Any:
    *diagonals, rhs = [infer.with_rank_at_least(shape, 2) for shape in shapes]
    rows = infer.same_as_all(c, *diagonals)
    if rows.sizes is not None:
        if rows.sizes[-2] not in (None, 1):
            raise ValueError(f"Dimension must be 1 but is {rows.sizes[-2]}")
        if rhs.sizes is not None:
            equal_sizes(rows.sizes[-1], rhs.sizes[-2])
            rows[:-2].merge_with(rhs[:-2])
    return rhs


@counted(lambda op, grad: 102 + is_complex(op) + 36 * (op.inputs[3].shape.ndims is None))
def _tridiagonal_mat_mul_gradient(b, op, grad):
    upper, main, lower, rhs = op.inputs
    products = [_inner(b, grad, t) for t in (_later(b, rhs), rhs, _earlier(b, rhs))]
    columns = [
        b.conj(b.matrix_transpose(t)) for t in (_later_row(b, lower), main, _earlier_row(b, upper))
    ]
    d_rhs = b.tridiagonal_mat_mul(*[b.matrix_transpose(t) for t in columns], grad)
    return (*[b.expand_dims(t, -2) for t in products], d_rhs)


def _later_row(b: OpBuilder, x: Any) -> Any:
    return b.matrix_transpose(_later(b, b.matrix_transpose(x)))


def _earlier_row(b: OpBuilder, x: Any) -> Any:
    return b.matrix_transpose(_earlier(b, b.matrix_transpose(x)))


@define(
    "TridiagonalMatMul",
    "superdiag: T, maindiag: T, subdiag: T, rhs: T -> output: T",
    _WIDE,
    infer=_tridiagonal_mat_mul_infer,
    kernel=kernels.tridiagonal_mat_mul,
    gradient=_tridiagonal_mat_mul_gradient,
    samples=[
        Sample(r(1, 4), r(1, 4), r(1, 4), r(4, 2)),
        Sample(r(2, 1, 3), r(2, 1, 3), r(2, 1, 3), r(2, 3, 1)),
    ],
)
def tridiagonal_mat_mul(superdiag, maindiag, subdiag, rhs, name=None):
    """Return T rhs for a tridiagonal T, given by its diagonals, aligned by row."""


def _diagonals_of(matrix: Any) -> list[Any]:
    """Return the upper, main and lower diagonals of matrices [..., M, M], each padded
    to [..., M].
    """
    square = matrix.shape.as_list()[-2:] if matrix.shape.rank else [None]
    if None in square or square[0] != square[-1]:
        raise ValueError(
            f"tridiagonal matrices must have a static square shape, not {matrix.shape}"
        )
    packed = b.matrix_diag_part_v2(matrix, [-1, 1], b.zeros([], matrix.dtype))
    upper, main, lower = (packed[..., i, :] for i in range(3))
    return [upper, main, b.concat([lower[..., -1:], lower[..., :-1]], axis=-1)]


def _padded(diagonal: Any, size: Any, before: int) -> Any:
    """Pad an outer diagonal with a zero to the length of the main one."""
    length = diagonal.shape.as_list()[-1]
    if length is None or length == size:
        return diagonal
    outer = [[0, 0]] * (diagonal.shape.rank - 1)
    return b.pad(diagonal, [*outer, [1, 0] if before else [0, 1]])


def _split_diagonals(diagonals: Any, form: str) -> list[Any]:
    if form == "compact":
        diagonals = convert_to_tensor(diagonals, name="diagonals")
        return [diagonals[..., i, :] for i in range(3)]
    if form == "sequence":
        if not isinstance(diagonals, list | tuple) or len(diagonals) != 3:
            raise ValueError("Expected diagonals to be a sequence of length 3.")
        return [convert_to_tensor(d) for d in diagonals]
    if form == "matrix":
        return _diagonals_of(convert_to_tensor(diagonals, name="diagonals"))
    raise ValueError(f"Unrecognized diagonals_format: {form}")


@composed
@export("linalg.tridiagonal_solve")
def tridiagonal_solve(
    diagonals: Any,
    rhs: Any,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
) -> Tensor:
    """Return x such that T x = rhs; `rhs` is [..., M] or [..., M, K].

    diagonals_format: how `diagonals` gives T: an array [..., 3, M] of its upper, main and lower
    diagonals ("compact"), these three in a list ("sequence") or the whole matrix ("matrix").

    transpose_rhs and conjugate_rhs: apply this to rhs first. partial_pivoting: exchange rows for
    accuracy.
    """
    rhs = convert_to_tensor(rhs, name="rhs")
    if diagonals_format == "compact":
        compact = convert_to_tensor(diagonals, name="diagonals")
    else:
        upper, main, lower = _split_diagonals(diagonals, diagonals_format)
        size = main.shape.as_list()[-1]
        lower = _padded(lower, size, before=True)
        compact = b.stack([_padded(upper, size, before=False), main, lower], axis=-2)
    if compact.shape.rank is None or rhs.shape.rank is None:
        raise ValueError("the ranks of diagonals and rhs must be known")
    is_vector = rhs.shape.rank == compact.shape.rank - 1
    if is_vector:
        if conjugate_rhs:
            rhs = b.conj(rhs)
        column = b.expand_dims(rhs, -1)
        found = tridiagonal_solve_op(compact, column, partial_pivoting, name=name)
        return b.squeeze(found, -1)
    if transpose_rhs:
        rhs = b.matrix_transpose(rhs, conjugate=conjugate_rhs)
    elif conjugate_rhs:
        rhs = b.conj(rhs)
    found = tridiagonal_solve_op(compact, rhs, partial_pivoting, name=name)
    return b.matrix_transpose(found) if transpose_rhs else found


@composed
@export("linalg.tridiagonal_matmul")
def tridiagonal_matmul(
    diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None
) -> Tensor:
    """Return T rhs; T is given as in tf.linalg.tridiagonal_solve."""
    found = _split_diagonals(diagonals, diagonals_format)
    rows = [b.expand_dims(d, -2) for d in found]
    return tridiagonal_mat_mul(*rows, rhs, name=name)
