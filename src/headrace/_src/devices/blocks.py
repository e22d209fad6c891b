"""Allocate working memory for native code. In: a size. Out: aligned bytes, or MemoryError.

Large blocks are mapped on their own. They start at a huge page's boundary and ask for huge pages,
and they go back to the system as soon as they are dropped. A block that the machine could never
hold is refused here by a Python error, before the system's out-of-memory killer ends the process.
"""

import contextlib
import ctypes
import math
import mmap
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

try:
    import resource
except ImportError:  # Windows, which has no such limits
    resource = None

from headrace._src.core.config import settings
from headrace._src.devices.buffers import ALIGNMENT, address
from headrace._src.devices.cgroups import PROC, ROOT, cgroups

__all__ = [
    "block",
    "empty_block",
    "has_near_memory_only",
    "memory_limit",
    "sparse_copy",
    "working_memory",
    "zeros_on_demand",
]

_HUGE_PAGE = 2**21
_MAPPED_FROM = 2**20
_RARELY_FULL = 2**32  # bytes: smaller tables cost less than faults of pages in steps
_CHUNK = 2**18  # words that are copied or left out together
# Python's default is memory that is shared with forked children, and that gets no huge pages.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}


def block(size: int) -> np.ndarray:
    """Return `size` bytes, not initialised, aligned to a cache line (to a huge page, if large)."""
    return empty_block((size,), np.dtype(np.uint8))


def empty_block(
    shape: tuple[int, ...], dtype: np.dtype, kind: type[np.ndarray] = np.ndarray
) -> np.ndarray:
    """Return a row-major array in memory of its own, not initialised: aligned, and on huge pages if
    large. All its base arrays are of this `kind`, too.
    """
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or not size:
        return kind(shape, dtype)
    if size < _MAPPED_FROM:
        raw = kind((size + ALIGNMENT,), np.uint8)
        return kind(shape, dtype, raw, -address(raw) % ALIGNMENT)
    mapped = _map(size)
    return kind(shape, dtype, mapped, -address(np.frombuffer(mapped, np.uint8)) % _HUGE_PAGE)


def zeros_on_demand(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of zeros that owns its memory. A page of it exists once it is written.

    A large one is taken for a table of which few rows are ever written: with huge pages, each of
    these rows would take 2 MB.
    """
    zeros = np.zeros(shape, dtype)
    if zeros.nbytes >= _RARELY_FULL and hasattr(mmap, "MADV_NOHUGEPAGE"):
        first = -(-address(zeros) // mmap.PAGESIZE) * mmap.PAGESIZE
        size = address(zeros) + zeros.nbytes - first
        _c_library().madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_NOHUGEPAGE)
    return zeros


def sparse_copy(value: np.ndarray) -> np.ndarray | None:
    """Return a copy of a large array, of which pages exist only where the array is not zero; None
    if it is too small for that to matter, or not contiguous.
    """
    if value.nbytes < _RARELY_FULL or value.nbytes % 8 or not value.flags.c_contiguous:
        return None
    copy = zeros_on_demand(value.shape, value.dtype)
    source, target = (each.reshape(-1).view(np.uint64) for each in (value, copy))
    for start in range(0, source.size, _CHUNK):
        chunk = source[start : start + _CHUNK]
        if chunk[0] or chunk.any():
            target[start : start + _CHUNK] = chunk
    return copy


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _map(size: int) -> mmap.mmap:
    """Map enough memory for `size` bytes that begin at a huge page's boundary."""
    limit = memory_limit()
    if size > limit:
        raise MemoryError(f"{size:,} bytes of working memory are more than the possible {limit:,}")
    try:
        mapped = mmap.mmap(-1, size + _HUGE_PAGE, **_PRIVATE)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"can't map {size:,} bytes of working memory: {error}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # huge pages are optional, and some systems lack them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


@cache
def has_near_memory_only() -> bool:
    """Return whether all memory is equally near to all cores, as far as the system says."""
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) < 2


def working_memory() -> int:
    """Return how many bytes a compiled step should need at most: the setting, else the limit."""
    asked = settings().memory_mb
    return memory_limit() if asked is None else asked << 20


def memory_limit() -> int:
    """Return the most memory that this process could have, in bytes."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0] if resource is not None else -1
    machine = _machine_memory()
    return machine if allowed < 0 else min(machine, allowed)


@cache
def _machine_memory() -> int:
    limits = [2**63]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min([*limits, *_cgroup_limits()])


def _cgroup_limits(root: Path = ROOT, proc: Path = PROC) -> Iterator[int]:
    """Yield the limits, in bytes, of this process's cgroups and their parents."""
    for folder in cgroups("memory", root, proc):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                yield int(text)
