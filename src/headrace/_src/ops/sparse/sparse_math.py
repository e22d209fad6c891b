"""Arithmetic on sparse tensors: with each other, and with dense tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, broadcast
from headrace._src.graph.composite import SparseTensor, SparseTensorValue
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.sparse import sparse_kernels
from headrace._src.ops.sparse.sparse_ops import as_sparse, known_shape

__all__ = [
    "sparse_add",
    "sparse_maximum",
    "sparse_minimum",
    "sparse_tensor_dense_matmul",
]

_A = ([[0, 0], [0, 2], [1, 1]], r(3), [2, 3])
_B = ([[0, 2], [1, 0]], r(2, low=0.5), [2, 3])
_NOTHING = (np.zeros((0, 2), np.int64), r(0), [2, 3])


# -- Two sparse tensors


def _add_infer(
    c: InferenceContext,
    ai: TensorShape,
    av: TensorShape,
    a: TensorShape,
    bi: TensorShape,
    bv: TensorShape,
    bs: TensorShape,
    thresh: TensorShape,
) -> list[Any]:
    rank = a.with_rank(1).as_list()[0]
    return [(None, rank), (None,), (rank,)]


def _add_gradient(b: OpBuilder, op: Any, _: Any, dz: Tensor, __: Any) -> Any:
    da, db = b.sparse_add_grad(dz, op.inputs[0], op.inputs[3], op.outputs[0])
    return None, da, None, None, db, None, None


@define(
    "SparseAdd",
    "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64, "
    "thresh: Treal -> sum_indices: int64, sum_values: T, sum_shape: int64",
    "T: {numbers}; Treal: {reals}",
    infer=_add_infer,
    kernel=sparse_kernels.sparse_add,
    gradient=_add_gradient,
    samples=[Sample(*_A, *_B, 0), Sample(*_A, *_A, 1), Sample(*_NOTHING, *_A, 0)],
)
def sparse_add_op(a_indices, a_values, a_shape, b_indices, b_values, b_shape, thresh, name=None):
    """Add two sparse tensors; a sum below `thresh` in magnitude is left out."""


def _add_grad_infer(
    c: InferenceContext, grad: TensorShape, ai: TensorShape, bi: TensorShape, *_: Any
) -> list[Any]:
    grad.with_rank(1)
    return [ai.with_rank(2)[:1], bi.with_rank(2)[:1]]


@define(
    "SparseAddGrad",
    "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64 "
    "-> a_val_grad: T, b_val_grad: T",
    "T: {numbers}",
    infer=_add_grad_infer,
    kernel=sparse_kernels.sparse_add_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(3), [[0, 0], [1, 1]], [[1, 1], [1, 2]], [[0, 0], [1, 1], [1, 2]])],
)
def sparse_add_grad(backprop_val_grad, a_indices, b_indices, sum_indices, name=None):
    """Return the gradients of the values of SparseAdd's operands."""


@composed
@export("sparse.add", "sparse_add")
def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """Return a + b, sparse if both are; a sum of magnitude below `threshold` is left out."""
    threshold = renamed_argument("threshold", threshold, "thresh", thresh)
    sparse_types = (SparseTensor, SparseTensorValue)
    if not isinstance(a, sparse_types) and not isinstance(b, sparse_types):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if not isinstance(a, sparse_types):
        a, b = b, a
    left = as_sparse(a)
    if not isinstance(b, sparse_types):
        return sparse_tensor_dense_add(*left.components(), b)
    right = as_sparse(b)
    limit = convert_to_tensor(
        0 if threshold is None else threshold, left.dtype.real_dtype.base_dtype, "threshold"
    )
    indices, values, shape = sparse_add_op(*left.components(), *right.components(), limit)
    left.shape.assert_is_compatible_with(right.shape)
    sizes = [known_shape(left), known_shape(right)]
    if None not in sizes:
        shape = broadcast(sizes[0], sizes[1]).as_list()
    return SparseTensor(indices, values, shape)


def _extremum_infer(c: InferenceContext, *shapes: TensorShape) -> list[Any]:
    for indices, values, shape in (shapes[:3], shapes[3:]):
        indices.with_rank(2)
        values.with_rank(1)
        shape.with_rank(1)
    return [(None, None), (None,)]


def _extremum_gradient(takes_left: str) -> Any:
    """Send the gradient to the operand that the element is from; to the left one if they tie."""

    def gradient(b: OpBuilder, op: Any, _: Any, dz: Any) -> Any:
        a_indices, a_values, a_shape, b_indices, b_values, b_shape = op.inputs
        over_left = b_indices, b.zeros_like(b_values), b_shape
        over_right = a_indices, b.zeros_like(a_values), a_shape
        left = b.sparse_add_op(a_indices, a_values, a_shape, *over_left, 0)[1]
        right = b.sparse_add_op(*over_right, b_indices, b_values, b_shape, 0)[1]
        is_left = getattr(b, takes_left)(left, right)
        nothing = b.zeros_like(dz)
        places = a_indices, b_indices, op.outputs[0]
        da, _ = b.sparse_add_grad(b.where(is_left, dz, nothing), *places)
        _, db = b.sparse_add_grad(b.where(is_left, nothing, dz), *places)
        return None, da, None, None, db, None

    return gradient


_PAIR = (
    "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64 "
    "-> output_indices: int64, output_values: T"
)


@define(
    "SparseSparseMaximum",
    _PAIR,
    "T: {reals}",
    infer=_extremum_infer,
    kernel=sparse_kernels.sparse_extremum(np.maximum),
    gradient=_extremum_gradient("greater_equal"),
    samples=[Sample(*_A, *_B), Sample(*_NOTHING, *_A)],
)
def sparse_sparse_maximum(a_indices, a_values, a_shape, b_indices, b_values, b_shape, name=None):
    """Return the larger of two sparse tensors' elements."""


@define(
    "SparseSparseMinimum",
    _PAIR,
    "T: {numbers}",
    infer=_extremum_infer,
    kernel=sparse_kernels.sparse_extremum(np.minimum),
    gradient=_extremum_gradient("less_equal"),
    samples=[Sample(*_A, *_B), Sample(*_NOTHING, *_A)],
)
def sparse_sparse_minimum(a_indices, a_values, a_shape, b_indices, b_values, b_shape, name=None):
    """Return the smaller of two sparse tensors' elements."""


@composed
@export("sparse.maximum", "sparse_maximum")
def sparse_maximum(sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None) -> SparseTensor:
    """Return the larger elements of two sparse tensors; a missing element counts as 0."""
    with name_scope(name, "SparseSparseMaximum", [*sp_a.components(), *sp_b.components()]) as scope:
        indices, values = sparse_sparse_maximum(*sp_a.components(), *sp_b.components(), name=scope)
    return SparseTensor(indices, values, sp_a.dense_shape)


@composed
@export("sparse.minimum", "sparse_minimum")
def sparse_minimum(sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None) -> SparseTensor:
    """Return the smaller elements of two sparse tensors; a missing element counts as 0."""
    with name_scope(name, "SparseSparseMinimum", [*sp_a.components(), *sp_b.components()]) as scope:
        indices, values = sparse_sparse_minimum(*sp_a.components(), *sp_b.components(), name=scope)
    return SparseTensor(indices, values, sp_a.dense_shape)


# -- A sparse and a dense tensor


def _cwise_infer(
    c: InferenceContext, indices: TensorShape, values: TensorShape, shape: TensorShape, _: Any
) -> Any:
    return indices.with_rank(2)[:1]


def _dense_parts(op: Any) -> tuple[Tensor, Tensor]:
    """Return (indices into the dense operand of the elements used, those elements)."""
    indices, _, shape, dense = op.inputs
    size = b.shape(dense, out_type=dtypes.int64)
    extra = b.expand_dims(b.subtract(b.size(shape), b.rank(dense)), 0)
    padded = b.concat([b.ones(extra, dtypes.int64), size], 0)
    # A size of 1 is broadcast: the dense operand is read at 0, whatever the index.
    scaled = b.floordiv(indices, b.floordiv(b.maximum(shape, 1), b.maximum(padded, 1)))
    inner = b.slice(scaled, b.concat([[0], extra], 0), [-1, -1])
    return inner, b.gather_nd(dense, inner)


def _scatter_like(op: Any, inner: Tensor, updates: Tensor) -> Tensor:
    dense = op.inputs[3]
    return b.scatter_nd(inner, updates, b.shape(dense, out_type=dtypes.int64))


def _cwise_add_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    inner, _ = _dense_parts(op)
    return None, grad, None, _scatter_like(op, inner, grad)


@counted(23)
def _cwise_mul_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    inner, dense = _dense_parts(op)
    return None, grad * dense, None, _scatter_like(op, inner, grad * op.inputs[1])


@counted(26)
def _cwise_div_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    inner, dense = _dense_parts(op)
    slope = -op.inputs[1] / (dense * dense)
    return None, grad / dense, None, _scatter_like(op, inner, grad * slope)


_WITH_DENSE = "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T -> output: T"
_DENSE = [
    Sample(*_A, r(2, 3, low=0.6, high=3)),
    Sample(*_A, r(3, low=0.6, high=3)),
    Sample(*_A, r(2, 1, low=0.6, high=3)),
    Sample(*_A, r(low=0.6, high=3)),
    Sample(*_NOTHING, r(3, low=0.6, high=3)),
]


@define(
    "SparseDenseCwiseAdd",
    _WITH_DENSE,
    "T: {numbers}",
    infer=_cwise_infer,
    kernel=sparse_kernels.sparse_dense_cwise(np.add),
    gradient=_cwise_add_gradient,
    samples=_DENSE,
)
def sparse_dense_cwise_add(sp_indices, sp_values, sp_shape, dense, name=None):
    """Add the elements of a dense tensor to the elements of a sparse one."""


@define(
    "SparseDenseCwiseMul",
    _WITH_DENSE,
    "T: {numbers}",
    infer=_cwise_infer,
    kernel=sparse_kernels.sparse_dense_cwise(np.multiply),
    gradient=_cwise_mul_gradient,
    samples=_DENSE,
)
def sparse_dense_cwise_mul(sp_indices, sp_values, sp_shape, dense, name=None):
    """Multiply the elements of a sparse tensor by those of a dense one."""


@define(
    "SparseDenseCwiseDiv",
    _WITH_DENSE,
    "T: {numbers}",
    infer=_cwise_infer,
    kernel=sparse_kernels.sparse_dense_cwise(sparse_kernels.divide),
    gradient=_cwise_div_gradient,
    samples=_DENSE,
)
def sparse_dense_cwise_div(sp_indices, sp_values, sp_shape, dense, name=None):
    """Divide the elements of a sparse tensor by those of a dense one."""


def _dense_add_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    return None, b.gather_nd(grad, op.inputs[0]), None, grad


@define(
    "SparseTensorDenseAdd",
    "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T -> output: T",
    "T: {numbers}; Tindices: {index}",
    infer=lambda c, i, v, s, d: d,
    kernel=sparse_kernels.sparse_tensor_dense_add,
    gradient=_dense_add_gradient,
    samples=[Sample(*_A, r(2, 3)), Sample(*_NOTHING, r(2, 3))],
)
def sparse_tensor_dense_add(a_indices, a_values, a_shape, b, name=None):
    """Add a sparse tensor to a dense one of the same shape."""


def _mat_mul_infer(
    c: InferenceContext, ai: TensorShape, av: TensorShape, _: TensorShape, dense: TensorShape
) -> Any:
    ai.with_rank(2)
    av.with_rank(1)
    a = c.shape_from(2).with_rank(2).as_list()
    rows, columns = dense.with_rank(2).as_list() if dense.sizes is not None else (None, None)
    if c.attrs["adjoint_a"]:
        a = a[::-1]
    if c.attrs["adjoint_b"]:
        rows, columns = columns, rows
    if a[1] is not None and rows is not None and a[1] != rows:
        raise ValueError(f"Dimensions must be equal, but are {a[1]} and {rows}")
    return (a[0], columns)


def _mat_mul_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    indices, values, shape, dense = op.inputs
    adjoint_a, adjoint_b = op.get_attr("adjoint_a"), op.get_attr("adjoint_b")
    d_dense = b.sparse_tensor_dense_mat_mul(indices, values, shape, grad, adjoint_a=not adjoint_a)
    if adjoint_b:
        d_dense = b.conj(b.transpose(d_dense))
    rows, columns = indices[:, 0], indices[:, 1]
    if adjoint_a:
        rows, columns = columns, rows
    factor = b.transpose(dense) if adjoint_b else b.conj(dense)
    products = b.gather(grad, rows) * b.gather(factor, columns)
    d_values = b.reduce_sum(products, 1)
    return None, b.conj(d_values) if adjoint_a else d_values, None, d_dense


@define(
    "SparseTensorDenseMatMul",
    "a_indices: Tindices, a_values: T, a_shape: int64, b: T -> product: T",
    "T: type; Tindices: {index} = int64; adjoint_a: bool = False; adjoint_b: bool = False",
    infer=_mat_mul_infer,
    kernel=sparse_kernels.sparse_tensor_dense_mat_mul,
    gradient=_mat_mul_gradient,
    kind=Kind.CONTRACTION,
    samples=[
        Sample(*_A, r(3, 4), T=dtype, **attrs)
        if not attrs.get("adjoint_a")
        else Sample(*_A, r(4, 2), T=dtype, **attrs)
        for dtype in ("float32", "float64", "int32", "complex64", "bfloat16")
        for attrs in ({}, {"adjoint_a": True, "adjoint_b": True})
    ]
    + [
        Sample(*_A, r(2, 4), T="float64", adjoint_a=True),
        Sample(*_A, r(4, 3), T="float64", adjoint_b=True),
        Sample(*_NOTHING, r(3, 4), T="float64"),
    ],
)
def sparse_tensor_dense_mat_mul(
    a_indices, a_values, a_shape, b, adjoint_a=False, adjoint_b=False, name=None
):
    """Multiply a sparse matrix by a dense one."""


@composed
@export("sparse.matmul", "sparse.sparse_dense_matmul", "sparse_tensor_dense_matmul")
def sparse_tensor_dense_matmul(
    sp_a: Any,
    b: Any,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the product of a sparse matrix and a dense one; each may be taken as its adjoint.

    adjoint_a and adjoint_b: use the adjoint of sp_a or b.
    """
    left = as_sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [*left.components(), b]):
        right = convert_to_tensor(b, name="b")
        return sparse_tensor_dense_mat_mul(
            *left.components(), right, adjoint_a=adjoint_a, adjoint_b=adjoint_b
        )
