"""Calls of a plan in the making, with the jumps and loops among them. In: kernels on buffers, one
after the other. Out: the calls in order, and between which of them each buffer lives.

A part of a loop or branch adds to the same calls as what is around it. Jumps lead to calls by their
number, which changes when something is put before a loop: `_insert` sees to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.compile.plan import Call, Jump

__all__ = ["Calls"]


@dataclass
class _Loop:
    """Calls [start, end) that run again and again. `early`: what it needs once, before."""

    start: int
    invariants: frozenset[int]
    trips: int | None
    around: _Loop | None
    end: int = -1
    early: list[Call] = field(default_factory=list)


class Calls:
    """Calls in order. `kept` are buffers whose contents go from one iteration to the next, `parts`
    are buffers inside of others: in which, and at which byte. `fault` is the buffer of a word which
    ends the step when a kernel sets it. `group` is what calls are added for.

    State: what runs before all else, the loops that have ended, the innermost that has not.
    """

    def __init__(self, outer: Calls | None = None) -> None:
        """outer: what this is a part of"""
        self._outer = outer
        self.calls: list[Call] = [] if outer is None else outer.calls
        self.kept: set[int] = set() if outer is None else outer.kept
        self.parts: dict[int, tuple[int, int]] = {} if outer is None else outer.parts
        self.fault: int | None = None if outer is None else outer.fault
        self.group: Any = None if outer is None else outer.group
        self._start: list[Call] = [] if outer is None else outer._start
        self._loops: list[_Loop] = [] if outer is None else outer._loops
        self._around: _Loop | None = None if outer is None else outer._around

    @property
    def is_inside(self) -> bool:
        """Whether what is built is a part of a loop or branch."""
        return self._outer is not None

    def call(self, kernel: Any, buffers: Sequence[int], label: str = "") -> None:
        """Run a kernel next."""
        if len(kernel.arguments) != len(buffers):
            raise AssertionError(f"{kernel} takes {kernel.arguments}, not {len(buffers)} buffers")
        self.calls.append(Call(kernel, tuple(buffers), label, group=self.group))

    def jump(self, flag: int | None = None, target: int = -1) -> int:
        """Go on elsewhere, if there is a flag only when it's false; the number of the jump."""
        buffers = () if flag is None else (flag,)
        self.calls.append(Call(Jump(target, flag is not None), buffers, group=self.group))
        return len(self.calls) - 1

    def land(self, jump: int) -> None:
        """Let a jump lead to what comes next."""
        call = self.calls[jump]
        self.calls[jump] = replace(call, kernel=replace(call.kernel, target=len(self.calls)))

    def set_fault(self, buffer: int) -> None:
        """Let a word end the step when a kernel sets it."""
        self.fault = buffer
        if self._outer is not None:
            self._outer.set_fault(buffer)

    @contextmanager
    def at_start(self) -> Iterator[None]:
        """What is added inside the with-block runs before all else."""
        calls, self.calls = self.calls, self._start
        try:
            yield
        finally:
            self.calls = calls

    # -- Loops -----------------------------------------------------------------------------------

    @contextmanager
    def loop(self, invariants: Sequence[int], trips: int | None = None) -> Iterator[int]:
        """What is added inside the with-block runs again and again, `trips` times if that is known;
        `invariants` are buffers that don't change meanwhile. Yields the number of its first call.
        """
        outer = self._around
        loop = _Loop(len(self.calls), frozenset(invariants), trips, outer)
        self._around = loop
        yield loop.start
        self._around = outer
        loop.end = len(self.calls)
        self._loops.append(loop)
        if loop.early:
            self._insert(loop.start, loop.early)

    def trips(self) -> int | None:
        """How often what is added now runs at most, in all loops around it together; None if that
        isn't known.
        """
        count, loop = 1, self._around
        while loop is not None:
            if loop.trips is None:
                return None
            count, loop = count * max(1, loop.trips), loop.around
        return count

    def stays(self, buffer: int | None) -> bool:
        """Whether a buffer is the same in all iterations of the loop that is being built."""
        return self._around is not None and buffer in self._around.invariants

    def early(self, kernel: Any, buffers: Sequence[int], reads: int, label: str) -> bool:
        """Run a kernel before the innermost loop begins, if what it reads doesn't change in it;
        returns whether that is so.
        """
        loop = self._around
        if loop is None or reads not in loop.invariants:
            return False
        loop.early.append(Call(kernel, tuple(buffers), label, group=self.group))
        return True

    def _insert(self, start: int, calls: Sequence[Call]) -> None:
        """Put calls before call `start`, outside of a loop that begins there."""
        count = len(calls)
        for i, call in enumerate(self.calls):
            if isinstance(call.kernel, Jump) and call.kernel.target >= start and i >= start:
                moved = replace(call.kernel, target=call.kernel.target + count)
                self.calls[i] = replace(call, kernel=moved)
        self.calls[start:start] = calls
        for loop in self._loops:
            if loop.start >= start:
                loop.start += count
            loop.end += count if loop.end > start else 0

    # -- The end ---------------------------------------------------------------------------------

    def whole_of(self, buffer: int) -> tuple[int, int]:
        """The buffer that a part of one, or a part of a part, is in, and at which byte."""
        start = 0
        while buffer in self.parts:
            buffer, offset = self.parts[buffer]
            start += offset
        return buffer, start

    def _look_for_faults(self) -> None:
        """See that a jump, where faults are seen, comes after the last call that may find one; what
        comes later, such as the update of variables, is then done once and for all.
        """
        last = max(i for i, call in enumerate(self.calls) if self.fault in call.buffers)
        if any(isinstance(call.kernel, Jump) for call in self.calls[last + 1 :]):
            return
        for i, call in enumerate(self.calls):
            if isinstance(call.kernel, Jump) and call.kernel.target > last + 1:
                moved = replace(call.kernel, target=call.kernel.target + 1)
                self.calls[i] = replace(call, kernel=moved)
        self.calls.insert(last + 1, Call(Jump(last + 2, False), ()))

    def finish_calls(self) -> dict[int, tuple[int, int]]:
        """Complete the calls; the first and the last that need each buffer, or a part of it."""
        if self._start:
            self._insert(0, self._start)
        if self.fault is not None:
            self._look_for_faults()
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        used = [{self.whole_of(b)[0] for b in call.buffers} for call in self.calls]
        kept_ones = {self.whole_of(b)[0] for b in self.kept}
        for i, buffers in enumerate(used):
            for b in buffers:
                first.setdefault(b, i)
                last[b] = i
        if self.fault is not None:
            last[self.fault] = len(self.calls) - 1
        for loop in self._loops:  # what comes in is needed in every iteration, what goes out too
            for b in set().union(*used[loop.start : loop.end]):
                kept = b in kept_ones
                if kept or first[b] < loop.start:
                    last[b] = max(last[b], loop.end - 1)
                if kept or last[b] >= loop.end:
                    first[b] = min(first[b], loop.start)
        return {b: (first[b], last[b]) for b in first}
