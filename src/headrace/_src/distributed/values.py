"""Values that travel between processes. In: values of a step. Out: arrays that the transport can
send; and back.

A handle of a resource, or of a tensor that a session keeps, travels as text: the state stays where
it is. The receiver knows by the type of the tensor that the text is a handle. A list of tensors
travels as a vector of strings (`variants`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import InvalidArgumentError, UnimplementedError
from headrace._src.devices.resources import ResourceHandle
from headrace._src.distributed.variants import packed, travels, unpacked
from headrace._src.ops.state.session_handles import TensorHandle

__all__ = ["holds_handle", "is_wrapped", "sendable", "unwrapped"]

_OBJECT = np.dtype(object)


def holds_handle(dtype: dtypes.DType) -> bool:
    """Return whether the values of this type are handles."""
    return dtype.base_dtype is dtypes.resource


def is_wrapped(dtype: dtypes.DType) -> bool:
    """Return whether the values of this type travel in another form: handles and variants."""
    return holds_handle(dtype) or dtype.base_dtype is dtypes.variant


def sendable(value: Any) -> Any:
    """Return a value as the transport sends it; UnimplementedError if it stays in its process."""
    form = type(value)
    if form is np.ndarray:
        if value.dtype != _OBJECT:
            return value
        return _strings(value)
    if form is ResourceHandle or isinstance(value, TensorHandle):
        return _text(value)
    if travels(value):
        return _packed(value)
    if value is None or isinstance(value, np.generic | bytes | str | int | float | bool | complex):
        return value
    array = np.asarray(value)
    if array.dtype == _OBJECT and not array.ndim:
        raise _stays(value)
    return sendable(array)


def _packed(value: Any) -> np.ndarray:
    try:
        return packed(value)
    except TypeError as error:
        raise UnimplementedError(None, None, f"a part of {value!r}: {error}") from None


def _strings(array: np.ndarray) -> np.ndarray:
    """Return an array of strings or handles as one of strings."""
    elements = array.reshape(-1).tolist()
    if not array.ndim and travels(elements[0]):
        return _packed(elements[0])
    if all(type(each) in (bytes, str) for each in elements):
        return array
    made = np.empty(len(elements), object)
    for i, each in enumerate(elements):
        made[i] = each if isinstance(each, bytes | str) else _text(each)
    return made.reshape(array.shape)


def _text(handle: Any) -> bytes:
    if isinstance(handle, TensorHandle):
        parts = [handle.handle, handle.dtype.name]
    elif isinstance(handle, ResourceHandle):
        parts = [handle.device, handle.container, handle.name, handle.kind.__name__]
    else:
        raise _stays(handle)
    return json.dumps(parts).encode()


def _stays(value: Any) -> UnimplementedError:
    kind = type(value).__name__
    return UnimplementedError(
        None,
        None,
        f"a {kind} cannot be sent to another process: place its producer and its consumers on one "
        "device, and fetch or send the tensors that it holds",
    )


def unwrapped(
    value: Any, dtype: dtypes.DType, kept: Callable[[str, dtypes.DType], TensorHandle]
) -> Any:
    """Return the variant, the handle or the array of handles that has come as strings. kept: makes
    the handle of a tensor that a session keeps.
    """
    if dtype.base_dtype is dtypes.variant:
        return unpacked(value)
    array = np.asarray(value)
    if array.ndim:
        made = np.empty(array.size, object)
        for i, each in enumerate(array.reshape(-1).tolist()):
            made[i] = _read(each, kept)
        return made.reshape(array.shape)
    return _read(array.item(), kept)


def _read(text: Any, kept: Callable[[str, dtypes.DType], TensorHandle]) -> Any:
    try:
        parts = json.loads(text)
        if all(isinstance(part, str) for part in parts):
            if len(parts) == 2:
                return kept(parts[0], dtypes.as_dtype(parts[1]))
            device, container, name, kind = parts
            # Only the name of the kind is known here. What finds the state compares its own kind.
            return ResourceHandle(device, container, name, type(kind, (), {}))
    except (TypeError, ValueError):
        pass
    raise InvalidArgumentError(None, None, f"{text!r:.80} is not a handle")
