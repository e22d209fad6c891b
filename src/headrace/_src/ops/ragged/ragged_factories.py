"""tf.ragged: constants, placeholders, ranges, and functions on flat values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import as_array, constant, convert_to_tensor, name_scope
from headrace._src.ops.ragged.ragged_conversion import match_row_splits_dtypes
from headrace._src.ops.ragged.ragged_ops import ragged_range_op
from headrace._src.ops.ragged.ragged_rows import assert_splits_match
from headrace._src.ops.ragged.ragged_splits import is_index_type
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor
from headrace._src.ops.ragged.ragged_value import RaggedTensorValue

__all__ = ["map_flat_values", "ragged_constant", "ragged_constant_value", "ragged_placeholder"]


# -- Constants -------------------------------------------------------------------------------------


@composed
@export("ragged.constant")
def ragged_constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> Any:
    """Return nested lists as a constant RaggedTensor, or a tensor if no dimension is ragged.

    ragged_rank: the number of ragged dimensions, by default all but the first. inner_shape: the
    shape of the elements.
    """
    splits_dtype = as_dtype(row_splits_dtype)
    if not is_index_type(splits_dtype):
        raise ValueError("row_splits must have dtype int32 or int64")

    def values(items: Any, shape: Any) -> Tensor:
        array = as_array(items, None if dtype is None else as_dtype(dtype))
        if shape is not None and array.size != math.prod(shape):
            raise TypeError(f"Expected Tensor's shape: {shape}, got {array.shape}.")
        return constant(array, dtype, shape, "values" if depth else "Const")

    with name_scope(name, "RaggedConstant"):
        depth, inner = _depths(pylist, ragged_rank, inner_shape)
        return _nested(
            pylist,
            depth,
            inner,
            values,
            lambda v, s: RaggedTensor.from_row_splits(v, constant(s, splits_dtype), validate=False),
        )


@composed
@export("ragged.constant_value")
def ragged_constant_value(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    row_splits_dtype: Any = "int64",
) -> Any:
    """Return nested lists as a RaggedTensorValue, or an array if no dimension is ragged."""
    splits_dtype = as_dtype(row_splits_dtype)
    if not is_index_type(splits_dtype):
        raise ValueError("row_splits_dtype must be int32 or int64")
    kind = dtype.numpy if isinstance(dtype, dtypes.DType) else dtype

    def values(items: Any, shape: Any) -> np.ndarray:
        array = np.array(items, kind)
        if array.dtype.kind == "U":
            array = np.array([s.encode() for s in array.ravel()], object).reshape(array.shape)
        return array if shape is None else array.reshape(shape)

    depth, inner = _depths(pylist, ragged_rank, inner_shape)
    return _nested(
        pylist,
        depth,
        inner,
        values,
        lambda v, s: RaggedTensorValue(v, np.array(s, splits_dtype.numpy)),
    )


def _is_list(item: Any) -> bool:
    return isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _nesting(item: Any) -> tuple[int | None, int]:
    """Return how deep scalars are nested (None if there are none) and how deep lists are."""
    if not _is_list(item):
        return 0, 0
    inner = [_nesting(v) for v in item]
    found = {scalars for scalars, _ in inner if scalars is not None}
    if len(found) > 1:
        raise ValueError("all scalar values must have the same nesting depth")
    scalars = found.pop() + 1 if found else None
    return scalars, max((lists for _, lists in inner), default=0) + 1


def _depths(
    pylist: Any, ragged_rank: int | None, inner_shape: Any
) -> tuple[int, tuple[int, ...] | None]:
    """Return the number of ragged dimensions and the shape inside them, None for any."""
    inner: Any = None if inner_shape is None else tuple(TensorShape(inner_shape).as_list())
    if ragged_rank is not None and ragged_rank < 0:
        raise ValueError(f"Invalid ragged_rank: {ragged_rank}")
    scalars, lists = _nesting(pylist)
    if scalars is not None and lists > scalars:
        raise ValueError(
            f"Invalid pylist={pylist}: empty list nesting is greater than scalar value nesting"
        )
    if ragged_rank is None:
        depth = lists if scalars is None else scalars
        return max(depth - 1 - len(inner or ()), 0), inner
    if ragged_rank and scalars is not None and ragged_rank >= scalars:
        raise ValueError(
            f"pylist has scalar values depth {scalars}, but ragged_rank={ragged_rank} requires "
            f"scalar value depth greater than {ragged_rank}"
        )
    if inner is None and ragged_rank:
        first = next(_at_depth(pylist, ragged_rank + 1), None)
        inner = () if first is None else np.shape(np.array(first, object))
    return ragged_rank, inner


def _at_depth(item: Any, depth: int) -> Iterator[Any]:
    """Yield the elements that are nested `depth` lists deep."""
    if depth == 0:
        yield item
    elif _is_list(item):
        for part in item:
            yield from _at_depth(part, depth - 1)


def _nested(
    pylist: Any,
    depth: int,
    inner: tuple[int, ...] | None,
    values: Callable[..., Any],
    rows: Callable[..., Any],
) -> Any:
    """Join lists level by level, then build the rows from the inside."""
    if depth == 0:
        return values(pylist, inner)
    flat, nested = pylist, []
    for _ in range(depth):
        splits = [0]
        for row in flat:
            splits.append(splits[-1] + len(row))
        nested.append(splits)
        flat = [item for row in flat for item in row]
    found = values(flat, (len(flat), *(inner or ())))
    for splits in reversed(nested):
        found = rows(found, splits)
    return found


# -- Placeholders and ranges -----------------------------------------------------------------------


@composed
@export("ragged.placeholder")
def ragged_placeholder(
    dtype: Any, ragged_rank: int, value_shape: Any = None, name: str | None = None
) -> Any:
    """Return a RaggedTensor that is fed with a RaggedTensorValue.

    value_shape: the shape of the elements of `flat_values`.
    """
    if ragged_rank == 0:
        return b.placeholder(dtype, value_shape, name)
    shape = TensorShape([None]).concatenate(TensorShape(value_shape))
    with name_scope(name, "RaggedPlaceholder", []):
        found: Any = b.placeholder(dtype, shape, "flat_values")
        for i in reversed(range(ragged_rank)):
            splits = b.placeholder(dtypes.int64, [None], f"row_splits_{i}")
            found = RaggedTensor.from_row_splits(found, splits, validate=False)
        return found


@composed
@export("ragged.range")
def ragged_range(
    starts: Any,
    limits: Any = None,
    deltas: Any = 1,
    dtype: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> RaggedTensor:
    """Return rows `starts[i], starts[i] + deltas[i], ...` up to `limits[i]`, which is excluded.

    Without limits, the rows begin with 0 and end at `starts`.
    """
    splits_dtype = as_dtype(row_splits_dtype)
    if limits is None:
        starts, limits = 0, starts
    with name_scope(name, "RaggedRange", [starts, limits, deltas]) as scope:
        starts = convert_to_tensor(starts, dtype, "starts")
        limits = convert_to_tensor(limits, dtype, "limits")
        deltas = convert_to_tensor(deltas, dtype, "deltas")
        if dtype is None:
            starts, limits, deltas = _one_type([starts, limits, deltas])
        splits, values = ragged_range_op(starts, limits, deltas, splits_dtype, name=scope)
        return RaggedTensor.from_row_splits(values, splits, validate=False)


_ORDER = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def _one_type(tensors: list[Tensor]) -> list[Tensor]:
    """Cast tensors to the widest of their types."""
    kinds = [t.dtype.base_dtype for t in tensors]
    if any(k not in _ORDER for k in kinds):
        return tensors
    widest = max(kinds, key=_ORDER.index)
    return [b.cast(t, widest) for t in tensors]


# -- Functions on flat values ----------------------------------------------------------------------


@composed
@export("ragged.map_flat_values")
def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return op of the flat values of all ragged arguments, with their rows, which must be equal.

    Lists among the arguments may contain ragged tensors.
    """
    found: list[RaggedTensor] = []
    flat_args = [_flattened(a, found) for a in args]
    flat_kwargs = {k: _flattened(v, found) for k, v in kwargs.items()}
    if not found:
        return op(*args, **kwargs)
    match_row_splits_dtypes(*found)
    nested = found[0].nested_row_splits
    checks = assert_splits_match([rt.nested_row_splits for rt in found])
    with get_default_graph().control_dependencies(checks):
        result = op(*flat_args, **flat_kwargs)
        result = result if isinstance(result, RaggedTensor) else convert_to_tensor(result)
    for splits in reversed(nested):
        result = RaggedTensor.from_row_splits(result, splits, validate=False)
    return result


def _flattened(value: Any, found: list[RaggedTensor]) -> Any:
    if isinstance(value, RaggedTensor):
        found.append(value)
        return value.flat_values
    if isinstance(value, list | tuple) and any(isinstance(v, RaggedTensor) for v in value):
        return type(value)(_flattened(v, found) for v in value)
    return value
