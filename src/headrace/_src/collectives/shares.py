"""Divide a list of tensors among ranks. In: sizes in bytes. Out: ranges of bytes.

The tensors lie one after the other in a *space*, each at a multiple of 64 bytes. All functions are
pure, and give every rank the same answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["ALIGN", "TensorPiece", "cut", "pieces", "place", "share"]

ALIGN: Final = 64  # bytes: a cache line, and the widest vector


class TensorPiece(NamedTuple):
    """A range of bytes in one tensor."""

    tensor: int
    start: int
    stop: int


def place(sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return where each tensor begins in the space, and the size of the space."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // ALIGN) * ALIGN
    return tuple(starts), end


def share(total: int, count: int, index: int) -> tuple[int, int]:
    """Return the range of the space that member `index` of `count` reduces."""
    lines = total // ALIGN
    return lines * index // count * ALIGN, lines * (index + 1) // count * ALIGN


def pieces(
    starts: Sequence[int], sizes: Sequence[int], low: int, high: int
) -> Iterator[TensorPiece]:
    """Yield the pieces of tensors that lie in the range [low, high) of the space."""
    tensor = max(0, bisect_right(starts, low) - 1)
    while tensor < len(sizes) and starts[tensor] < high:
        start = max(0, low - starts[tensor])
        stop = min(sizes[tensor], high - starts[tensor])
        if start < stop:
            yield TensorPiece(tensor, start, stop)
        tensor += 1


def cut(found: Iterator[TensorPiece], most: int) -> list[TensorPiece]:
    """Cut pieces so that none has more than `most` bytes, a multiple of ALIGN."""
    return [
        TensorPiece(tensor, at, min(at + most, stop))
        for tensor, start, stop in found
        for at in range(start, stop, most)
    ]
