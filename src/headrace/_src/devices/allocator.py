"""Allocator: memory of a device that outlives a kernel. In: sizes. Out: blocks, and statistics.

Variables' storage and compiled steps' working memory come from here, or are counted here where
another library manages the device's memory. The arrays that kernels pass to each other are
allocated by NumPy and are not counted.

What loops with `swap_memory` save for their gradients is in files (`devices.swap_files`). It is
counted by itself, and no limit of the device holds for it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from headrace._src.core.locks import RLock
from headrace._src.devices.blocks import block, memory_limit
from headrace._src.devices.swap_files import SWAPPED_FROM, SwappedValues, file_block

__all__ = ["SHARED_FROM", "Allocator", "Held", "Shared", "Statistics"]

SHARED_FROM: Final = 64 << 10  # bytes: smaller arrays are sent to other processes by copies


class Shared(Protocol):
    """Memory that other processes of the host read where it is."""

    def allocate(self, nbytes: int) -> np.ndarray:
        """Return bytes, 64-byte aligned and with any contents; MemoryError if none are left."""
        ...

    def leased(self, array: np.ndarray) -> bool:
        """Return whether another process may still read an array's memory."""
        ...


@dataclass(frozen=True, slots=True)
class Statistics:
    """The memory that a device's allocator has given out, in bytes, and the number of times.

    swapped, swapped_peak: the bytes in files of HEADRACE_SWAP_DIR, which the others don't include
    """

    in_use: int
    peak: int
    largest: int
    allocations: int
    limit: int
    swapped: int = 0
    swapped_peak: int = 0


class Held:
    """Memory that something else manages, counted as in use as long as this object lives."""

    __slots__ = ("__weakref__", "size")

    def __init__(self, size: int) -> None:
        self.size = size


class Allocator:
    """Gives out blocks of memory, up to a limit (by default, all that this process can have).

    shared: where arrays are put that are sent to other processes; None: there is no such memory
    """

    shared: Shared | None = None

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = RLock()  # reentrant: a block may be freed in a call that holds it
        self._in_use = self._peak = self._largest = self._count = 0
        self._swapped = self._swapped_peak = 0
        self._values = SwappedValues(self.swapped_block)

    @property
    def limit(self) -> int:
        return memory_limit() if self._limit is None else self._limit

    def block(self, size: int) -> np.ndarray:
        """Return `size` aligned bytes, not initialised; raise MemoryError beyond the limit."""
        self._check(size)
        memory = block(size)
        self.count(memory)
        return memory

    def swapped_block(self, size: int) -> np.ndarray:
        """Return `size` bytes in a file, outside of the limit; raise MemoryError if the folder has
        no room for it. It starts at a page's boundary.
        """
        memory = file_block(size)
        with self._lock:
            self._swapped += memory.nbytes
            self._swapped_peak = max(self._swapped_peak, self._swapped)
        weakref.finalize(memory.base, self._unswapped, memory.nbytes).atexit = False
        return memory

    def swapped(self, value: Any) -> Any:
        """Return a value that a loop saves as a copy in a file; small values, and values that are
        not arrays of numbers, as they are.
        """
        if type(value) is not np.ndarray or value.nbytes < SWAPPED_FROM or value.dtype.hasobject:
            return value
        return self._values.copy(value, self._swapped)

    def count(self, array: np.ndarray) -> None:
        """Count the memory of an array as in use as long as a view of it lives; raise MemoryError
        beyond the limit. Call it once per piece of memory.
        """
        # Every view of this memory keeps its base alive.
        self._count_as(array if array.base is None else array.base, array.nbytes)

    def hold(self, size: int) -> Held:
        """Count `size` bytes that are not this process's own to give out, such as those of another
        library's array; raise MemoryError beyond the limit.
        """
        held = Held(size)
        self._count_as(held, size)
        return held

    def _count_as(self, owner: Any, size: int) -> None:
        self._check(size)
        with self._lock:
            self._in_use += size
            self._peak = max(self._peak, self._in_use)
            self._largest = max(self._largest, size)
            self._count += 1
        weakref.finalize(owner, self._freed, size).atexit = False

    def _check(self, size: int) -> None:
        if self._limit is not None and self._in_use + size > self._limit:
            raise MemoryError(
                f"OOM: {size:,} bytes were requested, but {self._in_use:,} of the device's "
                f"{self._limit:,} are in use"
            )

    def _freed(self, size: int) -> None:
        with self._lock:
            self._in_use -= size

    def _unswapped(self, size: int) -> None:
        with self._lock:
            self._swapped -= size

    def statistics(self) -> Statistics:
        """Return the statistics of all blocks that were given out so far."""
        with self._lock:
            counts = self._in_use, self._peak, self._largest, self._count
            swapped = self._swapped, self._swapped_peak
        return Statistics(*counts, self.limit, *swapped)
