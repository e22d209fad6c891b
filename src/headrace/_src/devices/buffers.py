"""Allocate arrays for native code. In: shape and dtype. Out: a fresh C-contiguous array.

Invariant: the first element of every array from here lies on a 64-byte boundary (a cache line, and
the width of an AVX-512 vector), so that native kernels never split a vector over two lines.
"""

import ctypes
import math
import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from headrace._src.core.locks import Lock

ALIGNMENT = 64

_DATA_FIELD = object.__basicsize__
_read_pointer = ctypes.c_void_p.from_address


def _address_from_interface(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _address_from_struct(array: np.ndarray) -> int:
    # NumPy's C ABI: the data pointer is the first field after CPython's object header.
    return _read_pointer(id(array) + _DATA_FIELD).value or 0


def _choose_address():
    """Return the function that reads the struct, in a fifth of the time, if NumPy agrees."""
    probe = np.empty(1)
    known = sys.implementation.name == "cpython"
    if known and _address_from_struct(probe) == _address_from_interface(probe):
        return _address_from_struct
    return _address_from_interface


address = _choose_address()
"""address(array): return the address of the array's first element."""


def empty_aligned(shape: tuple[int, ...], dtype: DTypeLike, lasting: bool = False) -> np.ndarray:
    """Return an uninitialised, writable, C-contiguous array whose data is 64-byte aligned.

    lasting: its memory is used again and again, so that allocating it may take longer
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"empty_aligned: dtype {dtype} holds Python objects, not plain memory")
    # math.prod, because a product in a fixed-width type could wrap around for absurd shapes.
    size = dtype.itemsize * math.prod(shape)
    if _local.allocate is not None and (lasting or size >= _local.smallest):
        try:
            return np.ndarray(shape, dtype, _local.allocate(size))
        except MemoryError:
            pass  # other memory will do
    raw = np.empty(size + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, raw, -address(raw) % ALIGNMENT)


class _Local(threading.local):
    allocate: Callable[[int], Any] | None = None
    smallest = 0


_local = _Local()


def allocating(
    function: Callable[..., Any], allocate: Callable[[int], Any], smallest: int
) -> Callable[..., Any]:
    """Return a function within whose calls `empty_aligned` takes the memory of lasting arrays, and
    of those of at least `smallest` bytes, from `allocate`. That gives aligned bytes, or raises
    MemoryError.
    """

    @wraps(function)
    def call(*arguments: Any) -> Any:
        outer = _local.allocate, _local.smallest
        _local.allocate, _local.smallest = allocate, smallest
        try:
            return function(*arguments)
        finally:
            _local.allocate, _local.smallest = outer

    return call


class ReusedMemory:
    """Allocates arrays of one size; the memory of one that is gone is used again.

    Nothing may keep a view of an array longer than the array itself. State: each piece of memory
    with a weak reference to the array that it was last given out as.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pieces: list[tuple[np.ndarray, weakref.ref[np.ndarray]]] = []

    def __call__(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an array with any contents."""
        pieces = self._pieces
        with self._lock:
            for number, (memory, last) in enumerate(pieces):
                if last() is None:
                    array = memory.view()
                    pieces[number] = memory, weakref.ref(array)
                    return array
            memory = empty_aligned(shape, dtype, lasting=True)
            array = memory.view()
            pieces.append((memory, weakref.ref(array)))
            return array
