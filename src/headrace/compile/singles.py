"""Kernels for single operations (see devices.generated). In: what an operation computes. Out: a
function on arrays that runs it on all cores.

The code of such a kernel doesn't depend on sizes: it's generated once per operation and type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from headrace.compile import native
from headrace.compile.kernel import Kernel
from headrace.compile.kernels.fourier import Fourier
from headrace.compile.kernels.largest import LargestOfAny
from headrace.compile.kernels.random import RandomNumbers
from headrace.compile.kernels.spans import Span
from headrace.compile.native import available
from headrace.compile.pointwise import supports
from headrace.core.dtypes import as_dtype
from headrace.devices.buffers import address, empty_aligned
from headrace.devices.openmp import thread_count
from headrace.devices.target import host
from headrace.graph.pointwise import Pointwise

__all__ = ["available", "elementwise", "fourier", "largest", "random_numbers"]


@lru_cache(1024)
def elementwise(
    program: Pointwise, single: tuple[bool, ...]
) -> Callable[..., list[np.ndarray]] | None:
    """The function of contiguous arrays that runs a program on each element."""
    if not supports(program) or any(s.opcode == "index" for s in program.steps):
        return None
    run = _runner(Span(program, single))
    first = single.index(False)
    dtypes = [np.dtype(as_dtype(t).as_numpy_dtype) for t in program.output_dtypes]

    def call(*inputs: np.ndarray) -> list[np.ndarray]:
        shape = inputs[first].shape
        outputs = [empty_aligned(shape, dtype) for dtype in dtypes]
        run(np.array([inputs[first].size]), *inputs, *outputs)
        return outputs

    return call


@lru_cache(32)
def random_numbers(distribution: str, dtype: str) -> Callable[..., None]:
    """The function (stream, limits, array) that fills an array from a stream."""
    run = _runner(RandomNumbers(distribution, dtype))

    def fill(stream: np.ndarray, limits: tuple[int, int], out: np.ndarray) -> None:
        run(stream, np.array([out.size, *limits]), out)

    return fill


@lru_cache(32)
def largest(dtype: str) -> Callable[..., None]:
    """The function (x, values, indices) that finds the largest elements of each row."""
    run = _runner(LargestOfAny(dtype))

    def find(x: np.ndarray, values: np.ndarray, indices: np.ndarray) -> None:
        run(np.array([*x.shape, values.shape[1]]), x, values, indices)

    return find


@lru_cache(8)
def fourier(dtype: str, inverse: bool) -> Callable[..., None]:
    """The function (x, y) that transforms complex arrays along the middle one of three axes."""
    run = _runner(Fourier(dtype, inverse))
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
    """What a transform of n numbers multiplies by (see kernels.fourier)."""
    angles = np.outer([1, 2, 3], np.arange(n // 4)) * (-2 * np.pi / n)
    return np.ascontiguousarray(np.stack([np.cos(angles), np.sin(angles)]), dtype)


def _runner(spec: Kernel) -> Callable[..., None]:
    """The function that runs a kernel on contiguous arrays, whatever their sizes."""
    (function,) = native.addresses([spec])
    none = (ctypes.c_uint64 * 1)()  # neither scratch nor counters
    assert not spec.counters

    def run(*arrays: np.ndarray) -> None:
        rest = ctypes.addressof(none)
        native.run_team(function, [*map(address, arrays), rest, rest])

    return run
