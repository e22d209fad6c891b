"""Sparse tensors: construction, and conversion from and to dense ones. In: SparseTensors (or their
values), dense tensors. Out: the other kind.

The other sparse families share `as_sparse`, `known_shape` and the shape rules here.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, all_known
from headrace._src.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from headrace._src.graph.definition import Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.sparse import sparse_kernels

__all__ = [
    "as_sparse",
    "check_sparse",
    "dense_to_sparse",
    "known_shape",
    "sparse_eye",
    "sparse_mask",
    "sparse_merge",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
    "sparse_to_indicator",
]


def as_sparse(value: Any) -> SparseTensor:
    """Return `value` as a SparseTensor; TypeError if it is neither one nor the value of one."""
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        raise TypeError("Input must be a SparseTensor.")
    return value


def check_sparse(
    indices: TensorShape, values: TensorShape, shape: TensorShape
) -> tuple[int | None, int | None]:
    """Return (number of elements, number of dimensions) of a sparse tensor, as far as known."""
    count, rank = indices.with_rank(2).as_list()
    counts = TensorShape((count,)).merge_with(values.with_rank(1))
    ranks = TensorShape((rank,)).merge_with(shape.with_rank(1))
    return counts.as_list()[0], ranks.as_list()[0]


def known_shape(sp: SparseTensor) -> list[int] | None:
    """Return the dense shape, if it is fully known."""
    sizes = sp.shape.sizes
    return None if sizes is None else all_known(sizes)


# -- Dense from sparse


def _to_dense_infer(
    c: InferenceContext,
    indices: TensorShape,
    shape: TensorShape,
    values: TensorShape,
    default: TensorShape,
) -> TensorShape:
    return c.shape_from(1)


@counted(lambda op, grad: 8 if op.inputs[0].shape.ndims is not None else 14)
def _to_dense_gradient(b: OpBuilder, op: Any, grad: Tensor) -> Any:
    indices, _, values, _ = op.inputs
    rows = b.reshape(indices, [-1, 1]) if indices.shape.ndims != 2 else indices
    taken = b.gather_nd(grad, rows)
    rest = b.subtract(b.reduce_sum(grad), b.reduce_sum(taken))
    if values.shape.ndims == 0:
        taken = b.reduce_sum(taken)
    return None, None, taken, rest


@export("sparse_to_dense")
@define(
    "SparseToDense",
    "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T "
    "-> dense: T",
    "validate_indices: bool = True; T: type; Tindices: {index}",
    infer=_to_dense_infer,
    kernel=sparse_kernels.sparse_to_dense,
    gradient=_to_dense_gradient,
    samples=[
        Sample([[0, 1], [1, 0]], [2, 3], r(2), r()),
        Sample([1, 3], [5], r(), r()),
        Sample([[3], [1]], [5], r(2), r(), validate_indices=False),
    ],
)
def sparse_to_dense(
    sparse_indices,
    output_shape,
    sparse_values,
    default_value=0,
    validate_indices=True,
    name=None,
):
    """Return a dense tensor of `default_value` with values at some indices.

    sparse_indices: a row of coordinates per value (or a vector, for a vector). output_shape: the
    shape of the result. sparse_values: one value per index, or one for all.
    """


@composed
@export("sparse.to_dense", "sparse_tensor_to_dense")
def sparse_tensor_to_dense(
    sp_input: Any,
    default_value: Any = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """Return a sparse tensor as a dense one.

    default_value: the elements that sp_input lacks; zero or the empty string if None.
    """
    sp = as_sparse(sp_input)
    if default_value is None:
        default_value = b.zeros([], dtype=sp.dtype)
    return sparse_to_dense(
        sp.indices,
        sp.dense_shape,
        sp.values,
        default_value,
        validate_indices=validate_indices,
        name=name,
    )


# -- Sparse from dense


@composed
@export("sparse.from_dense")
def dense_to_sparse(tensor: Any, name: str | None = None) -> SparseTensor:
    """Return the elements of a dense tensor that aren't zero as a sparse one."""
    with name_scope(name, "dense_to_sparse"):
        dense = convert_to_tensor(tensor)
        indices = b.where_v2(b.not_equal(dense, b.constant(0, dense.dtype)))
        return SparseTensor(
            indices, b.gather_nd(dense, indices), b.shape(dense, out_type=dtypes.int64)
        )


@composed
@export("sparse.eye")
def sparse_eye(
    num_rows: Any,
    num_columns: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> SparseTensor:
    """Return a sparse matrix with ones on its diagonal."""
    with name_scope(name, "eye", [num_rows, num_columns]):
        rows = convert_to_tensor(num_rows, dtypes.int64, "num_rows")
        columns = rows
        if num_columns is not None:
            columns = convert_to_tensor(num_columns, dtypes.int64, "num_columns")
        size = b.minimum(rows, columns)
        diagonal = b.range(size, dtype=dtypes.int64)
        indices = b.stack([diagonal, diagonal], axis=1)
        return SparseTensor(indices, b.ones(size, dtype=dtype), [rows, columns])


# -- Values as indices


@composed
@export("sparse.merge", "sparse_merge")
def sparse_merge(
    sp_ids: Any,
    sp_values: Any,
    vocab_size: Any,
    name: str | None = None,
    already_sorted: bool = False,
) -> SparseTensor:
    """Return `sp_values` with the last coordinate replaced by the values of `sp_ids`.

    vocab_size: the size of the last dimension. already_sorted: whether the result is in order and
    needn't be sorted.
    """
    if isinstance(sp_ids, SparseTensorValue | SparseTensor):
        sp_ids = [sp_ids]
        if isinstance(vocab_size, list | tuple):
            raise TypeError(
                f"vocab_size has to be a Tensor or Python int. Found {type(vocab_size)}"
            )
        vocab_size = [vocab_size]
    elif not isinstance(sp_ids, list | tuple):
        raise TypeError(f"sp_ids has to be a SparseTensor or list thereof. Found {type(sp_ids)}")
    elif not isinstance(vocab_size, list | tuple):
        raise TypeError(
            f"vocab_size has to be a list of Tensors or Python ints. Found {vocab_size}"
        )
    if len(sp_ids) != len(vocab_size):
        raise ValueError("sp_ids and vocab_size have to have equal lengths.")
    with name_scope(name, "SparseMerge", [v for v in (*sp_ids, sp_values) if v is not None]):
        ids = [as_sparse(sp) for sp in sp_ids]
        values = as_sparse(sp_values)
        columns = []
        for sp in ids:
            column = sp.values
            if column.dtype.base_dtype is not dtypes.int64:
                column = b.cast(column, dtypes.int64)
            columns.append(b.expand_dims(column, axis=1))
        sizes = [b.cast(n, dtypes.int64) for n in vocab_size]
        first = ids[0]
        indices = b.concat([first.indices[:, :-1], *columns], 1)
        shape = b.concat([first.dense_shape[:-1], sizes], 0)
        merged = SparseTensor(indices, values.values, shape)
        if already_sorted:
            return merged
        ordered = b.sparse_reorder(merged)
        return SparseTensor(ordered.indices, ordered.values, shape)


@composed
@export("sparse.to_indicator", "sparse_to_indicator")
def sparse_to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Tensor:
    """Return a dense bool tensor that is true at the values of `sp_input` along its last axis.

    vocab_size: the size of the last axis.
    """
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseToIndicator", [sp]) as scope:
        count = b.shape(sp.indices)[0]
        ones = b.fill(b.expand_dims(count, 0), True)
        merged = sparse_merge(
            sp, SparseTensor(sp.indices, ones, sp.dense_shape), vocab_size, name=scope
        )
        # An id may occur twice in one row.
        return sparse_tensor_to_dense(
            merged, default_value=False, validate_indices=False, name=scope
        )


@composed
@export("sparse.mask", "sparse_mask")
def sparse_mask(a: Any, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """Return the slices of `a` whose indices aren't in `mask_indices`."""
    with name_scope(name, "sparse_mask", [a, mask_indices]) as scope:
        indices, places = b.setdiff1d(a.indices, mask_indices)
        return IndexedSlices(b.gather(a.values, places, name=scope), indices, a.dense_shape)
