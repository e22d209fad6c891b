"""Divide calls into phases, between which a team meets. In: calls. Out: rows, and phases of rows.

A *row* is one native call by the driver: a call of the plan, or the part of one that follows one of
its kernel's own meetings. The rows of a *phase* don't depend on each other: they are calls without
a barrier between them, and all first parts come before all second ones. A jump or a foreign call is
a phase by itself. A loop's first call begins a phase, since the targets of jumps are phases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.kernel_spec import meetings_of
from headrace._src.compile.plan.plan import Call
from headrace._src.compile.run import header_words
from headrace._src.compile.run.header_words import How
from headrace._src.compile.run.plan_segments import kind_of

__all__ = ["Phase", "PhaseCall", "phases_of"]


@dataclass(frozen=True, slots=True)
class PhaseCall:
    """A call, by its number, from one of its kernel's meetings to the next."""

    call: int
    meeting: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """rows: the numbers of the first row and of the one after the last. target: the call that a
    jump leads to.
    """

    how: How
    first: int
    end: int
    target: int = 0


def phases_of(
    calls: Sequence[Call], starts: Collection[int]
) -> tuple[list[PhaseCall], list[Phase]]:
    """Return all rows in the order in which they run, and the phases that they are divided into.
    `starts`: calls that always begin a phase.
    """
    rows: list[PhaseCall] = []
    phases: list[Phase] = []
    meetings = list(map(_meetings, calls))
    for group in _groups(calls, starts):
        parts = 1 + max(meetings[i] for i in group)
        for meeting in range(parts):
            first = len(rows)
            rows += [PhaseCall(i, meeting) for i in group if meetings[i] >= meeting]
            phases.append(_phase([calls[r.call] for r in rows[first:]], first))
    return rows, phases


def _groups(calls: Sequence[Call], starts: Collection[int]) -> list[list[int]]:
    """Numbers of calls that don't depend on each other, one after the other."""
    kinds = [kind_of(c) for c in calls]
    alone = {i for i, kind in enumerate(kinds) if kind in (header_words.JUMP, header_words.FOREIGN)}
    targets = {calls[i].kernel.target for i in alone if kinds[i] == header_words.JUMP}
    first = {0, *starts, *alone, *(i + 1 for i in alone), *targets}
    groups: list[list[int]] = []
    for i, call in enumerate(calls):
        if call.barrier or i in first:
            groups.append([])
        groups[-1].append(i)
    return groups


def _meetings(call: Call) -> int:
    """Return a call's meetings; a small kernel, which is compiled for one thread, has none."""
    return meetings_of(call.kernel) if kind_of(call) == header_words.TEAM else 0


def _phase(calls: Sequence[Call], first: int) -> Phase:
    end, kernel = first + len(calls), calls[0].kernel
    kinds = {kind_of(c) for c in calls}
    if kinds == {header_words.JUMP}:
        return Phase(How.UNLESS if kernel.conditional else How.ALWAYS, first, end, kernel.target)
    return Phase(How.SMALL if kinds == {header_words.ALONE} else How.SHARED, first, end)
