"""Shapes of states: a cell's sizes with the batch dimension in front, and zeros of that shape."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.graph.schema import MISSING
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant

__all__ = ["batch_shape", "known_size", "static_batch_shape", "zeros_of_sizes"]


def known_size(value: Tensor, axis: int) -> Any:
    """Return the size of an axis: a number, or a tensor if the step alone knows it."""
    size = value.shape.as_list()[axis]
    return b.shape(value)[axis] if size is None else size


def batch_shape(batch: Any, size: Any) -> Tensor:
    """Return the shape [batch, *size] as a tensor; each is an integer, a shape, or an int32
    tensor.
    """
    head, tail = _vector(batch, "prefix"), _vector(size, "suffix")
    if head is None or tail is None:
        raise ValueError(f"Provided a prefix or suffix of None: {batch} and {size}")
    return b.concat([head, tail], 0)


def static_batch_shape(batch: Any, size: Any) -> TensorShape:
    """Return the static shape [batch, *size].

    It makes the same constants as `batch_shape`, unused: without them, the numbers of later
    operations, and so their random seeds, would differ from TensorFlow's.
    """
    _vector(batch, "prefix")
    _vector(size, "suffix")
    return _static(batch).concatenate(_static(size))


def _vector(value: Any, role: str) -> Tensor | None:
    if isinstance(value, Tensor):
        if value.shape.ndims == 0:
            return b.expand_dims(value, 0)
        if value.shape.ndims == 1:
            return value
        raise ValueError(
            f"{role} tensor must be either a scalar or vector, but saw tensor: {value}"
        )
    shape = _static(value)
    if not shape.is_fully_defined():
        return None
    return constant(shape.as_list(), dtype=dtypes.int32)


def _static(value: Any) -> TensorShape:
    if isinstance(value, Tensor):
        known = constant_value(value)
        if known is None:
            return TensorShape([None] if value.shape.ndims == 0 else None)
        value = known.tolist()
    if isinstance(value, TensorShape):
        return value
    return as_shape(value if isinstance(value, list | tuple) else [value])


def zeros_of_sizes(sizes: Any, batch: Any, dtype: Any, known_batch: Any = MISSING) -> Any:
    """Return a nest of zeros [batch, *size], one for each size of the nest `sizes`.

    known_batch is the static batch size if `batch` is a tensor: None, or a number.
    """
    known = batch if known_batch is MISSING else known_batch

    def zeros(size: Any) -> Tensor:
        made = b.zeros(batch_shape(batch, size), dtype=dtype)
        made.set_shape(static_batch_shape(known, size))
        return made

    # A TensorShape is a single size, though it is iterable: nests consist only of lists and tuples.
    return nest.map_structure(zeros, sizes)
