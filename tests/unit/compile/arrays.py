"""Arrays for the compiler's tests: numbers of any type, and views of them as kernels see them."""

from __future__ import annotations

from math import prod

import numpy as np

from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.native.machine_code import aligned
from headrace._src.core.dtypes import as_dtype

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = ("bool", *INTEGERS, *FLOATS)


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(as_dtype(dtype).as_numpy_dtype)


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Aligned random numbers, small integers or normal."""
    kind = numpy_type(dtype)
    made = aligned(max(1, prod(shape)) * kind.itemsize, np.uint8).view(kind)[: prod(shape)]
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        made[:] = rng.normal(size=prod(shape)).astype(kind)
    else:
        low = 0 if dtype == "bool" or dtype.startswith("u") else -5
        made[:] = rng.integers(low, 2 if dtype == "bool" else 6, prod(shape)).astype(kind)
    return made.reshape(shape)


def dense(dtype: str, *shape: int) -> Access:
    """A row-major array over all dimensions."""
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    return Access(dtype, tuple(strides))


def seen(array: np.ndarray, extents: tuple[int, ...], access: Access) -> np.ndarray:
    """What an access is of a dense array: a view with the space's extents."""
    flat = array.reshape(-1)[access.offset :]
    strides = [s * array.itemsize for s in access.strides]
    return np.lib.stride_tricks.as_strided(flat, extents, strides)
