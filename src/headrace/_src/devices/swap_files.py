"""Memory that lies in files. In: a size, or an array. Out: memory in a file, or a copy there.

A loop that asks for `swap_memory` keeps what it saves for its gradient here, if HEADRACE_SWAP_DIR
names a folder. The memory is a shared mapping of a file in that folder: the system writes it to the
disk when it needs the pages for something else, and reads it back. It counts neither towards a
device's memory limit nor towards RLIMIT_DATA.

A file has no name, so nothing is left of it when its memory is dropped or the process is killed.
All its blocks are allocated before it is mapped: a full disk is a MemoryError, never a signal.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.devices.buffers import ALIGNMENT

__all__ = ["SWAPPED_FROM", "SwappedValues", "file_block", "swaps"]

SWAPPED_FROM: Final = 2048  # bytes: a smaller single value stays in memory, as in TensorFlow
_SMALLEST_FILE = 1 << 24
_LARGEST_FILE = 1 << 30  # that holds several values
_ZEROS = bytes(1 << 20)


def swaps() -> bool:
    """Return whether loops that ask for `swap_memory` get memory in files."""
    return settings().swap_dir is not None


def file_block(size: int) -> np.ndarray:
    """Return `size` bytes of zeros in a file of their own; MemoryError if that can't be had."""
    folder = settings().swap_dir
    size = max(size, 1)
    try:
        with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
            _reserve(file, size)
            mapped = mmap.mmap(file.fileno(), size)
    except (OSError, OverflowError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MemoryError(
            f"can't keep {size:,} bytes that a loop with swap_memory=True saves in a file in "
            f"HEADRACE_SWAP_DIR={folder!r}: {reason}"
        ) from None
    return np.ndarray((size,), np.uint8, mapped)


def _reserve(file: Any, size: int) -> None:
    """Make a file of `size` bytes that has all its blocks on the disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    left = size
    while left:
        left -= file.write(_ZEROS[:left])


class SwappedValues:
    """Copies values to files, one after another. A file is gone when all the values in it are.

    State: weakly, the file that is being filled, where the next value goes, and the process that
    fills it: a forked child shares the file, and must not write there.
    """

    def __init__(self, block: Callable[[int], np.ndarray]) -> None:
        """block: gives memory in a file"""
        self._block = block
        self._lock = Lock()
        self._file: Callable[[], np.ndarray | None] = lambda: None
        self._next = self._process = 0

    def copy(self, value: np.ndarray, in_use: int) -> np.ndarray:
        """Return a copy of an array in a file. `in_use`: the bytes of all files, to which the size
        of a new one is adapted, so that there are never many.
        """
        size = -(-value.nbytes // ALIGNMENT) * ALIGNMENT
        with self._lock:
            file = self._file()
            if file is None or self._next + size > file.size or self._process != os.getpid():
                wanted = min(max(_SMALLEST_FILE, in_use // 4), _LARGEST_FILE)
                file = self._block(max(size, wanted))
                self._file, self._next, self._process = weakref.ref(file), 0, os.getpid()
            start = self._next
            self._next += size
        copy = np.ndarray(value.shape, value.dtype, file, start)
        np.copyto(copy, value)
        return copy
