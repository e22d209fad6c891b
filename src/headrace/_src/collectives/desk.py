"""What a process tells the others of its host, in memory that they can read. In: names of
collectives. Out: a line of words for each.

Every process has a *desk*. It alone writes there, and the others read it, so nothing has to be
locked. The desk lists the collectives that its process has begun, by key, each with a line of eight
words: how often it was begun and done, where its buffers are, and whether its process sleeps.

Invariant: a line is complete before its key is, and its key before the count of lines. The
buffers of one round are valid from the word ARRIVED until all processes have set DONE.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from headrace._src.core import errors

__all__ = [
    "ARRIVED",
    "ASLEEP",
    "BUFFERS",
    "DESK_BYTES",
    "DONE",
    "SIGNATURE",
    "Desk",
    "memory_at",
]

SLOTS: Final = 2048
_KEYS: Final = 8  # words before the keys: the count of lines
_LINES: Final = _KEYS + SLOTS
_WORDS: Final = 8  # of a line: 64 bytes, so that no two processes write to one
DESK_BYTES: Final = 8 * (_LINES + SLOTS * _WORDS)
# The words of a line. ASLEEP is the round whose end the process waits for without looking.
ARRIVED, DONE, BUFFERS, SIGNATURE, ASLEEP = range(5)


def memory_at(address: int, nbytes: int) -> np.ndarray:
    """Return the bytes at an address. The caller sees to it that they stay there."""
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memory, np.uint8)


class Desk:
    """The desk at an address: this process's own, or another one's.

    base, size: the memory of its process, as this process has mapped it
    """

    def __init__(self, address: int, base: int, size: int) -> None:
        self.base, self.size = base, size
        self._address = address
        self._words = memory_at(address, DESK_BYTES).view(np.int64)
        self._slots: dict[int, int] = {}
        self._known = 0

    def clear(self) -> None:
        """Begin with no lines; only the owner does this, before anybody else knows the desk."""
        self._words[:] = 0

    def add(self, key: int) -> int:
        """Return the number of a new line, as the owner."""
        slot = int(self._words[0])
        if slot >= SLOTS:
            raise errors.ResourceExhaustedError(
                None, None, f"a process can have {SLOTS} different collectives with others"
            )
        self._words[_KEYS + slot] = key
        self._words[0] = slot + 1
        self._slots[key] = slot
        return slot

    def find(self, key: int) -> int | None:
        """Return the number of a key's line, None if the owner has not begun that collective."""
        found = self._slots.get(key)
        if found is None:
            count = min(int(self._words[0]), SLOTS)
            for slot in range(self._known, count):
                self._slots[int(self._words[_KEYS + slot])] = slot
            self._known = count
            found = self._slots.get(key)
        return found

    def address(self, slot: int) -> int:
        """Return the address of a line."""
        return self._address + 8 * (_LINES + slot * _WORDS)

    def line(self, slot: int) -> np.ndarray:
        """Return the words of a line."""
        start = _LINES + slot * _WORDS
        return self._words[start : start + _WORDS]

    def words(self, offset: int, count: int) -> np.ndarray:
        """Return words elsewhere in the memory of the process."""
        if offset < 0 or offset % 8 or count < 0 or offset + 8 * count > self.size:
            raise errors.InternalError(None, None, f"no {count} words at {offset} of a process")
        return memory_at(self.base + offset, 8 * count).view(np.int64)
