"""Verify plans. In: a Plan. Out: nothing; it raises InternalError for the first broken promise.

The verifier relies on nothing that the planner computed. It doesn't recompute lifetimes but follows
all paths through the calls and jumps: on a path, each buffer is unwritten, holds its contents, or
was overwritten by another buffer in the same bytes of the arena. Every read must find the buffer's
own contents. So a buffer that one iteration fills and a later one reads must keep its bytes through
the whole loop, whatever lifetime the planner assumed.
"""

from __future__ import annotations

from typing import Any

from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.plan.plan import KINDS, Buffer, Call, Jump, Plan
from headrace._src.compile.plan.team_barriers import conflicts
from headrace._src.core.errors import InternalError

__all__ = ["verify_plan"]

_UNWRITTEN, _VALID, _OVERWRITTEN = 1, 2, 4  # the states of a buffer on a path to a call, as bits
_WORDS = ("inout:status", "inout:fault")
_GIVEN = (
    "input",
    "variable",
    "constant",
    "list",
)  # kinds of buffers that have contents before the first call


def verify_plan(plan: Plan) -> None:
    """Check that a plan, or a fragment of one, keeps its promises:

    - a buffer lies inside the arena, in the part that is in memory or in that of the file, or
      inside the buffer that it is a part of;
    - a call has the arguments that its kernel declares; it writes neither inputs nor constants, nor
      bytes of another of its arguments;
    - a jump leads to a call, or to the end;
    - a buffer that is read was written, and not overwritten since; outputs are written on some
      path;
    - two calls without a barrier between them don't touch the same bytes if one of them writes.
    """
    _check_buffers(plan)
    for number, call in enumerate(plan.calls):
        _check_call(plan, number, call)
    _Contents(plan).check()
    _check_barriers(plan)


# -- Buffers and calls by themselves ---------------------------------------------------------------


def _check_buffers(plan: Plan) -> None:
    buffers = plan.buffers
    for i, b in enumerate(buffers):
        if b.kind not in KINDS:
            raise _wrong(f"b{i} is of kind {b.kind!r}")
        if b.kind == "constant" and (b.value is None or b.value.nbytes != b.size):
            raise _wrong(f"constant b{i} has no value of {b.size} bytes")
        if b.kind != "arena":
            continue
        if b.whole >= 0:
            w = buffers[b.whole]
            if not (w.offset <= b.offset and b.offset + b.size <= w.offset + w.size):
                raise _wrong(f"b{i} is a part of b{b.whole}, but lies outside it")
        used = any(i in call.buffers for call in plan.calls)
        first, size = (plan.arena, plan.swapped) if b.swapped else (0, plan.arena)
        if used and not first <= b.offset <= first + size - b.size:
            raise _wrong(f"b{i} lies outside the arena: {b.size} bytes at {b.offset}")
    if plan.fault is not None and buffers[plan.fault].dtype != "int64":
        raise _wrong(f"the fault word b{plan.fault} is of {buffers[plan.fault].dtype}")


def _check_call(plan: Plan, number: int, call: Call) -> None:
    names, kernel = call.kernel.arguments, call.kernel
    if len(names) != len(call.buffers):
        raise _wrong(
            f"call {number} has {len(call.buffers)} buffers for the arguments {names}", call
        )
    for b in call.buffers:
        if not 0 <= b < len(plan.buffers):
            raise _wrong(f"call {number} uses b{b}, which does not exist", call)
    if isinstance(kernel, Jump) and not 0 <= kernel.target <= len(plan.calls):
        raise _wrong(f"call {number} jumps to {kernel.target}, of {len(plan.calls)} calls", call)
    for name, b in zip(names, call.buffers, strict=True):
        if not _writes(name):
            continue
        if plan.buffers[b].kind in ("input", "constant"):
            raise _wrong(f"call {number} writes b{b}, which is {plan.buffers[b]}", call)
        for other in call.buffers:
            if _root(plan, other) != _root(plan, b) and _meet(plan.buffers[other], plan.buffers[b]):
                raise _wrong(f"call {number} writes b{b} over its argument b{other}", call)


def _writes(name: str) -> bool:
    return name.startswith(("out:", "inout:"))


def _reads(call: Call, name: str) -> bool:
    """Return whether a kernel reads an argument's contents: it doesn't if it only fills some rows
    of it, or only sets a word to report an error.
    """
    fills = getattr(call.kernel, "fills", ())
    return not name.startswith("out:") and name not in (*fills, *_WORDS)


def _root(plan: Plan, number: int) -> Any:
    """Return the owner of a buffer's bytes: the outermost buffer around it, or the
    caller's array.
    """
    buffer = plan.buffers[number]
    while buffer.whole >= 0:
        number, buffer = buffer.whole, plan.buffers[buffer.whole]
    return number if buffer.kind in ("arena", "constant") else (buffer.kind, buffer.index)


def _meet(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers of the arena have bytes in common."""
    both = a.kind == b.kind == "arena"
    return both and a.offset < b.offset + b.size and b.offset < a.offset + a.size


def _check_barriers(plan: Plan) -> None:
    since: list[tuple[int, Call]] = []
    for number, call in enumerate(plan.calls):
        if isinstance(call.kernel, Jump) or is_foreign(call.kernel):
            since = []  # all threads meet there anyway
            continue
        if call.barrier:
            since = []
        for before, other in since:
            if conflicts(other, call, plan.buffers):
                raise _wrong(f"calls {before} and {number} conflict, and no barrier separates them")
        since.append((number, call))


# -- What is in the buffers ------------------------------------------------------------------------


class _Contents:
    """The contents of buffers along all paths. `_same`: the buffers that share contents with each
    buffer; `_others`: the buffers whose contents are lost when it is written.

    A state has the possible states of each buffer. `_before` has the state before each call, and at
    the end.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        used = sorted({b for call in plan.calls for b in call.buffers})
        roots = {b: _root(plan, b) for b in used}
        sharing: dict[Any, list[int]] = {}
        for b in used:
            sharing.setdefault(roots[b], []).append(b)
        self._same = {b: sharing[roots[b]] for b in used}
        self._others: dict[int, list[int]] = {b: [] for b in used}
        arena = [b for b in used if plan.buffers[b].kind == "arena"]
        arena.sort(key=lambda b: plan.buffers[b].offset)
        for i, a in enumerate(arena):
            end = plan.buffers[a].offset + plan.buffers[a].size
            for b in arena[i + 1 :]:
                if plan.buffers[b].offset >= end:
                    break
                if roots[a] != roots[b]:
                    self._others[a].append(b)
                    self._others[b].append(a)
        for b in arena:
            self._same[b] = [c for c in self._same[b] if _meet(plan.buffers[b], plan.buffers[c])]
        self._before: list[bytearray | None] = [None] * (len(plan.calls) + 1)

    def check(self) -> None:
        """Follow all paths until no state changes, then check every read."""
        calls = self._plan.calls
        kinds = [b.kind for b in self._plan.buffers]
        start = bytearray(_VALID if kind in _GIVEN else _UNWRITTEN for kind in kinds)
        self._before[0] = start
        waiting = {0}
        while waiting:
            number = min(waiting)
            waiting.remove(number)
            if number == len(calls):
                continue
            state = bytearray(self._before[number])  # type: ignore[arg-type]
            self._write(calls[number], state)
            waiting.update(t for t in _following(number, calls[number]) if self._reach(t, state))
        for number, call in enumerate(calls):
            state = self._before[number]
            if state is not None:  # else no path leads there
                self._check_reads(number, call, state)
        self._check_end(self._before[-1])

    def _reach(self, number: int, state: bytearray) -> bool:
        """Merge a state into that before a call; return whether it changed."""
        known = self._before[number]
        joined = state if known is None else bytearray(a | b for a, b in zip(known, state))
        self._before[number] = bytearray(joined)
        return joined != known

    def _write(self, call: Call, state: bytearray) -> None:
        for name, b in zip(call.kernel.arguments, call.buffers, strict=True):
            if _writes(name):
                for other in self._others[b]:
                    if state[other] & _VALID:
                        state[other] = (state[other] & ~_VALID) | _OVERWRITTEN
                # An update of a part doesn't restore the rest.
                lost = 0 if name.startswith("out:") else _OVERWRITTEN
                for same in self._same[b]:
                    state[same] = _VALID | (state[same] & lost)

    def _check_reads(self, number: int, call: Call, state: bytearray) -> None:
        read = [
            b
            for name, b in zip(call.kernel.arguments, call.buffers, strict=True)
            if _reads(call, name)
        ]
        if isinstance(call.kernel, Jump) and self._plan.fault is not None:
            read.append(self._plan.fault)  # the driver looks at it
        for b in read:
            if state[b] & _OVERWRITTEN:
                names = ", ".join(f"b{other}" for other in self._others[b])
                raise _wrong(
                    f"call {number} reads b{b} ({self._plan.buffers[b]}), which was overwritten "
                    f"by another buffer ({names})",
                    call,
                )
            if state[b] == _UNWRITTEN:
                raise _wrong(f"call {number} reads b{b} before it is written", call)

    def _check_end(self, state: bytearray | None) -> None:
        if state is None:
            raise _wrong("no path leads to the end")
        written = {b: state[b] for b in self._same}
        for b, buffer in enumerate(self._plan.buffers):
            # A value of one side of a branch is undefined after the other side, and has no reader.
            if buffer.kind == "output" and written.get(b, _UNWRITTEN) & ~_UNWRITTEN != _VALID:
                raise _wrong(f"output b{b} ({buffer}) is not written, or overwritten")


def _following(number: int, call: Call) -> tuple[int, ...]:
    """The calls that may come next."""
    if not isinstance(call.kernel, Jump):
        return (number + 1,)
    ahead = (number + 1,) if call.kernel.conditional else ()
    return (*ahead, call.kernel.target)


def _wrong(what: str, call: Call | None = None) -> InternalError:
    shown = "" if call is None else f": {call.kernel} {call.label}".rstrip()
    return InternalError(None, None, f"a plan is wrong: {what}{shown}")
