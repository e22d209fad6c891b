"""Memory for received tensors. In: sizes. Out: buffers that come back when nobody uses them.

Fresh memory costs a page fault for every 4 KB, which is slower than receiving; so large buffers are
used again.

A `MemoryOwner` owns the memory of arrays: arrays made of it, and views of those, keep it alive, so
a weak reference to it tells when the last of them is gone. It is a class of its own because NumPy
lets a view refer to the memory's original owner, past arrays of the same class in between.

State: `_free` buffers by size, `_kept` their bytes, `_loans` the weak references, under `_lock`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from headrace._src.core.locks import RLock

__all__ = ["MemoryOwner", "Pool", "receive_pool", "when_unused"]

POOLED: Final = 1 << 20  # bytes; the C library keeps smaller pieces itself
KEPT: Final = 1 << 30  # bytes in unused buffers


class MemoryOwner(np.ndarray):
    """The owner of memory that arrays refer to."""


class _Loan(weakref.ref):
    __slots__ = ("call",)

    call: Callable[[], Any]


_loans: dict[int, _Loan] = {}


def when_unused(buffer: MemoryOwner, call: Callable[[], Any]) -> None:
    """Call a function when no array refers to a buffer any more. The call comes in any thread, at
    any point of its program; it must not wait for a lock that the same thread may hold.
    """
    loan = _Loan(buffer, _ended)
    loan.call = call
    _loans[id(loan)] = loan


def _ended(loan: _Loan) -> None:
    del _loans[id(loan)]
    loan.call()


class Pool:
    """Buffers of at least POOLED bytes, used again."""

    def __init__(self, kept: int = KEPT) -> None:
        self._limit = kept
        self._lock = RLock()  # reentrant: buffers come back at any point of a thread's program
        self._free: dict[int, list[MemoryOwner]] = {}
        self._kept = 0

    def take(self, nbytes: int) -> Any:
        """Return a writable buffer with at least that many bytes at 64-byte boundaries."""
        if nbytes < POOLED:
            return np.empty(nbytes, np.uint8)
        step = 1 << (nbytes.bit_length() - 4)  # up to an eighth is wasted
        size = -(-nbytes // step) * step
        with self._lock:
            found = self._free.get(size)
            raw = found.pop() if found else None
            if raw is not None:
                self._kept -= size
        if raw is None:
            raw = np.ndarray.__new__(MemoryOwner, (size,), np.uint8)
        buffer: Any = raw[:nbytes]
        when_unused(buffer, lambda: self._back(raw))
        return buffer

    def _back(self, raw: MemoryOwner) -> None:
        with self._lock:
            if self._kept + raw.nbytes <= self._limit:
                self._kept += raw.nbytes
                self._free.setdefault(raw.nbytes, []).append(raw)


receive_pool: Final = Pool()
