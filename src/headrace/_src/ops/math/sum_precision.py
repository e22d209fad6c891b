"""The precision in which kernels accumulate. In: arrays. Out: the same, 16-bit floats as float32.

A sum in half precision loses accuracy after a few thousand terms, so kernels compute on `widened`
arrays and cast their result once, at the end.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def widened(array: np.ndarray) -> np.ndarray:
    """Return `array` in the dtype to accumulate in: float32 for 16-bit floats, else its own."""
    return array.astype(np.float32) if array.dtype in _NARROW else array


def require_float(what: str, *arrays: np.ndarray) -> None:
    """Raise TypeError unless all arrays have the same floating-point dtype."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) != 1:
        names = ", ".join(array.dtype.name for array in arrays)
        raise TypeError(f"{what}: all inputs must have one dtype, got {names}")
    (dtype,) = dtypes
    if dtype.kind != "f" and dtype not in _NARROW:
        raise TypeError(f"{what}: needs a floating-point dtype, got {dtype.name}")


def lowest(dtype: np.dtype) -> int | float:
    """Return the lowest finite value of a numeric dtype."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else float(ml_dtypes.finfo(dtype).min)
