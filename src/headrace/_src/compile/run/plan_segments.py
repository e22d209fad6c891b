"""Divide the calls of a plan into segments, which the driver runs one after the other. In: calls.
Out: (kind, first, end) of each segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.plan.plan import Call, Jump
from headrace._src.compile.run import header_words

__all__ = ["kind_of", "segments"]


def segments(calls: Sequence[Call]) -> list[tuple[int, int, int]]:
    """Divide calls into runs (kind, first, end): foreign calls, small ones at either side of team
    kernels, and what is left: one parallel region each. A loop or branch stays in one run, unless
    something foreign is in it: then each of its jumps is a run by itself, whose `end` is the number
    of the run that it leads to.
    """
    kinds = [kind_of(c) for c in calls]
    jumps: dict[int, int] = {}
    for first, end in _spans(calls):
        if header_words.FOREIGN in kinds[first:end]:
            own = (i for i in range(first, end) if kinds[i] == header_words.JUMP)
            jumps.update({i: calls[i].kernel.target for i in own})
        else:
            kind = (
                header_words.TEAM if header_words.TEAM in kinds[first:end] else header_words.ALONE
            )
            kinds[first:end] = [kind] * (end - first)
    cuts = sorted({0, len(calls), *jumps, *(i + 1 for i in jumps), *jumps.values()})
    result: list[tuple[int, int, int]] = []
    numbers: dict[int, int] = {}
    for first, end in pairwise(cuts):
        numbers[first] = len(result)
        if first in jumps:
            result.append((header_words.JUMP, first, jumps[first]))
        else:
            result += _runs(kinds, first, end)
    numbers[len(calls)] = len(result)
    return [(k, a, numbers[b] if k == header_words.JUMP else b) for k, a, b in result]


def _spans(calls: Sequence[Call]) -> list[tuple[int, int]]:
    """Return the ranges of calls that jumps span, forward or back, merged where they overlap."""
    found: list[tuple[int, int]] = []
    for i, call in enumerate(calls):
        if kind_of(call) == header_words.JUMP:
            target = call.kernel.target
            found.append((min(i, target), max(i + 1, target)))
    merged: list[tuple[int, int]] = []
    for first, end in sorted(found):
        if merged and first < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


def _runs(kinds: Sequence[int], first: int, stop: int) -> list[tuple[int, int, int]]:
    """The runs of calls [first, stop) of these kinds, none of which is a jump."""
    result: list[tuple[int, int, int]] = []

    def add(kind: int, first: int, end: int) -> None:
        if first < end:
            result.append((kind, first, end))

    while first < stop:
        foreign = kinds[first] == header_words.FOREIGN
        end = first
        while end < stop and (kinds[end] == header_words.FOREIGN) == foreign:
            end += 1
        large = [i for i in range(first, end) if kinds[i] == header_words.TEAM]
        if foreign:
            add(header_words.FOREIGN, first, end)
        elif large:
            add(header_words.ALONE, first, large[0])
            add(header_words.TEAM, large[0], large[-1] + 1)
            add(header_words.ALONE, large[-1] + 1, end)
        else:
            add(header_words.ALONE, first, end)
        first = end
    return result


def kind_of(call: Call) -> int:
    """Return the kind of a call: run by a team, by one thread, by another library, or a jump."""
    if isinstance(call.kernel, Jump):
        return header_words.JUMP
    if is_foreign(call.kernel):
        return header_words.FOREIGN
    return header_words.ALONE if getattr(call.kernel, "small", False) else header_words.TEAM
