"""Variants that travel between processes. In: a list of tensors or an optional. Out: a vector of
strings that the transport can send; and back.

The first string describes the value, in JSON; the others are the bytes of its tensors, in order. A
string tensor has one for each element. Resources and other variants stay in their process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.ops.control.optionals import Optional
from headrace._src.ops.control.tensor_lists import TensorList

__all__ = ["packed", "travels", "unpacked"]


def travels(value: Any) -> bool:
    """Return whether a value is a variant that can be sent."""
    return isinstance(value, TensorList | Optional)


def packed(value: Any) -> np.ndarray:
    """Return a variant as a vector of strings; TypeError if something in it cannot be sent."""
    buffers: list[bytes] = []
    description = json.dumps(_describe(value, buffers)).encode()
    found = np.empty(1 + len(buffers), object)
    found[:] = [description, *buffers]
    return found


def _describe(value: Any, buffers: list[bytes]) -> Any:
    """Return what JSON says of a value, and add the bytes of its tensors to `buffers`."""
    if value is None:
        return None
    if isinstance(value, TensorList):
        elements = [_describe(each, buffers) for each in value.elements()]
        sizes = None if value.sizes is None else list(value.sizes)
        return {
            "list": value.dtype.name,
            "sizes": sizes,
            "limit": value.limit,
            "elements": elements,
        }
    if isinstance(value, Optional):
        components = value.components
        values = None if components is None else [_describe(each, buffers) for each in components]
        return {"optional": values}
    array = np.asarray(value)
    if array.dtype == object:
        strings = array.reshape(-1).tolist()
        if not all(type(each) in (bytes, str) for each in strings):
            raise TypeError(f"a {type(value).__name__} cannot be sent")
        buffers += [each.encode() if isinstance(each, str) else each for each in strings]
        return [dtypes.string.name, list(array.shape)]
    buffers.append(array.tobytes())
    return [dtypes.as_dtype(array.dtype).name, list(array.shape)]


def unpacked(value: Any) -> Any:
    """Return the variant that a vector of strings describes."""
    try:
        description, *buffers = np.asarray(value).tolist()
        rest = iter(buffers)
        found = _made(json.loads(description), rest)
        if next(rest, None) is None:
            return found
    except (TypeError, ValueError, KeyError, StopIteration, RecursionError):
        pass
    raise InvalidArgumentError(None, None, "a list of tensors came damaged from another process")


def _made(description: Any, buffers: Iterator[bytes]) -> Any:
    if description is None:
        return None
    if isinstance(description, dict) and "list" in description:
        sizes, limit = description["sizes"], int(description["limit"])
        elements = [_made(each, buffers) for each in description["elements"]]
        known = None if sizes is None else tuple(None if n is None else int(n) for n in sizes)
        return TensorList(dtypes.as_dtype(description["list"]), known, limit, elements)
    if isinstance(description, dict):
        values = description["optional"]
        return Optional(None if values is None else tuple(_made(v, buffers) for v in values))
    name, shape = description
    dtype, shape = dtypes.as_dtype(name), tuple(map(int, shape))
    if dtype is dtypes.string:
        made = np.empty(prod(shape), object)
        for i in range(made.size):
            made[i] = next(buffers)
        return made.reshape(shape)
    return np.frombuffer(bytearray(next(buffers)), dtype.numpy).reshape(shape)
