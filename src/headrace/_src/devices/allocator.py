"""Allocator: memory of a device that outlives a kernel. In: sizes. Out: blocks, and statistics.

Variables' storage and compiled steps' working memory come from here. What one kernel makes and the
next one reads is NumPy's and is not counted.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from headrace._src.core.locks import RLock
from headrace._src.devices.blocks import block, memory_limit

__all__ = ["Allocator", "Statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a device's allocator has given out, in bytes, and how often."""

    in_use: int
    peak: int
    largest: int
    allocations: int
    limit: int


class Allocator:
    """Gives out blocks of memory, up to a limit (by default, what this machine can have)."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = RLock()  # a block may be freed while a call holds it
        self._in_use = self._peak = self._largest = self._count = 0

    @property
    def limit(self) -> int:
        return memory_limit() if self._limit is None else self._limit

    def block(self, size: int) -> np.ndarray:
        """`size` bytes, not initialised, aligned; MemoryError beyond the limit."""
        self._check(size)
        memory = block(size)
        self.count(memory)
        return memory

    def count(self, array: np.ndarray) -> None:
        """Count an array that is the first of its memory, as long as a view of it lives;
        MemoryError beyond the limit.
        """
        size = array.nbytes
        self._check(size)
        with self._lock:
            self._in_use += size
            self._peak = max(self._peak, self._in_use)
            self._largest = max(self._largest, size)
            self._count += 1
        # All that views this memory holds its base.
        owner = array if array.base is None else array.base
        weakref.finalize(owner, self._freed, size).atexit = False

    def _check(self, size: int) -> None:
        if self._limit is not None and self._in_use + size > self._limit:
            raise MemoryError(
                f"OOM: {size:,} bytes are asked for, {self._in_use:,} of the device's "
                f"{self._limit:,} are in use"
            )

    def _freed(self, size: int) -> None:
        with self._lock:
            self._in_use -= size

    def statistics(self) -> Statistics:
        """What was given out so far."""
        with self._lock:
            counts = self._in_use, self._peak, self._largest, self._count
        return Statistics(*counts, self.limit)
