"""Plan memory. In: when each buffer is written first and read last. Out: offsets in one arena.

Buffers that live at the same time never overlap; others share memory. Large buffers are placed
first, each at the lowest place that is free for all of its life: a greedy packing that stays within
a few percent of the peak of live bytes (which no packing can beat) on the networks that we measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Lifetime", "live_peak", "pack"]

ALIGNMENT = 64
_PAGE = 4096
_LARGE = 64 * 1024  # such buffers start at a page


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer's size in bytes and the calls between which it is in use, both included."""

    size: int
    first: int
    last: int


def pack(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return the offset of each buffer and the arena's size."""
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].size, i)):
        life = lifetimes[i]
        align = _PAGE if life.size >= _LARGE else ALIGNMENT
        taken = sorted(
            (offsets[j], offsets[j] + lifetimes[j].size)
            for j in placed
            if lifetimes[j].first <= life.last and life.first <= lifetimes[j].last
        )
        offsets[i] = _first_gap(taken, life.size, align)
        total = max(total, offsets[i] + life.size)
        placed.append(i)
    return offsets, -(-total // ALIGNMENT) * ALIGNMENT


def _first_gap(taken: Sequence[tuple[int, int]], size: int, align: int) -> int:
    at = 0
    for start, stop in taken:
        if at + size <= start:
            break
        at = max(at, -(-stop // align) * align)
    return at


def live_peak(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that live at once: what no packing can beat."""
    if not lifetimes:
        return 0
    change = [0] * (max(life.last for life in lifetimes) + 2)
    for life in lifetimes:
        change[life.first] += life.size
        change[life.last + 1] -= life.size
    peak = now = 0
    for delta in change:
        now += delta
        peak = max(peak, now)
    return peak
