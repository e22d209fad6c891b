"""Indexed lists of tensors: TensorFlow's form of TensorArrays in functional loops.

A list is a value (see ops.control.tensor_lists): setting an element gives another list, which
shares all other elements. An element that was reserved but never set is zeros, if its shape is
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_rows
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define
from headrace._src.ops.control.tensor_lists import (
    Sizes,
    TensorList,
    as_list,
    carries,
    element_sizes,
    elements_behind,
    known,
    shape_of_elements,
    with_elements,
)

__all__: list[str] = []

_ANY = -1
_SHAPE_TYPES = "element_dtype: type; shape_type: {int32|int64}"


def _op(op_type: str, signature: str, attributes: str, **rules: Any) -> Any:
    """Define an op on lists, which live within one step and are never constants."""
    return define(op_type, signature, attributes, effect=Effect.LOCAL, **rules)


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def _shape_of_elements(c: Any, index: int) -> TensorShape:
    """Return the known element shape of the list at input 0, combined with the shape at input
    `index`.
    """
    return elements_behind(c).merge_with(shape_of_elements(c, index))


def _rows_of(count: int | None, element: TensorShape) -> TensorShape:
    return TensorShape(None if element.sizes is None else (count, *element.sizes))


def _check_index(index: int, length: int) -> None:
    if not 0 <= index < length:
        raise _invalid(
            f"Trying to access element {index} in a list with {length} elements: there is none"
        )


def _stacked(values: TensorList, elements: Sequence[Any], sizes: Sizes) -> np.ndarray:
    """Stack elements as the rows of one array; those that are set determine the shape of the
    others.
    """
    shape = TensorShape(values.sizes).merge_with(TensorShape(sizes))
    found = next((e for e in elements if e is not None), None)
    if found is not None:
        shape = shape.merge_with(TensorShape(np.shape(found)))
    if not shape.is_fully_defined():
        raise _invalid(
            "Tried to stack elements of an empty list with non-fully-defined element_shape: "
            f"{shape}"
        )
    rows = [np.asarray(values.value(e, shape.sizes), values.dtype.numpy) for e in elements]
    if any(row.shape != shape.sizes for row in rows):
        raise _invalid(f"a list's elements can't be stacked: not all of them have shape {shape}")
    return np.stack(rows) if rows else np.zeros((0, *known(shape.sizes)), values.dtype.numpy)


# -- Empty lists, and lists of a tensor's rows -----------------------------------------------------


def _reserve_kernel(element_shape, num_elements, *, element_dtype):
    if num_elements < 0:
        raise _invalid(f"The num_elements to reserve must be non negative, but got {num_elements}")
    check_rows(num_elements, "num_elements")
    return TensorList(element_dtype, element_sizes(element_shape), base=[None] * int(num_elements))


@_op(
    "TensorListReserve",
    "element_shape: shape_type, num_elements: int32 -> handle: variant",
    _SHAPE_TYPES,
    infer=with_elements(lambda c, *_: shape_of_elements(c, 0)),
    kernel=_reserve_kernel,
    gradient=NOT_DIFFERENTIABLE,
)
def tensor_list_reserve(element_shape, num_elements, element_dtype, name=None):
    """Return a list of elements that are not set yet."""


def _from_tensor_kernel(tensor, element_shape, *, element_dtype):
    if not np.ndim(tensor):
        raise _invalid("Tensor must be at least a vector, but saw shape: []")
    return TensorList(element_dtype, element_sizes(element_shape), base=list(tensor))


def _from_tensor_gradient(b: OpBuilder, op: Any, rows: Any) -> list[Any]:
    tensor = op.inputs[0]
    if not carries(tensor.dtype.base_dtype):
        return [None, None]
    shape = b.shape(tensor)[1:]
    return [b.tensor_list_stack(rows, shape, tensor.dtype.base_dtype), None]


@_op(
    "TensorListFromTensor",
    "tensor: element_dtype, element_shape: shape_type -> output_handle: variant",
    _SHAPE_TYPES,
    infer=with_elements(lambda c, x, _: x[1:].merge_with(shape_of_elements(c, 1))),
    kernel=_from_tensor_kernel,
    gradient=_from_tensor_gradient,
)
def tensor_list_from_tensor(tensor, element_shape, name=None):
    """Return the list of a tensor's rows."""


def _stack_kernel(input_handle, element_shape, *, element_dtype, num_elements):
    values = as_list(input_handle, element_dtype)
    if num_elements not in (_ANY, values.length):
        raise _invalid(
            f"Operation expected a list with {num_elements} elements but got a list with "
            f"{values.length} elements."
        )
    return _stacked(values, values.elements(), element_sizes(element_shape))


def _stack_infer(c: Any, values: TensorShape, shape: TensorShape) -> TensorShape:
    count = c.attrs["num_elements"]
    return _rows_of(None if count < 0 else count, _shape_of_elements(c, 1))


@_op(
    "TensorListStack",
    "input_handle: variant, element_shape: int32 -> tensor: element_dtype",
    "element_dtype: type; num_elements: int = -1",
    infer=_stack_infer,
    kernel=_stack_kernel,
    gradient=lambda b, op, dy: [b.tensor_list_from_tensor(dy, b.shape(dy)[1:]), None],
)
def tensor_list_stack(input_handle, element_shape, element_dtype, num_elements=-1, name=None):
    """Return a list's elements as the rows of one tensor."""


# -- One element -----------------------------------------------------------------------------------


def _get_kernel(input_handle, index, element_shape, *, element_dtype):
    values = as_list(input_handle, element_dtype)
    _check_index(int(index), values.length)
    return values.value(values[int(index)], element_sizes(element_shape))


def _get_gradient(b: OpBuilder, op: Any, gradient: Any) -> list[Any]:
    values, index = op.inputs[0], op.inputs[1]
    shape = b.tensor_list_element_shape(values, dtypes.int32)
    zeros = b.tensor_list_reserve(shape, b.tensor_list_length(values), gradient.dtype.base_dtype)
    return [b.tensor_list_set_item(zeros, index, gradient), None, None]


@_op(
    "TensorListGetItem",
    "input_handle: variant, index: int32, element_shape: int32 -> item: element_dtype",
    "element_dtype: type",
    infer=lambda c, values, index, shape: _shape_of_elements(c, 2),
    kernel=_get_kernel,
    gradient=_get_gradient,
)
def tensor_list_get_item(input_handle, index, element_shape, element_dtype, name=None):
    """Return one element of a list."""


def _set_kernel(input_handle, index, item, *, element_dtype):
    values = as_list(input_handle, element_dtype)
    _check_index(int(index), values.length)
    values.check_shape(np.shape(item))
    elements = values.elements()
    elements[int(index)] = item
    return TensorList(values.dtype, values.sizes, values.limit, elements)


def _set_gradient(b: OpBuilder, op: Any, rows: Any) -> list[Any]:
    index, item = op.inputs[1], op.inputs[2]
    if not carries(item.dtype.base_dtype):
        return [None, None, None]
    gradient = b.tensor_list_get_item(rows, index, b.shape(item), item.dtype.base_dtype)
    return [b.tensor_list_set_item(rows, index, b.zeros_like(item)), None, gradient]


@_op(
    "TensorListSetItem",
    "input_handle: variant, index: int32, item: element_dtype -> output_handle: variant",
    "element_dtype: type",
    infer=infer.scalar,
    kernel=_set_kernel,
    gradient=_set_gradient,
)
def tensor_list_set_item(input_handle, index, item, name=None):
    """Return the list with the element at `index` replaced."""


# -- Some elements ---------------------------------------------------------------------------------


def _gather_kernel(input_handle, indices, element_shape, *, element_dtype):
    values = as_list(input_handle, element_dtype)
    elements = values.elements()
    for index in indices.tolist():
        _check_index(index, values.length)
    return _stacked(values, [elements[i] for i in indices.tolist()], element_sizes(element_shape))


def _gather_gradient(b: OpBuilder, op: Any, gradient: Any) -> list[Any]:
    values, indices = op.inputs[0], op.inputs[1]
    shape = b.tensor_list_element_shape(values, dtypes.int32)
    count = b.tensor_list_length(values)
    return [b.tensor_list_scatter_v2(gradient, indices, shape, count), None, None]


@_op(
    "TensorListGather",
    "input_handle: variant, indices: int32, element_shape: int32 -> values: element_dtype",
    "element_dtype: type",
    infer=lambda c, values, indices, shape: _rows_of(
        indices.with_rank(1).sizes[0], _shape_of_elements(c, 2)
    ),
    kernel=_gather_kernel,
    gradient=_gather_gradient,
)
def tensor_list_gather(input_handle, indices, element_shape, element_dtype, name=None):
    """Return the elements at `indices` as the rows of one tensor."""


def _scattered(values: TensorList, tensor: Any, indices: np.ndarray) -> TensorList:
    """Return the list with a tensor's rows at `indices`; indices beyond its end extend it."""
    if len(tensor) != len(indices):
        raise _invalid(
            f"Invalid number of rows in input tensor. Expected: {len(indices)} Actual: "
            f"{len(tensor)}"
        )
    if len(indices) and int(indices.min()) < 0:
        raise _invalid("Indices in TensorListScatter must all be non-negative.")
    check_rows(max(indices.tolist(), default=-1) + 1, "the largest of indices")
    elements = values.elements()
    elements += [None] * (max(indices.tolist(), default=-1) + 1 - len(elements))
    for index, row in zip(indices.tolist(), tensor, strict=True):
        values.check_shape(np.shape(row))
        elements[index] = row
    return TensorList(values.dtype, values.sizes, values.limit, elements)


def _scatter_kernel(tensor, indices, element_shape, num_elements=_ANY, *, element_dtype):
    highest = max(indices.tolist(), default=-1)
    if num_elements != _ANY and highest >= num_elements:
        raise _invalid(
            f"TensorListScatter: Trying to scatter at index {highest} in list with size "
            f"{num_elements}"
        )
    count = max(int(num_elements), 0)
    check_rows(count, "num_elements")
    values = TensorList(element_dtype, element_sizes(element_shape), base=[None] * count)
    return _scattered(values, tensor, indices)


def _scatter_gradient(b: OpBuilder, op: Any, rows: Any) -> list[Any]:
    tensor, indices = op.inputs[0], op.inputs[1]
    if not carries(tensor.dtype.base_dtype):
        return [None] * len(op.inputs)
    found = b.tensor_list_gather(rows, indices, b.shape(tensor)[1:], tensor.dtype.base_dtype)
    return [found, *[None] * (len(op.inputs) - 1)]


@_op(
    "TensorListScatter",
    "tensor: element_dtype, indices: int32, element_shape: shape_type -> output_handle: variant",
    _SHAPE_TYPES,
    infer=infer.scalar,
    kernel=_scatter_kernel,
    gradient=_scatter_gradient,
)
def tensor_list_scatter(tensor, indices, element_shape, name=None):
    """Return a list with a tensor's rows at `indices`."""


@_op(
    "TensorListScatterV2",
    "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32 -> "
    "output_handle: variant",
    _SHAPE_TYPES,
    infer=infer.scalar,
    kernel=_scatter_kernel,
    gradient=_scatter_gradient,
)
def tensor_list_scatter_v2(tensor, indices, element_shape, num_elements, name=None):
    """Return a list of `num_elements` (-1: as many as needed) with a tensor's rows at `indices`."""


def _scatter_into_kernel(input_handle, tensor, indices, *, element_dtype):
    return _scattered(as_list(input_handle, element_dtype), tensor, indices)


def _scatter_into_gradient(b: OpBuilder, op: Any, rows: Any) -> list[Any]:
    tensor, indices = op.inputs[1], op.inputs[2]
    if not carries(tensor.dtype.base_dtype):
        return [None, None, None]
    found = b.tensor_list_gather(rows, indices, b.shape(tensor)[1:], tensor.dtype.base_dtype)
    zeros = b.zeros_like(tensor)
    return [b.tensor_list_scatter_into_existing_list(rows, zeros, indices), found, None]


@_op(
    "TensorListScatterIntoExistingList",
    "input_handle: variant, tensor: element_dtype, indices: int32 -> output_handle: variant",
    "element_dtype: type",
    infer=infer.scalar,
    kernel=_scatter_into_kernel,
    gradient=_scatter_into_gradient,
)
def tensor_list_scatter_into_existing_list(input_handle, tensor, indices, name=None):
    """Return the list with a tensor's rows at `indices`."""


# -- Pieces of different lengths -------------------------------------------------------------------


def _split_kernel(tensor, element_shape, lengths, *, element_dtype):
    if not np.ndim(tensor):
        raise _invalid("Tensor must be at least a vector, but saw shape: []")
    if np.ndim(lengths) != 1 or (lengths < 0).any() or int(lengths.sum()) != len(tensor):
        raise _invalid(
            f"lengths must be a vector of non-negative numbers that add up to the tensor's "
            f"{len(tensor)} rows, not {lengths}"
        )
    values = TensorList(element_dtype, element_sizes(element_shape))
    pieces = np.split(tensor, np.cumsum(lengths)[:-1]) if len(lengths) else []
    for piece in pieces:
        values.check_shape(piece.shape)
    return TensorList(element_dtype, values.sizes, base=pieces)


def _split_gradient(b: OpBuilder, op: Any, rows: Any) -> list[Any]:
    tensor, shape, lengths = op.inputs
    if not carries(tensor.dtype.base_dtype):
        return [None, None, None]
    found, _ = b.tensor_list_concat_v2(rows, shape, lengths, tensor.dtype.base_dtype)
    found.set_shape(tensor.shape)
    return [found, None, None]


@_op(
    "TensorListSplit",
    "tensor: element_dtype, element_shape: shape_type, lengths: int64 -> output_handle: variant",
    _SHAPE_TYPES,
    infer=infer.scalar,
    kernel=_split_kernel,
    gradient=_split_gradient,
)
def tensor_list_split(tensor, element_shape, lengths, name=None):
    """Split a tensor into pieces of these lengths; return the list of pieces."""


def _joined(values: TensorList, sizes: Sizes, lengths: Sequence[int]) -> list[np.ndarray]:
    """Concatenate a list's elements; return the result and their lengths. `lengths` are those of
    elements that aren't set.
    """
    shape = TensorShape(values.sizes).merge_with(TensorShape(sizes))
    tail = None if shape.sizes is None else shape.sizes[1:]
    found = [
        values.value(e, None if tail is None else (lengths[i] if i < len(lengths) else None, *tail))
        for i, e in enumerate(values.elements())
    ]
    if any(not np.ndim(e) for e in found):
        raise _invalid("Concat saw a scalar shape at an element but requires at least vectors.")
    if any(e.shape[1:] != found[0].shape[1:] for e in found):
        raise _invalid("Tried to concat tensors with unequal shapes: only their lengths may differ")
    counts = np.array([len(e) for e in found], np.int64)
    if found:
        return [np.concatenate(found), counts]
    if tail is None or None in tail:
        raise _invalid(
            "All except the first dimension must be fully defined when concating an empty tensor "
            f"list. element_shape: {shape}"
        )
    return [np.zeros((0, *known(tail)), values.dtype.numpy), counts]


def _concat_infer(element: TensorShape) -> list[TensorShape]:
    sizes = element.sizes
    return [TensorShape(sizes and (None, *sizes[1:])), TensorShape((None,))]


def _concat_gradient(b: OpBuilder, op: Any, gradient: Any, _: Any) -> list[Any]:
    shape = b.tensor_list_element_shape(op.inputs[0], dtypes.int32)
    rows = b.tensor_list_split(gradient, shape, op.outputs[1])
    return [rows, *[None] * (len(op.inputs) - 1)]


@_op(
    "TensorListConcat",
    "input_handle: variant -> tensor: element_dtype, lengths: int64",
    "element_dtype: type; element_shape: shape = <unknown>",
    infer=lambda c, values: _concat_infer(c.attrs["element_shape"]),
    kernel=lambda input_handle, *, element_dtype, element_shape: _joined(
        as_list(input_handle, element_dtype), element_shape.sizes, ()
    ),
    gradient=_concat_gradient,
)
def tensor_list_concat(input_handle, element_dtype, element_shape=None, name=None):
    """Return a list's elements concatenated along their first dimension, and their lengths."""


@_op(
    "TensorListConcatV2",
    "input_handle: variant, element_shape: shape_type, leading_dims: int64 -> "
    "tensor: element_dtype, lengths: int64",
    _SHAPE_TYPES,
    infer=lambda c, *_: _concat_infer(_shape_of_elements(c, 1)),
    kernel=lambda input_handle, element_shape, leading_dims, *, element_dtype: _joined(
        as_list(input_handle, element_dtype), element_sizes(element_shape), leading_dims.tolist()
    ),
    gradient=_concat_gradient,
)
def tensor_list_concat_v2(input_handle, element_shape, leading_dims, element_dtype, name=None):
    """Return a list's elements concatenated along their first dimension, and their lengths."""


# -- Properties of a list --------------------------------------------------------------------------


def _element_shape_infer(c: Any, values: TensorShape) -> Any:
    rank = elements_behind(c).rank
    return None if rank is None else (rank,)


def _element_shape_kernel(input_handle, *, shape_type: DType):
    sizes = as_list(input_handle).sizes
    if sizes is None:
        return np.asarray(_ANY, shape_type.numpy)
    return np.array([_ANY if n is None else n for n in sizes], shape_type.numpy)


@_op(
    "TensorListElementShape",
    "input_handle: variant -> element_shape: shape_type",
    "shape_type: {int32|int64}",
    infer=_element_shape_infer,
    kernel=_element_shape_kernel,
    gradient=NOT_DIFFERENTIABLE,
)
def tensor_list_element_shape(input_handle, shape_type, name=None):
    """Return the shape of a list's elements, -1 where it isn't known."""


def _resize_kernel(input_handle, size):
    values = as_list(input_handle)
    if size < 0:
        raise _invalid(f"TensorListSlice expects size to be non-negative. Got: {size}")
    check_rows(size, "size")
    elements = values.elements()[: int(size)]
    elements += [None] * (int(size) - len(elements))
    return TensorList(values.dtype, values.sizes, values.limit, elements)


@_op(
    "TensorListResize",
    "input_handle: variant, size: int32 -> output_handle: variant",
    "",
    infer=infer.scalar,
    kernel=_resize_kernel,
    gradient=lambda b, op, rows: [
        b.tensor_list_resize(rows, b.tensor_list_length(op.inputs[0])),
        None,
    ],
)
def tensor_list_resize(input_handle, size, name=None):
    """Return the list resized to `size` elements; new ones are not set yet."""
