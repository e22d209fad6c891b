"""Names that NumPy 2 removed. Functions whose arguments changed are in `calls`: only the program's
own files call those.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from headrace._src.compat.mends.lending import lend

__all__ = ["PATCHES"]

_RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "bool8": "bool_",
    "cfloat": "complex128",
    "clongfloat": "clongdouble",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "in1d": "isin",
    "infty": "inf",
    "int0": "intp",
    "longcomplex": "clongdouble",
    "longfloat": "longdouble",
    "mat": "asmatrix",
    "object0": "object_",
    "product": "prod",
    "rank": "ndim",
    "round_": "round",
    "row_stack": "vstack",
    "singlecomplex": "complex64",
    "sometrue": "any",
    "string_": "bytes_",
    "trapz": "trapezoid",
    "uint0": "uintp",
    "unicode_": "str_",
}


def _sctypes() -> dict[str, list[type]]:
    kinds = {"int": "i", "uint": "u", "float": "f", "complex": "c"}
    found = {name: [np.dtype(c).type for c in np.typecodes["All"]] for name in kinds}
    for name, kind in kinds.items():
        found[name] = sorted(
            {t for t in found[name] if np.dtype(t).kind == kind}, key=lambda t: np.dtype(t).itemsize
        )
    return {**found, "others": [np.bool_, np.object_, np.bytes_, np.str_, np.void]}


def _asfarray(a: Any, dtype: Any = np.float64) -> Any:
    given = np.dtype(dtype)
    return np.asarray(a, given if given.kind in "fc" else np.float64)


def _find_common_type(array_types: Any, scalar_types: Any) -> Any:
    return np.result_type(*array_types, *scalar_types)


_MADE: dict[str, Callable[[], Any]] = {
    "NINF": lambda: -np.inf,
    "NZERO": lambda: -0.0,
    "PZERO": lambda: 0.0,
    "alen": lambda: len,
    "asfarray": lambda: _asfarray,
    "asscalar": lambda: lambda a: a.item(),
    "cast": lambda: {t: functools.partial(np.asarray, dtype=t) for t in np.sctypeDict.values()},
    "complex": lambda: complex,
    "disp": lambda: print,
    "find_common_type": lambda: _find_common_type,
    "float": lambda: float,
    "int": lambda: int,
    "issubclass_": lambda: lambda a, b: isinstance(a, type) and issubclass(a, b),
    "issubsctype": lambda: np.issubdtype,
    "loads": lambda: pickle.loads,
    "msort": lambda: lambda a: np.sort(a, axis=0),
    "nbytes": lambda: {t: np.dtype(t).itemsize for t in np.sctypeDict.values()},
    "obj2sctype": lambda: lambda value, default=None: np.dtype(value).type,
    "object": lambda: object,
    "sctype2char": lambda: lambda sctype: np.dtype(sctype).char,
    "sctypes": _sctypes,
    "str": lambda: str,
    "typeDict": lambda: np.sctypeDict,
    "unicode": lambda: str,
}


def _patch(numpy: ModuleType) -> None:
    renamed = {old: lambda new=new: getattr(np, new) for old, new in _RENAMED.items()}
    lend(numpy, {**renamed, **_MADE}, "np.{} has gone from NumPy; it and others are supplied")
    np.set_printoptions(legacy="1.25")  # type: ignore  # 1.0, not np.float64(1.0), in lists


def _patch_lib(lib: ModuleType) -> None:
    """In NumPy 1, `np.lib` had much of what `np` has, such as `np.lib.pad`."""
    names = {n: lambda n=n: getattr(np, n) for n in np.__all__ if n not in vars(lib)}
    lend(lib, names, "np.lib.{} is found in np now; it and others are supplied")


PATCHES = {"numpy": _patch, "numpy.lib": _patch_lib}
