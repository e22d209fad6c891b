"""Convert feeds. In: a tensor and the value that a user feeds for it. Out: an array of the tensor's
dtype, checked against its shape.

Errors name the tensor, the expected and the given value, and the line that made the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.graph.operation import Tensor, made_at
from headrace._src.ops.base.to_tensor import as_array
from headrace._src.ops.state.session_handles import TensorHandle
from headrace._src.ops.strings.string_arrays import all_bytes

__all__ = ["feed_array"]


def feed_array(tensor: Tensor, value: Any) -> Any:
    """Return `value` as the array that `tensor` holds in a step, without a copy if possible."""
    dtype = tensor.dtype.base_dtype
    numpy = dtype.numpy
    # Subclasses of ndarray (matrices, masked arrays) have their own arithmetic: convert them.
    if type(value) is np.ndarray and value.dtype == numpy and numpy.kind != "O":
        array = value
    elif dtype is dtypes.resource or dtype is dtypes.variant:
        return value
    else:
        if isinstance(value, TensorHandle):
            value = _kept(tensor, dtype, value)
        array = _convert(tensor, dtype, value)
    shape, sizes = array.shape, tensor._shape.sizes
    if shape != sizes and sizes is not None and not _fits(shape, sizes):
        raise ValueError(
            f"Cannot feed value of shape {shape} for Tensor '{tensor.name}', which has shape "
            f"'{tensor._shape}'{made_at(tensor.op, most=5)}"
        )
    return array


def _kept(tensor: Tensor, dtype: dtypes.DType, handle: TensorHandle) -> Any:
    """Return the value that a handle names; for a string placeholder, the handle's text."""
    if handle.dtype is dtype:
        return handle.eval()
    if dtype is dtypes.string:
        return handle.handle
    raise InvalidArgumentError(
        None,
        tensor.op,
        f"Expects Tensor '{tensor.name}' to be {dtype.name} but {handle.dtype.name} is provided by "
        f"the handle {handle}",
    )


def _fits(shape: tuple[int, ...], sizes: tuple[int | None, ...]) -> bool:
    if len(shape) != len(sizes):
        return False
    return all(n is None or n == m for n, m in zip(sizes, shape, strict=True))


def _convert(tensor: Tensor, dtype: dtypes.DType, value: Any) -> np.ndarray:
    if isinstance(value, Tensor) or hasattr(value, "_as_graph_element"):
        raise TypeError(
            "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include "
            "Python scalars, strings, lists, numpy ndarrays, or TensorHandles. For reference, the "
            f"tensor object was {value} which was passed to the feed with key {tensor}. Run it "
            f"first, and feed the result.{made_at(tensor.op, most=5)}"
        )
    try:
        if value is None:
            raise TypeError("None is no value")
        if dtype is dtypes.string:
            return _strings(value)
        array = np.asarray(value, dtype=dtype.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"Cannot feed {value!r:.80} for Tensor '{tensor.name}' of type {dtype.name}: {error}"
            f"{made_at(tensor.op, most=5)}"
        ) from None
    return array


def _strings(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray) and value.dtype == object and all_bytes(value):
        return value
    return as_array(value, dtypes.string)
