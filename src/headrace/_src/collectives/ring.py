"""The ring: a state machine without I/O. In: segments that come from the member before. Out: what
to compute, and what to send to the member behind.

A space is divided into as many chunks as there are members, and chunks into segments. The sum of
chunk c begins at member c: it sends its own values on, every member adds its own, and the last one
has the sum. The sum then goes round once more. Each segment travels by itself, so that sending,
receiving and adding overlap, and each member sends 2 (n - 1) / n of the space.

Nothing waits for anything but its own segment: segments of different collectives, or of members
that started them in different orders, never hold each other up.

Invariant: each segment is combined once and stored once at each member. State: `_left`, how many
segments this member has yet to finish; `_seen` those that have come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace._src.collectives.shares import TensorPiece
from headrace._src.core.errors import InternalError

__all__ = ["Do", "PARTIAL", "Ring", "TOTAL"]

PARTIAL: Final = 0  # the segment holds the sum of some members
TOTAL: Final = 1  # the sum of all


@dataclass(frozen=True, slots=True)
class Do:
    """What to do with a piece.

    combine: add the received values to the own ones. last: this completes the sum. store: keep the
    received values as the result. send: then send the piece on as PARTIAL or TOTAL; None: do not.
    """

    chunk: int
    segment: int
    piece: TensorPiece
    combine: bool = False
    last: bool = False
    store: bool = False
    send: int | None = None


class Ring:
    """One member's part in one all-reduce.

    segments: for each chunk, its pieces.
    """

    def __init__(self, index: int, segments: Sequence[Sequence[TensorPiece]]) -> None:
        self._index = index
        self._members = len(segments)
        self._segments = segments
        self._seen: set[tuple[int, int, int]] = set()
        self._left = sum(map(len, segments))

    @property
    def is_over(self) -> bool:
        """Whether this member has all results and has said all that it has to send."""
        return self._left == 0

    def start(self) -> list[Do]:
        """Return what to send first: the own values of the chunk that begins here."""
        chunk = self._index
        return [Do(chunk, i, piece, send=PARTIAL) for i, piece in enumerate(self._segments[chunk])]

    def received(self, phase: int, chunk: int, segment: int) -> Do:
        """Return what to do with a segment that has come."""
        key = phase, chunk, segment
        hops = (self._index - chunk) % self._members  # from the member where the chunk began
        allowed = hops != 0 if phase == PARTIAL else hops != self._members - 1
        if (
            phase not in (PARTIAL, TOTAL)
            or not 0 <= chunk < self._members
            or not 0 <= segment < len(self._segments[chunk])
            or key in self._seen
            or not allowed
        ):
            raise InternalError(None, None, f"segment {key} does not belong here")
        self._seen.add(key)
        piece = self._segments[chunk][segment]
        if phase == PARTIAL:
            last = hops == self._members - 1
            if last:
                self._left -= 1
            return Do(
                chunk, segment, piece, combine=True, last=last, send=TOTAL if last else PARTIAL
            )
        self._left -= 1
        # The member before the one that completed the sum is the last to get it.
        on = hops != self._members - 2
        return Do(chunk, segment, piece, store=True, send=TOTAL if on else None)
