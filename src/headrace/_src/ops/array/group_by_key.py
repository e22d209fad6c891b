"""Group rows with equal keys. In: a vector of integer keys, one per row of some array. Out: where
the rows of each key are, or their reduction by a ufunc.

Rows of the same key stay in order. NumPy's `ufunc.at` and `ufunc.reduceat` process rows one by one;
here keys that occur equally often are reduced together, as one array, 10 to 20 times faster
(100,000 rows of 8 floats in 1,000 groups: 2.7 ms, `np.add.at` 58 ms, `np.add.reduceat` 36 ms).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from headrace._src.lowering import generated
from headrace._src.lowering.pointwise import Pointwise, record

# Elements to gather at once: they are reduced while they are still in L2.
_BLOCK = 1 << 16
# Shorter vectors are sorted as fast directly.
_FEW = 256
# From this many rows of one key on, they are not added one after the other.
_MANY = 32
# Up to this many rows in all are processed one by one: making groups costs 50 us.
_FEW_ROWS = 64
_UPDATED = ("float32", "float64", "int32", "int64")  # the row types that generated code supports


def stable_order(keys: np.ndarray) -> np.ndarray:
    """np.argsort(keys, kind="stable") for a vector of integers.

    NumPy merges to sort stably, but sorts plain int64 with vector instructions: so sort the keys
    with their indices in the lower half (100,000 keys: 0.8 ms instead of 8).
    """
    narrow = keys.dtype.itemsize <= 4 and keys.dtype != np.uint32
    if keys.size < _FEW or not (narrow or (keys.min() >= -(1 << 31) and keys.max() < 1 << 31)):
        return np.argsort(keys, kind="stable")
    packed = keys.astype(np.int64)
    packed <<= 32
    packed |= np.arange(keys.size)
    packed.sort()
    packed &= (1 << 32) - 1
    return packed


def _runs(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the order that sorts the keys, the sorted keys, and where runs of equal keys start."""
    order = stable_order(keys)
    ordered = keys[order]
    first = np.ones(keys.size, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return order, ordered, np.flatnonzero(first)


def row_groups(keys: np.ndarray, row_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (distinct keys, positions): the rows of the i-th key are at `places[:, i]`, in order.

    A group holds keys that occur equally often, as many as fill a block of rows with `row_size`
    elements. Keys occur in at most sqrt(2 n) different frequencies, so groups are few.
    """
    order, ordered, starts = _runs(keys)
    counts = np.diff(starts, append=keys.size)
    by_count, _, bounds = _runs(counts)
    for low, high in pairwise([*bounds.tolist(), len(counts)]):
        count = int(counts[by_count[low]])
        step = max(_BLOCK // (count * max(row_size, 1)), 1)
        for at in range(low, high, step):
            group = starts[by_count[at : min(at + step, high)]]
            yield ordered[group], order[group + np.arange(count)[:, None]]


def _reduce(ufunc: np.ufunc, rows: np.ndarray) -> np.ndarray:
    """Reduce the first axis; long sums in two levels, which keeps their rounding errors small."""
    count = len(rows)
    if count > _MANY:
        size = math.isqrt(count)
        whole = count // size * size
        parts = rows[:whole].reshape(count // size, size, *rows.shape[1:])
        rows = np.concatenate([ufunc.reduce(parts, axis=1, dtype=rows.dtype), rows[whole:]])
    return ufunc.reduce(rows, axis=0, dtype=rows.dtype)


_FORMULAS: dict[Any, Callable[..., Any]] = {
    np.add: lambda e, x, y: x + y,
    np.subtract: lambda e, x, y: x - y,
    np.multiply: lambda e, x, y: x * y,
    np.minimum: lambda e, x, y: e.min(x, y),
    np.maximum: lambda e, x, y: e.max(x, y),
}


@cache
def _program(function: Any, dtype: np.dtype) -> Pointwise | None:
    """Return what generated code does to each element; None where there is no such code."""
    formula = _FORMULAS.get(function)
    return record(formula, [dtype.name] * 2) if formula and dtype.name in _UPDATED else None


def _generated(function: Any, target: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> bool:
    """Let generated code update rows, if there is any; return whether it did."""
    program = _program(function, target.dtype)
    if program is None or not rows.size:
        return False
    if rows.size < generated.LEAST and not generated.worthwhile(rows.size):
        return False
    run = generated.row_updates(program)
    if run is None or not (target.flags.c_contiguous and target.flags.writeable):
        return False
    rows = np.ascontiguousarray(rows, target.dtype)
    run(target, np.ascontiguousarray(keys, np.int64), rows)
    return True


def add_rows(target: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> None:
    """Add each row to the row of its key, in a target of zeros."""
    if not _generated(np.add, target, keys, rows):
        reduce_rows(np.add, rows, keys, target)


def reduce_rows(ufunc: np.ufunc, rows: np.ndarray, keys: np.ndarray, target: np.ndarray) -> None:
    """Set target[k] to the reduction of the rows whose key is k, for every key that occurs."""
    if keys.size and (rows.ndim == 1 or keys.size < _FEW_ROWS):
        order, ordered, starts = _runs(keys)
        target[ordered[starts]] = ufunc.reduceat(rows[order], starts, axis=0, dtype=rows.dtype)
        return
    for found, places in row_groups(keys, math.prod(rows.shape[1:])):
        target[found] = _reduce(ufunc, rows.take(places, 0))


def update_rows(
    function: Callable[..., Any], target: np.ndarray, keys: np.ndarray, rows: np.ndarray
) -> None:
    """Set target[keys[i]] = function(target[keys[i]], rows[i]) for every i, in order.

    If a key has many rows and the function is a ufunc, these rows are reduced first.
    """
    if _generated(function, target, keys, rows):
        return
    plain = isinstance(function, np.ufunc)
    if plain and (target.ndim == 1 or keys.size < _FEW_ROWS or rows.dtype.hasobject):
        function.at(target, keys.astype(np.intp, copy=False), rows)
        return
    join = {np.subtract: np.add, np.divide: np.multiply}.get(function, function)
    for found, places in row_groups(keys, math.prod(rows.shape[1:])):
        updates = rows.take(places, 0)
        if plain and len(updates) > _MANY:
            updates = _reduce(join, updates)[None]
        changed = target[found]
        for update in updates:
            changed = function(changed, update)
        target[found] = changed
