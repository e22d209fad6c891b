"""Place the barriers of a plan. In: calls whose buffers are placed. Out: the same calls, each with
a barrier before it if it conflicts with a call since the last barrier: both touch the same bytes,
and at least one of them writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.plan.plan import Buffer, Call, Jump

__all__ = ["conflicts", "with_barriers"]


class _Range(NamedTuple):
    """Bytes [start, end) of the arena, or of an array that the caller gives."""

    where: Any
    start: int
    end: int

    def meets(self, other: _Range) -> bool:
        return self.where == other.where and self.start < other.end and other.start < self.end


def with_barriers(calls: Sequence[Call], buffers: Sequence[Buffer]) -> list[Call]:
    """Return the calls, each with a barrier before it if it needs one."""
    result: list[Call] = []
    read: list[_Range] = []
    written: list[_Range] = []
    for call in calls:
        if isinstance(call.kernel, Jump) or is_foreign(call.kernel):
            result.append(call)  # all threads meet there anyway
            read, written = [], []
            continue
        reads, writes = _touched(call, buffers)
        barrier = _meet(writes, read) or _meet(writes, written) or _meet(reads, written)
        if barrier:
            read, written = [], []
        read += reads
        written += writes
        result.append(replace(call, barrier=barrier))
    return result


def conflicts(a: Call, b: Call, buffers: Sequence[Buffer]) -> bool:
    """Return whether two calls touch the same bytes and at least one of them writes."""
    (reads, writes), (others, written) = _touched(a, buffers), _touched(b, buffers)
    return _meet(writes, others) or _meet(writes, written) or _meet(reads, written)


def _meet(ours: Sequence[_Range], theirs: Sequence[_Range]) -> bool:
    return any(a.meets(b) for a in ours for b in theirs)


def _touched(call: Call, buffers: Sequence[Buffer]) -> tuple[list[_Range], list[_Range]]:
    """Return the ranges that a call reads and those that it writes."""
    reads, writes = [], []
    for name, number in zip(call.kernel.arguments, call.buffers, strict=True):
        buffer = buffers[number]
        if buffer.kind == "arena":
            place = _Range("arena", buffer.offset, buffer.offset + buffer.size)
        elif buffer.kind == "constant":
            place = _Range(("constant", number), 0, buffer.size)
        else:
            place = _Range((buffer.kind, buffer.index), 0, buffer.size)
        if not name.startswith("out:"):
            reads.append(place)
        if name.startswith(("out:", "inout:")):
            writes.append(place)
    return reads, writes
