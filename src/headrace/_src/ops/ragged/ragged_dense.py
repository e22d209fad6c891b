"""Ragged tensors from and to dense and sparse ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

if TYPE_CHECKING:
    from headrace._src.ops.ragged.ragged_tensor import RaggedTensor

__all__ = ["bounding_shape", "from_sparse", "from_tensor", "to_tensor"]


def from_tensor(
    kind: type[RaggedTensor],
    tensor: Any,
    lengths: Any,
    padding: Any,
    ragged_rank: int,
    name: str | None,
    splits_dtype: DType,
) -> RaggedTensor:
    """See RaggedTensor.from_tensor."""
    if splits_dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError("row_splits_dtype must be int32 or int64")
    if lengths is not None and padding is not None:
        raise ValueError("Specify lengths or padding, but not both")
    if not isinstance(ragged_rank, int):
        raise TypeError(f"ragged_rank expected int, got {ragged_rank!r}")
    if ragged_rank <= 0:
        raise ValueError(f"ragged_rank must be greater than 0; got {ragged_rank}")
    with name_scope(name, "RaggedFromTensor", [tensor, padding]):
        dense = convert_to_tensor(tensor, name="tensor")
        dense.shape.with_rank_at_least(ragged_rank + 1)
        sizes = b.shape(dense, out_type=splits_dtype)
        columns = sizes[1]
        if isinstance(lengths, list | tuple) and lengths and isinstance(lengths[0], list | tuple):
            return _with_nested_lengths(kind, dense, lengths, columns, splits_dtype)
        if ragged_rank > 1:
            return _with_uniform_dimension(kind, dense, sizes, lengths, padding, ragged_rank)
        if padding is not None:
            lengths = _unpadded_lengths(dense, padding, columns)
        if lengths is None:
            rows = sizes[0]
            count = rows * columns
            splits = b.range(rows + 1) * columns
            values = b.reshape(dense, b.concat([[count], sizes[2:]], axis=0))
            return kind.from_row_splits(values, splits, validate=False)
        lengths = convert_to_tensor(lengths, dtype_hint=splits_dtype, name="lengths")
        lengths.shape.assert_has_rank(1)
        lengths.set_shape([None])
        lengths = b.cast_op(lengths, DstT=splits_dtype)
        lengths = b.maximum(b.minimum(lengths, columns), 0)
        limits = b.cumsum(lengths)
        splits = b.concat([b.zeros([1], splits_dtype), limits], axis=0)
        values = b.boolean_mask(dense, b.sequence_mask(lengths, maxlen=columns))
        return kind.from_row_splits(values, splits, validate=False)


def _with_uniform_dimension(
    kind: type[RaggedTensor], dense: Tensor, sizes: Tensor, lengths: Any, padding: Any, depth: int
) -> RaggedTensor:
    """Return rows of one length; the dimensions inside them may be cut."""
    joined = b.concat([b.constant([-1], sizes.dtype.base_dtype), sizes[2:]], axis=0)
    inner = b.reshape(dense, joined)
    dtype = sizes.dtype.base_dtype
    values = kind.from_tensor(inner, lengths, padding, depth - 1, row_splits_dtype=dtype)
    splits = b.range(sizes[0] + 1) * sizes[1]
    return kind.from_row_splits(values, splits, validate=False)


def _unpadded_lengths(dense: Tensor, padding: Any, columns: Tensor) -> Tensor:
    """Return the length of each row without the padding at its end."""
    blank = convert_to_tensor(padding, dense.dtype.base_dtype, "padding")
    blank.shape.assert_is_compatible_with(dense.shape[2:])
    equal = b.equal(blank, dense)
    if dense.shape.ndims is None:
        shape = b.concat([b.shape(dense)[:2], [-1]], axis=0)
        equal = b.reduce_all(b.reshape(equal, shape), axis=2)
    elif dense.shape.ndims > 2:
        equal = b.reduce_all(equal, axis=list(range(2, dense.shape.ndims)))
    filled = b.cast(b.logical_not(equal), columns.dtype.base_dtype)
    places = b.expand_dims(b.range(1, columns + 1), 0)
    return b.maximum(b.reduce_max(filled * places, axis=1), 0)


def _with_nested_lengths(
    kind: type[RaggedTensor], dense: Tensor, lengths: Any, columns: Tensor, splits_dtype: DType
) -> RaggedTensor:
    """Cut several dimensions, one after the other: each length belongs to a row that was kept."""
    given = [
        convert_to_tensor(rows, splits_dtype, f"lengths_{i}") for i, rows in enumerate(lengths)
    ]
    dense.shape.with_rank_at_least(len(given) + 1)
    values, nested = dense, []
    for rows in given:
        width = b.shape(values, out_type=splits_dtype)[1]
        rows = b.maximum(b.minimum(rows, width), 0)
        values = b.boolean_mask(values, b.sequence_mask(rows, maxlen=width))
        nested.append(rows)
    return kind.from_nested_row_lengths(values, nested, validate=False)


def from_sparse(
    kind: type[RaggedTensor], sparse: SparseTensor, name: str | None, splits_dtype: DType
) -> RaggedTensor:
    """See RaggedTensor.from_sparse."""
    if splits_dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError("row_splits_dtype must be int32 or int64")
    if not isinstance(sparse, SparseTensor):
        raise TypeError(f"Expected SparseTensor, got {type(sparse).__name__}")
    with name_scope(name, "RaggedFromSparse", sparse.components()):
        known = (sparse.dense_shape.shape[0].value, sparse.indices.shape.with_rank(2)[1].value)
        if 2 not in known or set(known) - {2, None}:
            raise ValueError("rank(st_input) must be 2")
        rows, columns = sparse.indices[:, 0], sparse.indices[:, 1]
        new = b.not_equal(rows[1:], rows[:-1])
        follows = b.where(new, b.equal(columns[1:], 0), b.equal(columns[1:], columns[:-1] + 1))
        fits = b.logical_and(b.reduce_all(b.equal(columns[:1], 0)), b.reduce_all(follows))
        message = ["SparseTensor is not right-ragged", "SparseTensor.indices =", sparse.indices]
        with _after(b.Assert(fits, message)):
            ids = b.cast_op(rows, DstT=splits_dtype)
            count = b.cast_op(sparse.dense_shape[0], DstT=splits_dtype)
        return kind.from_value_rowids(sparse.values, ids, nrows=count, validate=False)


def _after(op: Any) -> Any:
    return op.graph.control_dependencies([op])


def bounding_shape(rt: RaggedTensor, axis: Any, name: str | None, out_type: Any) -> Tensor:
    """See RaggedTensor.bounding_shape."""
    dtype = rt.row_splits.dtype.base_dtype if out_type is None else as_dtype(out_type)
    with name_scope(name, "RaggedBoundingBox", [*rt.components(), axis]):
        if isinstance(axis, int) and axis in (0, 1):
            if axis == 0:
                return b.shape(rt.row_splits, out_type=dtype)[0] - 1
            return b.maximum(b.cast(b.reduce_max(rt.row_lengths()), dtype), 0)
        splits_shape = b.shape(rt.row_splits, out_type=dtype)
        inner_shape = b.shape(rt.flat_values, out_type=dtype)
        sizes = [splits_shape[0] - 1]
        for splits in rt.nested_row_splits:
            sizes.append(b.maximum(b.cast(b.reduce_max(splits[1:] - splits[:-1]), dtype), 0))
        box = b.concat([b.stack(sizes), inner_shape[1:]], axis=0)
        return box if axis is None else b.gather(box, axis)


def to_tensor(rt: RaggedTensor, default_value: Any, name: str | None) -> Tensor:
    """See RaggedTensor.to_tensor."""
    with name_scope(name, "RaggedToTensor", [*rt.components(), default_value]):
        default: Any = None
        if default_value is not None:
            default = convert_to_tensor(default_value, rt.dtype.base_dtype, "default_value")
            default.shape.with_rank_at_most(max((rt.flat_values.shape.ndims or 99) - 1, 0))
            inner = rt.flat_values.shape[1:]
            if default.shape.ndims:
                inner.assert_is_compatible_with(default.shape)
            default = b.broadcast_to(default, b.shape(rt.flat_values)[1:])
        return _padded(rt, default)


def _padded(rt: RaggedTensor, default: Any) -> Tensor:
    """Gather the values of each row, and then a default value that was added behind all others."""
    values = rt.values
    if hasattr(values, "row_splits"):
        values = _padded(values, default)
        if default is not None:
            default = b.broadcast_to(default, b.shape(values)[1:])
    splits = rt.row_splits
    lengths = splits[1:] - splits[:-1]
    kind = splits.dtype.base_dtype
    rows = b.shape(splits, out_type=kind)[0] - 1
    longest = b.maximum(b.reduce_max(lengths), 0)
    shape = b.shape(values, out_type=kind)
    if default is None:
        default = b.zeros(shape[1:], values.dtype.base_dtype)
    nvals = shape[0]
    starts, limits = b.expand_dims(splits[:-1], 1), b.expand_dims(splits[1:], 1)
    places = starts + b.expand_dims(b.range(longest), 0)
    outside = b.fill(b.stack([rows, longest]), nvals)
    places = b.where(b.less(places, limits), places, outside)
    return b.gather(b.concat([values, b.stack([default])], axis=0), places)
