"""Copy the values of tensors while training continues. In: tensors of a session. Out: arrays that
belong to the caller until the next snapshot.

Snapshots reuse the same memory. Copying into existing memory takes less than half the time of
copying into new memory, which the system has to clear first. The arrays lie one after the other,
without gaps, as they will in a file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from headrace._src.devices.blocks import block
from headrace._src.graph.operation import Tensor
from headrace._src.session.session import BaseSession

__all__ = ["Snapshots"]


class Snapshots:
    """Snapshots of one list of tensors, one at a time. State: the arrays of the last snapshot."""

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def begin(self, session: BaseSession, tensors: Sequence[Tensor]) -> Snapshot:
        """Return a snapshot of `tensors`, not copied yet; it is valid until the next call."""
        values = [np.asarray(value) for value in session._look_at(tensors)]
        plain = [value for value in values if not value.dtype.hasobject]
        if list(map(_kind, plain)) != list(map(_kind, self._arrays)):
            self._arrays = _room_for(plain)
        rooms = iter(self._arrays)
        return Snapshot(values, [v.copy() if v.dtype.hasobject else next(rooms) for v in values])


class Snapshot:
    """Values that are being copied to `arrays`; another thread may use those already copied."""

    def __init__(self, values: Sequence[np.ndarray], arrays: Sequence[np.ndarray]) -> None:
        self.arrays = list(arrays)
        self._values = values
        self._copied = [threading.Event() for _ in values]
        self._whole = False

    def copy(self) -> None:
        """Copy all values, one after the other; they must not change until this returns."""
        try:
            for array, value, copied in zip(self.arrays, self._values, self._copied, strict=True):
                if not array.dtype.hasobject:
                    np.copyto(array, value)
                copied.set()
            self._whole = True
        finally:
            self._values = ()
            for copied in self._copied:
                copied.set()

    def wait_for(self, number: int) -> None:
        """Wait until the array with this number is copied."""
        self._copied[number].wait()
        if not self._whole and not self._values:
            raise RuntimeError("the values could not be copied")


def _kind(value: np.ndarray) -> Any:
    return value.shape, value.dtype


def _room_for(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return uninitialised arrays like these, contiguous in one block of memory."""
    ends = list(accumulate((value.nbytes for value in values), initial=0))
    memory = block(ends[-1])
    return [
        np.ndarray(value.shape, value.dtype, memory.data, start)
        for value, start in zip(values, ends, strict=False)
    ]
