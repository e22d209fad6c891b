"""String tensors as NumPy arrays. In: whatever a caller calls a string tensor. Out: object arrays.

A string tensor is an object array, of any shape, whose elements are `bytes`; every string kernel
normalises its inputs with `string_array` and builds its outputs with `of_strings` or `map_strings`.
Attributes that hold text arrive as `str` (from Python) or `bytes` (from a GraphDef): `attr_bytes`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace._src.lowering import generated


def string_array(value: Any) -> np.ndarray:
    """Return `value` as an object array of bytes, or raise TypeError for any other element.

    An array of objects is a tensor: its elements were checked where it was made.
    """
    if type(value) is np.ndarray and value.dtype == object:
        return value
    array = np.asarray(value, dtype=object)
    kinds = set(map(type, array.ravel().tolist()))
    if not all(issubclass(kind, bytes) for kind in kinds):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"a string tensor holds bytes, not {names}")
    return array


def all_bytes(array: np.ndarray) -> bool:
    """Whether all elements of an object array are bytes, and of no subclass."""
    if numbers_of("size", array) is not None:
        return True
    return set(map(type, array.ravel().tolist())) <= {bytes}


def numbers_of(
    function: str, array: np.ndarray, buckets: int = 0, key: Sequence[int] = (0, 0)
) -> np.ndarray | None:
    """Return a number for each string, by generated code (compile.run.routines: string_numbers), or
    None where there is none or it declines.
    """
    if not generated.worthwhile(array.size):
        return None
    find = generated.routine("string_numbers", function)
    return None if find is None else find(array, buckets, key)


class Spans(NamedTuple):
    """Where the bytes of strings are: addresses and sizes, int64 arrays of one shape. `owner` keeps
    the bytes alive; nobody else can take them away.
    """

    addresses: np.ndarray
    sizes: np.ndarray
    owner: Any

    def texts(self) -> np.ndarray:
        """Return the spans as an array of strings."""
        return generated.routine("span_texts")(self.addresses, self.sizes)  # type: ignore[misc]

    def numbers(self, function: str) -> np.ndarray | None:
        """Return a number for each span, as `numbers_of` does for strings."""
        found = generated.routine("span_numbers", function)
        return None if found is None else found(self.addresses, self.sizes)


def spans_of(array: np.ndarray, each: int = 1) -> Spans | None:
    """Return where the bytes of strings are, for generated code; None where there is none, where it
    isn't worth its while (a string is as much work as `each` simple ones), or where an element
    isn't `bytes`.
    """
    if not generated.worthwhile(array.size * each):
        return None
    find = generated.routine("text_spans")
    if find is None:
        return None
    owner = array.copy()  # which no other thread can change
    found = find(owner)
    if found is None:
        return None
    addresses, sizes = found
    return Spans(addresses, sizes, owner)


def sizes_of(array: np.ndarray) -> np.ndarray:
    """Return the number of bytes of every string."""
    found = numbers_of("size", array)
    if found is None:
        sizes = map(len, array.ravel().tolist())
        found = np.fromiter(sizes, np.int64, count=array.size).reshape(array.shape)
    return found


def of_strings(values: Iterable[bytes], shape: tuple[int, ...]) -> np.ndarray:
    """Return an object array of the given shape from its elements in row-major order."""
    items = values if isinstance(values, list) else list(values)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)


def map_strings(function: Callable[[bytes], bytes], value: Any) -> np.ndarray:
    """Return the string tensor of function(element) for every element."""
    array = string_array(value)
    return of_strings(map(function, array.ravel().tolist()), array.shape)


def map_numbers(function: Callable[[bytes], Any], value: Any, dtype: Any) -> np.ndarray:
    """Return the numeric tensor of function(element) for every element."""
    array = string_array(value)
    numbers = np.fromiter(map(function, array.ravel().tolist()), dtype, count=array.size)
    return numbers.reshape(array.shape)


def string_scalar(value: Any, name: str) -> bytes:
    """Return the one element of a 0-d string tensor."""
    array = string_array(value)
    if array.shape != ():
        raise ValueError(f"{name} must be a scalar, got shape {list(array.shape)}")
    return array.item()


def attr_bytes(value: str | bytes) -> bytes:
    """Return a text attribute as bytes."""
    return value.encode("utf-8") if isinstance(value, str) else value


def numpy_dtype(value: Any) -> np.dtype:
    """Return the NumPy dtype of a type attribute: NumPy's own, or a dtype object that knows it."""
    return np.dtype(getattr(value, "as_numpy_dtype", value))
