"""Kernels for single interpreted operations (see lowering.generated). In: a description of what an
operation computes. Out: a function on arrays that runs it on all cores.

The code of such a kernel doesn't depend on sizes: it's generated once per operation and type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from headrace._src.compile.codegen.iteration_spaces import lanes_for
from headrace._src.compile.codegen.pointwise_code import supports
from headrace._src.compile.kernels.rows.largest import LargestOfAny
from headrace._src.compile.kernels.rows.spans import ColumnSums, RowUpdates, Span, block_of
from headrace._src.compile.kernels.singles.fourier import Fourier
from headrace._src.compile.kernels.singles.matrix_factors import PANEL, Cholesky, Inverse
from headrace._src.compile.native.array_runners import runner, team_runner
from headrace._src.compile.native.machine_code import available
from headrace._src.compile.run import routines
from headrace._src.core.dtypes import as_dtype
from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.openmp import thread_count
from headrace._src.devices.target import host
from headrace._src.lowering.pointwise import Pointwise

__all__ = [
    "available", "cholesky", "column_sums", "elementwise", "fourier", "inverse", "largest",
    "routine", "row_updates",
]  # fmt: skip


@lru_cache(1024)
def elementwise(
    program: Pointwise, kinds: tuple[str, ...]
) -> Callable[..., list[np.ndarray] | None] | None:
    """The function of contiguous arrays that runs a program on each element."""
    if not supports(program) or any(s.opcode == "index" for s in program.steps):
        return None
    run = runner(Span(program, kinds))
    first = kinds.index("full")
    row = kinds.index("row") if "row" in kinds else None
    least = block_of(program, host())
    dtypes = [np.dtype(as_dtype(t).as_numpy_dtype) for t in program.output_dtypes]

    def call(*inputs: np.ndarray) -> list[np.ndarray] | None:
        full = inputs[first]
        columns = full.size if row is None else inputs[row].size
        if columns < least:
            return None
        outputs = [empty_aligned(full.shape, dtype) for dtype in dtypes]
        run(np.array([full.size // columns, columns]), *inputs, *outputs)
        return outputs

    return call


@lru_cache(64)
def column_sums(
    program: Pointwise, kinds: tuple[str, ...]
) -> Callable[..., np.ndarray | None] | None:
    """The function of contiguous arrays that sums each of a program's results over all rows."""
    if not supports(program):
        return None
    run = runner(ColumnSums(program, kinds))
    lanes = lanes_for(host(), [program])

    def call(*inputs: np.ndarray) -> np.ndarray | None:
        rows, columns = inputs[0].shape
        if columns % lanes:
            return None
        sums = np.zeros((thread_count(), len(program.outputs), columns))
        run(np.array([rows, columns]), *inputs, sums)
        return sums.sum(axis=0)

    return call


@lru_cache(64)
def row_updates(program: Pointwise) -> Callable[..., None] | None:
    """The function (target, keys, rows) that changes rows of a target, one after the other."""
    if not supports(program):
        return None
    run = team_runner(RowUpdates(program))

    def update(target: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> None:
        run(rows.size, np.array([len(keys), rows.size // len(keys)]), keys, rows, target)

    return update


@lru_cache(32)
def largest(dtype: str) -> Callable[..., None]:
    """The function (x, values, indices) that finds the largest elements of each row."""
    run = runner(LargestOfAny(dtype))

    def find(x: np.ndarray, values: np.ndarray, indices: np.ndarray) -> None:
        run(np.array([*x.shape, values.shape[1]]), x, values, indices)

    return find


@lru_cache(8)
def fourier(dtype: str, inverse: bool) -> Callable[..., None]:
    """The function (x, y) that transforms complex arrays along the middle one of three axes."""
    run = runner(Fourier(dtype, inverse))
    lanes = host().lanes(dtype)

    def transform(x: np.ndarray, y: np.ndarray) -> None:
        _, n, inner = x.shape
        if inner != 1 and inner % lanes:
            raise ValueError(f"{inner} transforms side by side aren't a multiple of {lanes}")
        work = empty_aligned((4 * n * (1 if inner == 1 else lanes) * thread_count(),), dtype)
        run(np.array(x.shape), _roots(n, dtype), x, y, work)

    return transform


@lru_cache(16)
def _roots(n: int, dtype: str) -> np.ndarray:
    """Return the roots of unity of a transform of n numbers (see kernels.fourier)."""
    angles = np.outer([1, 2, 3], np.arange(n // 4)) * (-2 * np.pi / n)
    return np.ascontiguousarray(np.stack([np.cos(angles), np.sin(angles)]), dtype)


@cache
def cholesky() -> Callable[[np.ndarray], np.ndarray | None]:
    """The function of matrices [count, n, n] that gives their lower factors; None if some matrix
    has none.
    """
    run = runner(Cholesky("float64"))

    def factors(x: np.ndarray) -> np.ndarray | None:
        count, n, _ = x.shape
        width = -(-n // PANEL) * PANEL
        found, status = np.zeros((count, n, width)), np.zeros(count, np.int64)
        run(np.array([count, n, width]), np.ascontiguousarray(x, np.float64), found, status)
        return None if status.any() else found[..., :n].astype(x.dtype, order="C")

    return factors


@cache
def inverse() -> Callable[[np.ndarray], np.ndarray | None]:
    """The function of matrices [count, n, n] that gives their inverses; None if some matrix has
    none.
    """
    run = runner(Inverse("float64"))

    def inverses(x: np.ndarray) -> np.ndarray | None:
        count, n, _ = x.shape
        width = -(-n // PANEL) * PANEL
        frames = empty_aligned((count, width, width), np.float64)
        frames[:, :n, :n] = x
        if width != n:
            frames[:, n:] = np.eye(width)[n:]
            frames[:, :n, n:] = 0
        found, status = empty_aligned(x.shape, np.float64), np.zeros(count, np.int64)
        work = empty_aligned((thread_count() * (PANEL + 2) * width,), np.float64)
        run(np.array([count, n, width]), frames, found, status, work)
        return None if status.any() else found.astype(x.dtype, copy=False)

    return inverses


@lru_cache(256)
def routine(name: str, *settings: Hashable) -> Callable[..., Any] | None:
    """One of the functions in `routines`, for these settings."""
    return routines.routine(name)(*settings)
