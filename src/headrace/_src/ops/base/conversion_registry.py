"""Conversions to tensors that need ops: lists that contain tensors, IndexedSlices, shapes.

Importing the module registers them with tf.convert_to_tensor. Nodes and names match TensorFlow's.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Dimension, TensorShape
from headrace._src.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import to_tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import (
    convert_to_tensor,
    name_scope,
    register_tensor_conversion_function,
)

__all__ = [
    "convert_to_tensor_or_indexed_slices",
    "convert_to_tensor_or_sparse_tensor",
    "get_static_value",
    "is_tensor",
]


def _is_dense(value: Any) -> bool:
    """Tensors, and variables, which convert to one."""
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


# -- Lists that contain tensors --------------------------------------------------------------------


def _dtype_within(values: Any) -> DType | None:
    """Return the dtype of the first tensor within nested lists, or None if there is none."""
    for value in values:
        if _is_dense(value):
            return value.dtype.base_dtype
        if isinstance(value, list | tuple):
            found = _dtype_within(value)
            if found is not None:
                return found
    return None


def _pack_list(
    values: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False
) -> Any:
    found = _dtype_within(values)
    if found is None:
        return NotImplemented
    if dtype is not None and dtype.base_dtype is not found:
        values = _cast_within(values, dtype.base_dtype)
        found = dtype.base_dtype
    return _pack_nested(values, found, name or "packed")


def _cast_within(values: Any, dtype: DType) -> Any:
    if isinstance(values, list | tuple):
        return [_cast_within(v, dtype) for v in values]
    return b.cast(values, dtype) if _is_dense(values) else values


def _pack_nested(values: Any, dtype: DType, name: str) -> Any:
    """Pack nested lists from the inside out; a list without tensors stays one, a constant later."""
    with name_scope(name) as scope:
        elements = []
        for i, value in enumerate(values):
            if _is_dense(value):
                if value.dtype.base_dtype is not dtype:
                    raise TypeError(
                        f"Cannot convert a list containing a tensor of dtype {value.dtype!r} to "
                        f"{dtype!r} (Tensor is: {value!r})"
                    )
            elif isinstance(value, list | tuple):
                value = _pack_nested(value, dtype, str(i))
            elements.append(value)
        if not any(map(_is_dense, elements)):
            return elements
        tensors = [
            v if _is_dense(v) else to_tensor.constant(v, dtype, name=str(i))
            for i, v in enumerate(elements)
        ]
        return b.pack(tensors, name=scope)


register_tensor_conversion_function((list, tuple), _pack_list, 99)


# -- Shapes ----------------------------------------------------------------------------------------


def _shape_to_tensor(
    shape: TensorShape, dtype: Any = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if not shape.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {shape}")
    return _sizes_to_tensor(shape.as_list(), dtype, name)


def _dimension_to_tensor(
    size: Dimension, dtype: Any = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if size.value is None:
        raise ValueError(f"Cannot convert an unknown Dimension to a Tensor: {size}")
    return _sizes_to_tensor(size.value, dtype, name)


def _sizes_to_tensor(sizes: Any, dtype: Any, name: str | None) -> Tensor:
    largest = max(sizes, default=0) if isinstance(sizes, list) else sizes
    if dtype is None:
        dtype = dtypes.int32 if largest < 2**31 else dtypes.int64
    elif dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype: {dtype!r}")
    elif dtype is dtypes.int32 and largest >= 2**31:
        raise ValueError(
            f"Cannot convert a TensorShape to dtype int32; a dimension is too large ({largest})"
        )
    return to_tensor.constant(sizes, dtype, name=name or "shape_as_tensor")


register_tensor_conversion_function(TensorShape, _shape_to_tensor, 100)
register_tensor_conversion_function(Dimension, _dimension_to_tensor, 100)


# -- Composites ------------------------------------------------------------------------------------


def _rows_to_tensor(
    rows: IndexedSlices, dtype: Any = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if dtype is not None and rows.dtype.base_dtype is not dtype.base_dtype:
        raise ValueError(
            f"Tensor conversion requested dtype {dtype.name} for IndexedSlices with dtype "
            f"{rows.dtype.name}"
        )
    if rows.dense_shape is None:
        raise ValueError(
            "Tensor conversion requested for IndexedSlices without dense_shape: "
            f"{rows}. The number of rows isn't known."
        )
    count: Any = rows.dense_shape
    return b.unsorted_segment_sum(rows.values, rows.indices, count[0], name=name)


register_tensor_conversion_function(IndexedSlices, _rows_to_tensor, 100)
SparseTensor._convert = staticmethod(convert_to_tensor)


@composed
@export("convert_to_tensor_or_indexed_slices")
def convert_to_tensor_or_indexed_slices(
    value: Any, dtype: Any = None, name: str | None = None
) -> Any:
    """Return `value` as a tensor, except IndexedSlices, which are returned as they are."""
    if not isinstance(value, IndexedSlices):
        return convert_to_tensor(value, dtype, name=name)
    _check_dtype(value, dtype)
    return value


@composed
@export("convert_to_tensor_or_sparse_tensor")
def convert_to_tensor_or_sparse_tensor(
    value: Any, dtype: Any = None, name: str | None = None
) -> Any:
    """Return `value` as a SparseTensor if it is sparse, else as a tensor."""
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        return convert_to_tensor(value, dtype, name=name)
    _check_dtype(value, dtype)
    return value


def _check_dtype(value: Any, dtype: Any) -> None:
    if dtype is not None and as_dtype(dtype).base_dtype is not value.dtype.base_dtype:
        raise RuntimeError(
            f"{type(value).__name__} dtype requested: {as_dtype(dtype).name}, "
            f"actual: {value.dtype.name}"
        )


@export("is_tensor", "contrib.framework.is_tensor")
def is_tensor(x: Any) -> bool:
    """Whether ops accept `x` as a tensor: dense, sparse or a variable."""
    return _is_dense(x) or isinstance(x, SparseTensor | IndexedSlices)


@export("get_static_value", "contrib.util.constant_value")
def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """Return the value of a tensor if it follows from constants and static shapes, else None.

    A value that isn't a tensor is returned as it is; a variable's value is never known.

    partial: unknown elements of a stacked vector are None.
    """
    if isinstance(tensor, Tensor):
        return constant_value(tensor, partial)
    return None if is_tensor(tensor) else tensor
