"""Kernels generated for single operations. In: a computation. Out: a function of arrays, or None
where none is available.

Machine code that the compiler generates for a single operation, for any number of elements, runs
interpreted operations on large arrays. It is generated once per type and cached on disk. The
packages that use it, `ops` and `runtime`, don't know the compiler: `headrace` names the generating
module with `expect`, and it is imported at the first request. HEADRACE_NO_GENERATED leaves all
operations to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from headrace._src.lowering.pointwise import Pointwise

__all__ = [
    "LEAST", "cholesky", "column_sums", "elementwise", "expect", "fourier", "inverse", "largest",
    "random_numbers", "routine", "row_updates", "worthwhile",
]  # fmt: skip

# Arrays of fewer elements are left to NumPy. Loading the compiler takes 0.1 s, once per process;
# NumPy draws 2^16 normal numbers in 1.5 ms and computes as many error functions in 0.3.
LEAST = 1 << 16

_home = ""


def expect(home: str) -> None:
    """Set the module that generates kernels; it defines the functions of this one."""
    global _home
    _home = home


def elementwise(program: Pointwise, kinds: tuple[str, ...]) -> Callable[..., Any] | None:
    """Return a function of contiguous arrays that runs a pointwise program on each element, and
    returns a list of arrays (None where rows are too short). Each input is "full" (LEAST elements
    or more), "row" (combined with every row of the full ones) or "single" (one element for all).
    """
    return _made("elementwise", program, kinds)


def column_sums(program: Pointwise, kinds: tuple[str, ...]) -> Callable[..., Any] | None:
    """Return a function of contiguous arrays, the first a matrix, that sums the results of a
    pointwise program over all rows, in float64: a row of sums for each output. None where it
    doesn't support this number of columns. `kinds` as for `elementwise`.
    """
    return _made("column_sums", program, kinds)


def random_numbers(distribution: str, dtype: str) -> Callable[..., Any] | None:
    """Return a function (stream, limits, array) that fills an array of LEAST elements or more with
    random numbers; stream: the key and the two halves of the counter; limits: the smallest integer,
    and the exclusive upper bound.
    """
    return _made("routine", "random", distribution, dtype)


def fourier(dtype: str, inverse: bool) -> Callable[..., Any] | None:
    """Return a function (x, y) that computes the Fourier transform of complex numbers along the
    middle axis of [outer, n, inner], or its inverse: n and inner are powers of two, n at least 64,
    inner at least 64 or 1. x and y may be the same array.
    """
    return _made("fourier", dtype, inverse)


def largest(dtype: str) -> Callable[..., Any] | None:
    """Return a function (x, values, indices) that finds the largest elements of each row of a
    matrix, in descending order, as many as `values` has columns, and their int32 places.
    """
    return _made("largest", dtype)


def row_updates(program: Pointwise) -> Callable[..., Any] | None:
    """Return a function (target, keys, rows) that sets target[keys[i]] to the result of a pointwise
    program on it and rows[i], for each i in order. Arrays are contiguous, keys int64 and within
    range.
    """
    return _made("row_updates", program)


def cholesky() -> Callable[..., Any] | None:
    """Return a function of real matrices [count, n, n] that returns their lower Cholesky factors,
    computed in float64, or None if a matrix isn't positive definite.
    """
    return _made("cholesky")


def inverse() -> Callable[..., Any] | None:
    """Return a function of real matrices [count, n, n] that returns their inverses, computed in
    float64, or None if a matrix has none.
    """
    return _made("inverse")


def _made(what: str, *arguments: Any) -> Callable[..., Any] | None:
    """Return the generator's result; None if there is no generator, or if it fails."""
    found = _generator()
    if found is None:
        return None
    try:
        return getattr(found, what)(*arguments)
    except Exception as error:
        if _settings().verify:
            raise
        import logging  # not loaded by `import headrace`

        # A compiler error costs speed, never a result.
        logging.getLogger("headrace").warning("an operation is left to NumPy: %s", error)
        return None


# After this much small work in total, the compiler is loaded for later work.
_MANY = 1 << 18
_worked_on = 0


def worthwhile(elements: int) -> bool:
    """Return whether to request generated code, which gives equal results, for work on few
    elements: the compiler is already loaded, or enough such work was done.
    """
    global _worked_on
    _worked_on += elements
    return _worked_on > _MANY or _generator.cache_info().currsize > 0


def routine(name: str, *settings: Any) -> Callable[..., Any] | None:
    """Return the kernel of this name in compile.run.routines, which documents its arguments and
    results.
    """
    found = _generator()
    return None if found is None else found.routine(name, *settings)


@cache
def _generator() -> ModuleType | None:
    if _settings().no_generated or not _home:
        return None
    try:
        found = import_module(_home)
    except ImportError:
        return None  # an installation without the compiler: NumPy interprets everything
    return found if found.available() else None


def _settings() -> Any:
    from headrace._src.core.config import settings  # loaded lazily, unlike this module

    return settings()
