"""Kernels that are generated for single operations. In: what to compute. Out: a function on arrays,
or None where there is none.

Interpreted operations on large arrays are run by machine code that the compiler makes for the
operation alone, for any number of elements: once per type, and kept on disk. The rooms that ask,
`ops` and `runtime`, don't know the compiler: `headrace` says by `expect` which module answers, and
it's imported at the first question. HEADRACE_NO_GENERATED leaves all operations to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from headrace.graph.pointwise import Pointwise

__all__ = [
    "LEAST", "cholesky", "column_sums", "elementwise", "expect", "fourier", "inverse", "largest",
    "random_numbers", "routine", "row_updates", "worthwhile",
]  # fmt: skip

# Arrays of fewer elements are left to NumPy. Loading the compiler takes 0.1 s, once per process;
# NumPy draws 2^16 normal numbers in 1.5 ms and computes as many error functions in 0.3.
LEAST = 1 << 16

_home = ""


def expect(home: str) -> None:
    """Say which module generates kernels; it has the functions of this one."""
    global _home
    _home = home


def elementwise(program: Pointwise, kinds: tuple[str, ...]) -> Callable[..., Any] | None:
    """The function of contiguous arrays that runs a pointwise program on each element, and returns
    a list of arrays (None where rows are too short). Each input is "full" (LEAST elements or more),
    "row" (what all rows of the full ones are combined with) or "single" (one element for all).
    """
    return _made("elementwise", program, kinds)


def column_sums(program: Pointwise, kinds: tuple[str, ...]) -> Callable[..., Any] | None:
    """The function of contiguous arrays, first a matrix, that sums what a pointwise program gives
    over all rows, in float64; None where it isn't for such columns. `kinds` as for `elementwise`.
    """
    return _made("column_sums", program, kinds)


def random_numbers(distribution: str, dtype: str) -> Callable[..., Any] | None:
    """The function (stream, limits, array) that fills an array of LEAST elements or more with
    random numbers; stream: the key and the two halves of the counter; limits: the smallest integer,
    and what all are below.
    """
    return _made("random_numbers", distribution, dtype)


def fourier(dtype: str, inverse: bool) -> Callable[..., Any] | None:
    """The function (x, y) that transforms complex numbers with parts of a type along the middle
    axis of [outer, n, inner], or back: n and inner are powers of two, n at least 64, inner too or
    1. Both may be one array.
    """
    return _made("fourier", dtype, inverse)


def largest(dtype: str) -> Callable[..., Any] | None:
    """The function (x, values, indices) that finds the largest elements of each row of a matrix, in
    descending order, as many as `values` has columns, and their int32 places.
    """
    return _made("largest", dtype)


def row_updates(program: Pointwise) -> Callable[..., Any] | None:
    """The function (target, keys, rows) that sets target[keys[i]] to what a pointwise program makes
    of it and of rows[i], for each i in order. Arrays are contiguous, keys int64 and within range.
    """
    return _made("row_updates", program)


def cholesky() -> Callable[..., Any] | None:
    """The function of real matrices [count, n, n] that gives their lower Cholesky factors, computed
    in float64; None if a matrix isn't positive definite.
    """
    return _made("cholesky")


def inverse() -> Callable[..., Any] | None:
    """The function of real matrices [count, n, n] that gives their inverses, computed in float64;
    None if a matrix has none.
    """
    return _made("inverse")


def _made(what: str, *arguments: Any) -> Callable[..., Any] | None:
    """What the generator answers; None where there is none, or where it fails."""
    found = _generator()
    if found is None:
        return None
    try:
        return getattr(found, what)(*arguments)
    except Exception as error:
        if _settings().verify:
            raise
        import logging  # which `import headrace` does without

        # A fault of the compiler costs speed, never a result.
        logging.getLogger("headrace").warning("an operation is left to NumPy: %s", error)
        return None


# After so many small pieces of work in all, the compiler is loaded for those that are to come.
_MANY = 1 << 18
_worked_on = 0


def worthwhile(elements: int) -> bool:
    """Whether to ask for code that gives equal results for work on so few elements: the compiler is
    there already, or much of such work was done.
    """
    global _worked_on
    _worked_on += elements
    return _worked_on > _MANY or _generator.cache_info().currsize > 0


def routine(name: str, *settings: Any) -> Callable[..., Any] | None:
    """The kernel of this name in compile.routines, which says what it takes and gives."""
    found = _generator()
    return None if found is None else found.routine(name, *settings)


@cache
def _generator() -> ModuleType | None:
    if _settings().no_generated or not _home:
        return None
    try:
        found = import_module(_home)
    except ImportError:
        return None  # an installation without the compiler: all is interpreted, by NumPy
    return found if found.available() else None


def _settings() -> Any:
    from headrace.core.config import settings  # not loaded by `import headrace`, as this is

    return settings()
