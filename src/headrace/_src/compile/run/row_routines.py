"""Routines that move rows by index, and find equal keys (see lowering.generated). In:
C-contiguous arrays of any sizes. Out: arrays; None where an index is out of range. Each runs in the
calling thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from headrace._src.compile.codegen.kernel_spec import Kernel
from headrace._src.compile.kernels.singles.row_moves import (
    DivideRows,
    FirstPlaces,
    IndexRange,
    LastPlaces,
    MergeRows,
    UndivideRows,
)
from headrace._src.compile.native import machine_code
from headrace._src.devices.buffers import address, empty_aligned

__all__ = ["ROW_ROUTINES"]


def _alone(spec: Kernel) -> Callable[..., None]:
    """Return the function that runs a kernel in this thread, on addresses."""
    (place,) = machine_code.addresses([spec])
    kernel = ctypes.CFUNCTYPE(None, *machine_code.KERNEL_TYPES)(place)
    table = ctypes.c_uint64 * (len(spec.arguments) + 2)  # neither scratch nor counters

    def run(*places: int) -> None:
        pointers = table(*places)
        kernel(ctypes.addressof(pointers), 0, 1, 0)

    return run


def _words(*numbers: int) -> ctypes.Array[Any]:
    return (ctypes.c_int64 * len(numbers))(*numbers)


_at = ctypes.addressof


def divide_rows(width: int) -> Callable[..., list[np.ndarray] | None]:
    """The function (rows, keys, count) that divides rows by their int32 keys into `count` parts."""
    run = _alone(DivideRows(width))

    def divide(rows: np.ndarray, keys: np.ndarray, count: int) -> list[np.ndarray] | None:
        shape, total = rows.shape, len(rows)
        result = empty_aligned(shape, rows.dtype)
        # In one array, since making one takes as long as moving a row: sizes, done, ends.
        words = _words(total, count, rows.nbytes // (total or 1), 0, *[0] * count)
        sizes = _at(words)
        run(sizes, address(rows), address(keys), address(result), sizes + 32, sizes + 24)
        if words[3] != total:
            return None
        parts, start = [], 0
        for end in words[4:]:
            parts.append(result[start:end])
            start = end
        return parts

    return divide


def merge_rows(width: int) -> Callable[..., np.ndarray | None]:
    """The function (indices, rows, shape, check) that merges rows of this shape by their int32
    indices. It calls `check` with the number of rows of the result before it makes one.
    """
    find, run = _alone(IndexRange()), _alone(MergeRows(width))

    def merge(
        indices: Sequence[np.ndarray],
        rows: Sequence[np.ndarray],
        shape: tuple[int, ...],
        check: Callable[[int], None],
    ) -> np.ndarray | None:
        parts = [len(indices)]
        for where, data in zip(indices, rows, strict=True):
            parts += [where.size, address(where), address(data)]
        given, found = _words(*parts), _words(0, 0)
        find(_at(given), _at(found))
        if found[0] < 0:
            return None
        count = found[1] + 1
        check(count)
        result = empty_aligned((count, *shape), rows[0].dtype)
        sizes, seen = _words(count, prod(shape) * result.itemsize), np.empty(count, np.uint8)
        run(_at(given), _at(sizes), address(seen), address(result))
        return result

    return merge


def undivide_rows(width: int) -> Callable[..., np.ndarray | None]:
    """The function (keys, parts) that merges rows that were divided by int32 keys; None unless each
    part has as many rows as there are keys of it.
    """
    run = _alone(UndivideRows(width))

    def undivide(keys: np.ndarray, parts: Sequence[np.ndarray]) -> np.ndarray | None:
        if sum(map(len, parts)) != len(keys):
            return None
        total = len(keys)
        result = empty_aligned((total, *parts[0].shape[1:]), parts[0].dtype)
        # In one array, as in `divide_rows`: sizes, done, and the parts.
        described = [total, result.nbytes // (total or 1), 0, len(parts)]
        for rows in parts:
            described += (len(rows), 0, address(rows))
        words = _words(*described)
        sizes = _at(words)
        run(sizes + 24, sizes, address(keys), address(result), sizes + 16)
        return result if words[2] == total else None

    return undivide


def _table(count: int) -> tuple[np.ndarray, int]:
    """Return the memory of a hash table for so many keys, and the bits of its size."""
    bits = max(count, 1).bit_length() + 1
    return np.empty(1 << bits, np.int64), bits


def first_places() -> Callable[..., np.ndarray]:
    """The function (keys, limit) that finds where new int64 keys occur, the first `limit` ones."""
    run = _alone(FirstPlaces())

    def find(keys: np.ndarray, limit: int) -> np.ndarray:
        table, bits = _table(min(len(keys), limit))
        places, done = np.empty(min(len(keys), limit), np.int64), ctypes.c_int64()
        sizes = _words(len(keys), limit, bits)
        run(_at(sizes), address(keys), address(table), address(places), _at(done))
        return places[: done.value]

    return find


def last_places() -> Callable[..., np.ndarray]:
    """The function (keys, asked) that finds the last place of each int64 key that is asked for; -1
    where there is none.
    """
    run = _alone(LastPlaces())

    def find(keys: np.ndarray, asked: np.ndarray) -> np.ndarray:
        table, bits = _table(len(keys))
        places = np.empty(len(asked), np.int64)
        sizes = _words(len(keys), len(asked), bits)
        run(_at(sizes), address(keys), address(asked), address(table), address(places))
        return places

    return find


ROW_ROUTINES: dict[str, Callable[..., Any]] = {
    "divide_rows": divide_rows,
    "first_places": first_places,
    "last_places": last_places,
    "merge_rows": merge_rows,
    "undivide_rows": undivide_rows,
}
