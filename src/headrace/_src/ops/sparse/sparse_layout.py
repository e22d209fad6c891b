"""Joining, slicing and rearranging sparse tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import (
    InferenceContext,
    constant_value,
    constant_value_as_shape,
)
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.sparse import sparse_layout_kernels as kernels
from headrace._src.ops.sparse.sparse_ops import as_sparse, check_sparse, known_shape

__all__ = [
    "sparse_concat",
    "sparse_expand_dims",
    "sparse_fill_empty_rows",
    "sparse_reorder",
    "sparse_reset_shape",
    "sparse_reshape",
    "sparse_retain",
    "sparse_slice",
    "sparse_split",
    "sparse_transpose",
]

_A = ([[0, 0], [0, 2], [1, 1]], r(3), [2, 3])
_MIXED = ([[1, 1], [0, 2], [0, 0]], r(3), [2, 3])
_NOTHING = (np.zeros((0, 2), np.int64), r(0), [2, 3])


# -- Order and shape


def _reorder_infer(
    c: InferenceContext, indices: TensorShape, values: TensorShape, shape: TensorShape
) -> list[Any]:
    shape.with_rank(1)
    return [indices.with_rank(2), values.with_rank(1)]


@counted(13)
def _reorder_gradient(b: OpBuilder, op: Any, _: Any, grad: Tensor) -> Any:
    indices, _, shape = op.inputs
    # Reordering the numbers 0, 1, ... shows where each element moved.
    places = b.range(b.shape(indices)[0])
    _, order = b.sparse_reorder_op(indices, places, shape)
    return None, b.gather(grad, b.invert_permutation(order)), None


@define(
    "SparseReorder",
    "input_indices: int64, input_values: T, input_shape: int64 "
    "-> output_indices: int64, output_values: T",
    "T: type",
    infer=_reorder_infer,
    kernel=kernels.sparse_reorder,
    gradient=_reorder_gradient,
    samples=[Sample(*_MIXED), Sample(*_A), Sample(*_NOTHING)],
)
def sparse_reorder_op(input_indices, input_values, input_shape, name=None):
    """Put the elements of a sparse tensor in the order of their indices."""


@composed
@export("sparse.reorder", "sparse_reorder")
def sparse_reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Return the same sparse tensor with its elements in row-major order."""
    sp = as_sparse(sp_input)
    indices, values = sparse_reorder_op(*sp.components(), name=name)
    shape = known_shape(sp)
    return SparseTensor(indices, values, b.identity(sp.dense_shape) if shape is None else shape)


def _reshape_infer(
    c: InferenceContext, indices: TensorShape, shape: TensorShape, wanted: TensorShape
) -> list[Any]:
    rows = indices.with_rank(2)
    shape.with_rank(1)
    sizes = wanted.with_rank(1).sizes
    rank = None if sizes is None else sizes[0]
    return [(None if rows.sizes is None else rows.sizes[0], rank), (rank,)]


@define(
    "SparseReshape",
    "input_indices: int64, input_shape: int64, new_shape: int64 "
    "-> output_indices: int64, output_shape: int64",
    infer=_reshape_infer,
    kernel=kernels.sparse_reshape,
    samples=[
        Sample([[0, 0], [1, 2]], [2, 3], [3, -1]),
        Sample([[0, 0], [1, 2]], [2, 3], [6]),
        Sample(np.zeros((0, 2), np.int64), [2, 3], [1, 2, 3]),
    ],
)
def sparse_reshape_op(input_indices, input_shape, new_shape, name=None):
    """Return the indices of the same elements in a tensor of another shape."""


def _reshaped(sp: SparseTensor, shape: Tensor) -> list[int] | None:
    """Return the new shape, if known; ValueError if its number of elements differs."""
    sizes, old = constant_value_as_shape(shape).sizes, known_shape(sp)
    if sizes is None or old is None:
        return None
    wanted = [-1 if n is None else n for n in sizes]
    if wanted.count(-1) > 1:
        known = constant_value(shape)
        if known is not None and known.tolist().count(-1) > 1:
            raise ValueError(f"At most one dimension can be inferred (-1). Found: {wanted}")
        return None
    total = int(np.prod(old, dtype=np.int64))
    try:
        return kernels.complete_shape(wanted, total)
    except ValueError:
        known = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
        raise ValueError(
            f"Cannot reshape a tensor with {total} elements to shape "
            f"{[None if n == -1 else n for n in wanted]} ({known} elements)."
        ) from None


@composed
@export("sparse.reshape", "sparse_reshape")
def sparse_reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor of another shape with the same elements in row-major order."""
    sp = as_sparse(sp_input)
    wanted = b.cast(shape, dtypes.int64)
    with name_scope(name, "SparseReshape", [sp]) as scope:
        indices, result = sparse_reshape_op(sp.indices, sp.dense_shape, wanted, name=scope)
        known = _reshaped(sp, wanted)
        if known is not None:
            result = b.constant(known, dtypes.int64)
        return SparseTensor(indices, b.identity(sp.values), result)


@composed
@export("sparse.transpose", "sparse_transpose")
def sparse_transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor with its dimensions permuted; reversed if `perm` is None."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseTranspose", [sp]):
        static = None
        if perm is None:
            rank = b.rank(sp)
            perm = (rank - 1) - b.range(0, rank, 1)
        rows = b.transpose(b.gather(b.transpose(sp.indices), perm))
        if not isinstance(perm, Tensor):
            static = constant_value(convert_to_tensor(perm))
        old = known_shape(sp)
        if static is None or old is None:
            shape: Any = b.gather(sp.dense_shape, perm)
        else:
            shape = [old[i] for i in static.tolist()]
        return sparse_reorder(SparseTensor(rows, sp.values, shape))


@composed
@export("sparse.expand_dims")
def sparse_expand_dims(sp_input: Any, axis: Any = None, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor with a dimension of size 1 inserted before `axis`, by default last."""
    sp = as_sparse(sp_input)
    rank = sp.dense_shape.shape.as_list()[0]
    if rank is None:
        raise ValueError("Cannot convert an unknown Dimension to a Tensor: ?")
    with name_scope(name, "expand_dims", [sp]):
        if isinstance(axis, int) and not -rank - 1 <= axis <= rank:
            raise ValueError(f"axis {axis} is not in [{-rank - 1}, {rank}]")
        where = convert_to_tensor(-1 if axis is None else axis, name="axis")
        where = b.where_v2(b.greater_equal(where, 0), where, where + rank + 1)
        count = b.shape(sp.indices)[0]
        column = b.zeros([count, 1], dtype=dtypes.int64)
        before = b.slice(sp.indices, [0, 0], [-1, where])
        after = b.slice(sp.indices, [0, where], [-1, -1])
        indices = b.concat([before, column, after], 1)
        outer = b.slice(sp.dense_shape, [0], [where])
        inner = b.slice(sp.dense_shape, [where], [-1])
        size = convert_to_tensor([1], dtypes.int64, "new_shape")
        return SparseTensor(indices, sp.values, b.concat([outer, size, inner], 0))


@composed
@export("sparse.reset_shape", "sparse_reset_shape")
def sparse_reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """Return a sparse tensor with another, larger shape: `new_shape`, or the tightest if None."""
    sp = as_sparse(sp_input)
    indices, values, old = b.identity(sp.indices), b.identity(sp.values), b.identity(sp.dense_shape)
    if new_shape is None:
        largest = b.reduce_max(indices, axis=0)
        shape = b.maximum(b.constant(0, dtypes.int64), b.add(largest, b.ones_like(old)))
        return SparseTensor(indices, values, shape)
    shape = convert_to_tensor(new_shape)
    shape.shape.assert_has_rank(1)
    shape = b.cast(shape, dtypes.int64)
    shape.shape.merge_with(old.shape)
    wanted, found = constant_value(shape), known_shape(sp)
    if wanted is not None and found is not None:
        for size, limit in zip(found, wanted.tolist(), strict=True):
            if size > limit:
                raise ValueError(
                    f"Requested dimension size {limit} should be greater than or equal to the "
                    f"sparse tensor's dimension size {size}."
                )
        return SparseTensor(indices, values, wanted)
    same_rank = b.assert_equal(b.shape(old), b.shape(shape))
    shape = b.with_dependencies([same_rank], shape)
    shape = b.with_dependencies([b.assert_less_equal(old, shape)], shape)
    return SparseTensor(indices, values, shape)


# -- Joining and cutting


def _concat_infer(
    c: InferenceContext,
    indices: list[TensorShape],
    values: list[TensorShape],
    shapes: list[TensorShape],
) -> list[Any]:
    total: int | None = 0
    rank, shape = TensorShape((None,)), TensorShape((None,))
    for rows, elements, box in zip(indices, values, shapes, strict=True):
        count, _ = check_sparse(rows, elements, box)
        total = None if total is None or count is None else total + count
        rank = rank.merge_with(rows.with_rank(2)[1:])
        shape = shape.merge_with(box)
    return [TensorShape((total,)).concatenate(rank), (total,), shape]


@define(
    "SparseConcat",
    "indices: N*int64, values: N*T, shapes: N*int64 "
    "-> output_indices: int64, output_values: T, output_shape: int64",
    "concat_dim: int; N: int >= 2; T: type",
    infer=_concat_infer,
    kernel=kernels.sparse_concat,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([_A[0], _MIXED[0]], [r(3), r(3)], [[2, 3], [2, 3]], concat_dim=1, N=2),
        Sample([_A[0], _NOTHING[0]], [r(3), r(0)], [[2, 3], [5, 3]], concat_dim=-2, N=2),
    ],
)
def sparse_concat_op(indices, values, shapes, concat_dim, name=None):
    """Concatenate sparse tensors along a dimension."""


@composed
@export("sparse.concat", "sparse_concat")
def sparse_concat(
    axis: Any,
    sp_inputs: Any,
    name: str | None = None,
    expand_nonconcat_dim: bool = False,
    concat_dim: Any = None,
    expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:
    """Concatenate sparse tensors along `axis`; `expand_nonconcat_dim` allows other
    sizes to differ.
    """
    if expand_nonconcat_dims is not None:
        if expand_nonconcat_dim:
            raise ValueError(
                "Cannot specify both 'expand_nonconcat_dims' and 'expand_nonconcat_dim'"
            )
        expand_nonconcat_dim = expand_nonconcat_dims
    axis = renamed_argument("axis", axis, "concat_dim", concat_dim)
    if not isinstance(sp_inputs, list | tuple):
        raise TypeError(f"Input must be a list of SparseTensors, not {type(sp_inputs).__name__}.")
    inputs = [as_sparse(sp) for sp in sp_inputs]
    if len(inputs) == 1:
        return inputs[0]
    shapes = [sp.dense_shape for sp in inputs]
    known = None
    if expand_nonconcat_dim:
        shapes = _expanded(shapes, axis)
    else:
        known = [known_shape(sp) for sp in inputs]
    indices, values, shape = sparse_concat_op(
        [sp.indices for sp in inputs], [sp.values for sp in inputs], shapes, axis, name=name
    )
    if known is not None and None not in known:
        sizes = np.array(known[0], np.int64)
        sizes[axis] = sum(n[axis] for n in known if n is not None)
        shape = b.constant(sizes)
    return SparseTensor(indices, values, shape)


def _expanded(shapes: list[Tensor], axis: int) -> list[Tensor]:
    """Return the shapes with every size except that along `axis` replaced by the largest of all."""
    largest = b.reduce_max(b.concat([b.reshape(shape, [1, -1]) for shape in shapes], 0), 0)
    if axis == -1:
        return [b.concat([largest[:-1], s[-1:], []], 0) for s in shapes]
    return [b.concat([largest[:axis], s[axis : axis + 1], largest[axis + 1 :]], 0) for s in shapes]


def _split_infer(
    c: InferenceContext,
    dim: TensorShape,
    indices: TensorShape,
    values: TensorShape,
    shape: TensorShape,
) -> list[Any]:
    count, rank = c.attrs["num_split"], shape.num_elements()
    return [(None, rank)] * count + [(None,)] * count + [shape] * count


@define(
    "SparseSplit",
    "split_dim: int64, indices: int64, values: T, shape: int64 "
    "-> output_indices: num_split*int64, output_values: num_split*T, output_shape: num_split*int64",
    "num_split: int >= 1; T: type",
    infer=_split_infer,
    kernel=kernels.sparse_split,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(1, *_A, num_split=2), Sample(0, *_A, num_split=1)],
)
def sparse_split_op(split_dim, indices, values, shape, num_split, name=None):
    """Split a sparse tensor along a dimension."""


@composed
@export("sparse.split", "sparse_split")
def sparse_split(
    keyword_required: Any = None,
    sp_input: Any = None,
    num_split: int | None = None,
    axis: Any = None,
    name: str | None = None,
    split_dim: Any = None,
) -> list[SparseTensor]:
    """Split a sparse tensor along `axis` into `num_split` pieces; keyword arguments only."""
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    if sp_input is None:
        raise ValueError("sp_input is required")
    if num_split is None:
        raise ValueError("num_split is required")
    axis = renamed_argument("axis", axis, "split_dim", split_dim)
    if axis is None:
        raise ValueError("axis is required")
    sp = as_sparse(sp_input)
    pieces = sparse_split_op(axis, *sp.components(), num_split=num_split, name=name)
    return [SparseTensor(*piece) for piece in zip(*pieces, strict=True)]


def _slice_infer(
    c: InferenceContext,
    indices: TensorShape,
    values: TensorShape,
    shape: TensorShape,
    start: TensorShape,
    size: TensorShape,
) -> list[Any]:
    return [(None, shape.num_elements()), (None,), shape]


def _slice_gradient(b: OpBuilder, op: Any, _: Any, grad: Tensor, __: Any) -> Any:
    d_values = b.sparse_slice_grad(grad, op.inputs[0], op.inputs[3], op.outputs[0])
    return None, d_values, None, None, None


@define(
    "SparseSlice",
    "indices: int64, values: T, shape: int64, start: int64, size: int64 "
    "-> output_indices: int64, output_values: T, output_shape: int64",
    "T: type",
    infer=_slice_infer,
    kernel=kernels.sparse_slice,
    gradient=_slice_gradient,
    samples=[
        Sample(*_A, [0, 1], [2, 5]),
        Sample(*_A, [1, 0], [1, 1]),
        Sample(*_NOTHING, [0, 0], [1, 1]),
    ],
)
def sparse_slice_op(indices, values, shape, start, size, name=None):
    """Cut a box out of a sparse tensor."""


@define(
    "SparseSliceGrad",
    "backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64 "
    "-> val_grad: T",
    "T: {numbers}",
    infer=lambda c, grad, indices, start, out: indices.with_rank(2)[:1],
    kernel=kernels.sparse_slice_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(2), [[0, 0], [0, 2], [1, 1]], [0, 1], [[0, 1], [1, 0]])],
)
def sparse_slice_grad(backprop_val_grad, input_indices, input_start, output_indices, name=None):
    """Return the gradient of the values of SparseSlice's input."""


@composed
@export("sparse.slice", "sparse_slice")
def sparse_slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """Return the box of `size` (truncated at the tensor's end) whose first corner is `start`."""
    sp = as_sparse(sp_input)
    first = convert_to_tensor(start, dtypes.int64)
    extent = convert_to_tensor(size, dtypes.int64)
    with name_scope(name, "SparseSlice", [sp]) as scope:
        return SparseTensor(*sparse_slice_op(*sp.components(), first, extent, name=scope))


@composed
@export("sparse.retain", "sparse_retain")
def sparse_retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Return the elements of a sparse tensor for which the bool vector `to_retain` is true."""
    sp = as_sparse(sp_input)
    kept = convert_to_tensor(to_retain)
    kept.shape.assert_has_rank(1)
    kept.shape.merge_with(sp.values.shape)
    where = b.reshape(b.where(kept), [-1])
    indices = b.gather(sp.indices, where)
    return SparseTensor(indices, b.gather(sp.values, where), b.identity(sp.dense_shape))


# -- Filling


def _fill_infer(
    c: InferenceContext,
    indices: TensorShape,
    values: TensorShape,
    shape: TensorShape,
    default: TensorShape,
) -> list[Any]:
    count, _ = check_sparse(indices, values, shape)
    default.with_rank(0)
    sizes = c.shape_from(2).sizes
    rank = shape.with_rank(1).as_list()[0]
    return [(None, rank), (None,), (sizes[0] if sizes else None,), (count,)]


def _fill_gradient(b: OpBuilder, op: Any, _: Any, grad: Tensor, *__: Any) -> Any:
    d_values, d_default = b.sparse_fill_empty_rows_grad(op.outputs[3], grad)
    return None, d_values, None, d_default


@define(
    "SparseFillEmptyRows",
    "indices: int64, values: T, dense_shape: int64, default_value: T -> output_indices: int64, "
    "output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    "T: type",
    infer=_fill_infer,
    kernel=kernels.sparse_fill_empty_rows,
    gradient=_fill_gradient,
    samples=[
        Sample([[0, 1], [3, 0], [3, 2]], r(3), [5, 3], r()),
        Sample([[3, 0], [0, 1], [3, 2]], r(3), [4, 3], r()),
        Sample(*_NOTHING, r()),
    ],
)
def sparse_fill_empty_rows_op(indices, values, dense_shape, default_value, name=None):
    """Give every row of a sparse tensor at least one element."""


def _fill_grad_gradient(b: OpBuilder, op: Any, d_values: Tensor, d_default: Tensor) -> Any:
    places, grad = op.inputs
    size = b.shape(grad, out_type=dtypes.int64)
    rows = b.expand_dims(places, 1)
    taken = b.scatter_nd(rows, b.ones_like(d_values), size)
    spread = b.scatter_nd(rows, d_values, size) + d_default * (b.ones_like(grad) - taken)
    return None, spread


@define(
    "SparseFillEmptyRowsGrad",
    "reverse_index_map: int64, grad_values: T -> d_values: T, d_default_value: T",
    "T: type",
    infer=lambda c, places, grad: [places.with_rank(1), ()],
    kernel=kernels.sparse_fill_empty_rows_grad,
    gradient=_fill_grad_gradient,
    samples=[Sample([2, 0], r(4), T=t) for t in ("float32", "float64", "int32", "float16")],
)
def sparse_fill_empty_rows_grad(reverse_index_map, grad_values, name=None):
    """Return the gradients of the values and of the default of SparseFillEmptyRows."""


@composed
@export("sparse.fill_empty_rows", "sparse_fill_empty_rows")
def sparse_fill_empty_rows(
    sp_input: Any, default_value: Any, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """Return a sparse tensor with a default in each empty row, and which rows were empty."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [sp]):
        default = convert_to_tensor(default_value, sp.values.dtype)
        indices, values, empty, _ = sparse_fill_empty_rows_op(*sp.components(), default)
        return SparseTensor(indices, values, sp.dense_shape), empty
