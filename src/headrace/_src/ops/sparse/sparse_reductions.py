"""Sums, maxima and softmax of sparse tensors along axes, over the elements present."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.sparse import sparse_kernels
from headrace._src.ops.sparse.sparse_ops import as_sparse

__all__ = [
    "sparse_reduce_max",
    "sparse_reduce_max_sparse",
    "sparse_reduce_sum",
    "sparse_reduce_sum_sparse",
    "sparse_softmax",
]

_A = ([[0, 0], [0, 2], [1, 1]], r(3), [2, 3])
_NOTHING = (np.zeros((0, 2), np.int64), r(0), [2, 3])
_CUBE = ([[0, 0, 1], [1, 1, 0], [1, 1, 2]], r(3), [2, 2, 3])


def _reduce_infer(
    c: InferenceContext, i: TensorShape, v: TensorShape, s: TensorShape, axes_shape: TensorShape
) -> Any:
    sizes, axes = c.value(2), c.value(3)
    if sizes is None or axes is None:
        return None
    return infer.reduced_sizes(
        tuple(sizes.ravel().tolist()), axes.ravel().tolist(), c.attrs["keep_dims"]
    )


@counted(16)
def _reduce_sum_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    indices, _, shape, axes = op.inputs
    rank = b.size(shape)
    positions = b.floormod(b.add(b.reshape(axes, [-1]), rank), rank)
    reduced = b.scatter_nd(
        b.expand_dims(positions, 1), b.ones_like(positions), b.expand_dims(rank, 0)
    )
    reduced = b.not_equal(reduced, 0)
    kept_shape = b.where(reduced, b.ones_like(shape), shape)
    everywhere = b.where(b.logical_not(reduced), b.ones_like(shape), b.zeros_like(shape))
    found = b.gather_nd(b.reshape(grad, kept_shape), indices * everywhere)
    return None, found, None, None


_REDUCED = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32"
_AXES = [
    Sample(*_A, [1]),
    Sample(*_A, [0], keep_dims=True),
    Sample(*_A, [0, -1]),
    Sample(*_CUBE, [0, 2]),
    Sample(*_CUBE, 1, keep_dims=True),
    Sample(*_A, []),
    Sample(*_NOTHING, [1]),
]


def _reduction(
    op_type: str, types: str, kernel: Any, gradient: Any = NOT_DIFFERENTIABLE, dense: bool = True
) -> Any:
    """Define a reduction of a sparse tensor to a dense one, or to a sparse one."""
    output = (
        "output: T" if dense else "output_indices: int64, output_values: T, output_shape: int64"
    )
    return define(
        op_type,
        f"{_REDUCED} -> {output}",
        f"keep_dims: bool = False; T: {types}",
        infer=_reduce_infer if dense else infer.unknown,
        kernel=kernel,
        gradient=gradient,
        samples=_AXES,
    )


@_reduction(
    "SparseReduceSum", "{numbers}", sparse_kernels.sparse_reduce(np.add), _reduce_sum_gradient
)
def sparse_reduce_sum_op(
    input_indices, input_values, input_shape, reduction_axes, keep_dims=False, name=None
):
    """Sum the elements of a sparse tensor along axes, to a dense one."""


@_reduction(
    "SparseReduceSumSparse", "{numbers}", sparse_kernels.sparse_reduce_sparse(np.add), dense=False
)
def sparse_reduce_sum_sparse_op(
    input_indices, input_values, input_shape, reduction_axes, keep_dims=False, name=None
):
    """Sum the elements of a sparse tensor along axes, to a sparse one."""


@_reduction("SparseReduceMax", "{reals}", sparse_kernels.sparse_reduce(np.maximum))
def sparse_reduce_max_op(
    input_indices, input_values, input_shape, reduction_axes, keep_dims=False, name=None
):
    """Find the largest elements of a sparse tensor along axes, as a dense one."""


@_reduction(
    "SparseReduceMaxSparse", "{reals}", sparse_kernels.sparse_reduce_sparse(np.maximum), dense=False
)
def sparse_reduce_max_sparse_op(
    input_indices, input_values, input_shape, reduction_axes, keep_dims=False, name=None
):
    """Find the largest elements of a sparse tensor along axes, as a sparse one."""


def _settle(
    sp: SparseTensor, axis: Any, keepdims: Any, reduction_axes: Any, keep_dims: Any
) -> tuple[Any, bool]:
    """Return (axes, whether to keep them) from arguments that may have their older names."""
    axes = renamed_argument("axis", axis, "reduction_axes", reduction_axes)
    keep = renamed_argument("keepdims", keepdims, "keep_dims", keep_dims)
    if axes is None:
        rank = sp.dense_shape.shape.as_list()[0]
        if rank is None:
            axes = b.range(0, b.rank(sp))
        else:
            axes = b.constant(np.arange(rank), dtypes.int32)
    return axes, bool(keep)


@composed
@export("sparse.reduce_sum", "sparse_reduce_sum")
def sparse_reduce_sum(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the sums along `axis` (all axes if None) as a dense tensor."""
    sp = as_sparse(sp_input)
    axes, keep = _settle(sp, axis, keepdims, reduction_axes, keep_dims)
    return sparse_reduce_sum_op(*sp.components(), axes, keep)


@composed
@export("sparse.reduce_sum_sparse", "sparse_reduce_sum_sparse")
def sparse_reduce_sum_sparse(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:
    """Return the sums along `axis` (all axes if None) as a sparse tensor."""
    sp = as_sparse(sp_input)
    axes, keep = _settle(sp, axis, keepdims, reduction_axes, keep_dims)
    return SparseTensor(*sparse_reduce_sum_sparse_op(*sp.components(), axes, keep))


@composed
@export("sparse.reduce_max", "sparse_reduce_max")
def sparse_reduce_max(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the largest elements along `axis` as a dense tensor; 0 where there are none."""
    sp = as_sparse(sp_input)
    axes, keep = _settle(sp, axis, keepdims, reduction_axes, keep_dims)
    return sparse_reduce_max_op(*sp.components(), axes, keep)


@composed
@export("sparse.reduce_max_sparse", "sparse_reduce_max_sparse")
def sparse_reduce_max_sparse(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:
    """Return the largest elements along `axis` as a sparse tensor."""
    sp = as_sparse(sp_input)
    axes, keep = _settle(sp, axis, keepdims, reduction_axes, keep_dims)
    return SparseTensor(*sparse_reduce_max_sparse_op(*sp.components(), axes, keep))


def _softmax_infer(c: InferenceContext, i: TensorShape, v: TensorShape, s: TensorShape) -> Any:
    i.with_rank(2)
    s.with_rank(1)
    return v.with_rank(1)


def _softmax_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    indices, _, shape = op.inputs
    out = op.outputs[0]
    sums = b.sparse_reduce_sum_op(indices, out * grad, shape, [-1], True)
    return None, b.sparse_dense_cwise_add(indices, grad, shape, -sums) * out, None


@define(
    "SparseSoftmax",
    "sp_indices: int64, sp_values: T, sp_shape: int64 -> output: T",
    "T: {float32|float64}",
    infer=_softmax_infer,
    kernel=sparse_kernels.sparse_softmax,
    gradient=_softmax_gradient,
    samples=[Sample(*_A), Sample(*_CUBE), Sample(*_NOTHING)],
)
def sparse_softmax_op(sp_indices, sp_values, sp_shape, name=None):
    """Return the softmax of a sparse tensor's rows, over the elements present."""


@composed
@export("sparse.softmax", "sparse_softmax")
def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Return the softmax along the last axis, over the elements present."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseSoftmax", [sp.indices, sp.values]):
        values = sparse_softmax_op(*sp.components())
        return SparseTensor(sp.indices, values, sp.dense_shape)
