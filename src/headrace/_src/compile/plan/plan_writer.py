"""Write a plan. In: buffers, calls of kernels on them, jumps and loops, in order. Out: a Plan whose
arena buffers are placed by their lifetimes, with barriers only where they are needed.

`splice` adds a fragment, which is a small Plan with its own buffers, to a larger one.

The parts of a loop or branch write to the same plan as the code around them. A jump names its
target by number; `_insert` renumbers the targets when calls are put before a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headrace._src.compile.plan.pack_arena import Lifetime, pack
from headrace._src.compile.plan.plan import Buffer, Call, Jump, Plan
from headrace._src.compile.plan.team_barriers import with_barriers
from headrace._src.compile.plan.verify_plan import verify_plan
from headrace._src.core.config import settings
from headrace._src.devices.target import SIZES

__all__ = ["PlanWriter"]


@dataclass
class _Loop:
    """The calls [start, end) of a loop. `early`: calls to run once, before it."""

    start: int
    invariants: frozenset[int]
    trips: int | None
    around: _Loop | None
    end: int = -1
    early: list[Call] = field(default_factory=list)


class PlanWriter:
    """A plan in the making: its buffers, and its calls in order.

    Attributes:
      kept: buffers whose contents one iteration leaves for the next.
      parts: for each buffer inside another one, that buffer and the first byte in it.
      fault: the buffer of a word that ends the step when a kernel sets it.
      group: the group that calls are added for.

    State: the calls that run first, the loops that have ended, the innermost loop that has not.
    """

    def __init__(self, outer: PlanWriter | None = None) -> None:
        """outer: the writer of the code around a part of a loop or branch"""
        self._outer = outer
        self.buffers: list[Buffer] = [] if outer is None else outer.buffers
        self.calls: list[Call] = [] if outer is None else outer.calls
        self.kept: set[int] = set() if outer is None else outer.kept
        self.parts: dict[int, tuple[int, int]] = {} if outer is None else outer.parts
        self.fault: int | None = None if outer is None else outer.fault
        self.group: Any = None if outer is None else outer.group
        self._start: list[Call] = [] if outer is None else outer._start
        self._loops: list[_Loop] = [] if outer is None else outer._loops
        self._around: _Loop | None = None if outer is None else outer._around

    # -- Buffers ---------------------------------------------------------------------------------

    def add(self, kind: str, dtype: str, count: int, label: str = "", **more: Any) -> int:
        """Add a buffer of `count` elements; return its number."""
        size = max(1, count) * SIZES[dtype]
        self.buffers.append(Buffer(kind, dtype, size, label=label, **more))
        return len(self.buffers) - 1

    def temporary(self, dtype: str, count: int, label: str = "", swapped: bool = False) -> int:
        """Add a buffer in the arena."""
        return self.add("arena", dtype, count, label, swapped=swapped)

    def part(self, whole: int, dtype: str, count: int, start: int, label: str = "") -> int:
        """Add a buffer that is a part of another one in the arena, from element `start` on."""
        swapped = self.buffers[whole].swapped
        number = self.add("arena", dtype, count, label, whole=whole, swapped=swapped)
        self.parts[number] = whole, start * SIZES[dtype]
        return number

    def growing(self, dtype: str, inner: int, label: str = "", swapped: bool = False) -> int:
        """Add the buffer of a list of any number of rows of `inner` elements."""
        return self.add("list", dtype, inner, label, index=len(self.buffers), swapped=swapped)

    # -- Calls -----------------------------------------------------------------------------------

    @property
    def is_inside(self) -> bool:
        """Whether this writes a part of a loop or branch."""
        return self._outer is not None

    def call(self, kernel: Any, buffers: Sequence[int], label: str = "") -> None:
        """Add a call of a kernel."""
        if len(kernel.arguments) != len(buffers):
            raise AssertionError(f"{kernel} takes {kernel.arguments}, not {len(buffers)} buffers")
        self.calls.append(Call(kernel, tuple(buffers), label, group=self.group))

    def splice(
        self, fragment: Plan, inputs: Mapping[int, int], outputs: Mapping[int, int], label: str
    ) -> None:
        """Add the calls of a fragment. `inputs` and `outputs` give this plan's buffers for the
        fragment's, by index; its temporaries become temporaries of this plan.
        """
        numbers: list[int] = []
        for b in fragment.buffers:
            if b.kind == "arena":
                count = b.size // SIZES[b.dtype]
                numbers.append(self.temporary(b.dtype, count, f"{label}/{b.label}"))
                continue
            number = {"input": inputs, "output": outputs}[b.kind][b.index]
            given = self.buffers[number]
            if given.dtype != b.dtype or given.size < b.size:
                raise AssertionError(f"{label}: a fragment's buffer {b} can't be {given}")
            numbers.append(number)
        for call in fragment.calls:
            self.call(call.kernel, [numbers[b] for b in call.buffers], label)

    def jump(self, flag: int | None = None, target: int = -1) -> int:
        """Add a jump, which is taken only when `flag` is false if there is one; return
        its number.
        """
        buffers = () if flag is None else (flag,)
        self.calls.append(Call(Jump(target, flag is not None), buffers, group=self.group))
        return len(self.calls) - 1

    def land(self, jump: int) -> None:
        """Make the next call the target of a jump."""
        call = self.calls[jump]
        self.calls[jump] = replace(call, kernel=replace(call.kernel, target=len(self.calls)))

    def set_fault(self, buffer: int) -> None:
        """Make a word end the step when a kernel sets it."""
        self.fault = buffer
        if self._outer is not None:
            self._outer.set_fault(buffer)

    @contextmanager
    def at_start(self) -> Iterator[None]:
        """Inside the with-block, add calls that run before all others."""
        calls, self.calls = self.calls, self._start
        try:
            yield
        finally:
            self.calls = calls

    # -- Loops -----------------------------------------------------------------------------------

    @contextmanager
    def loop(self, invariants: Sequence[int], trips: int | None = None) -> Iterator[int]:
        """Inside the with-block, add the calls of a loop; yield the number of its first call.

        invariants: buffers that don't change in the loop
        trips: the number of iterations, if it is known
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
        """Return how often a call that is added now runs at most, counting all loops around it;
        None if that isn't known.
        """
        count, loop = 1, self._around
        while loop is not None:
            if loop.trips is None:
                return None
            count, loop = count * max(1, loop.trips), loop.around
        return count

    def stays(self, buffer: int | None) -> bool:
        """Return whether a buffer is invariant in the loop that is being built."""
        return self._around is not None and buffer in self._around.invariants

    def early(self, kernel: Any, buffers: Sequence[int], reads: int, label: str) -> bool:
        """Hoist a kernel out of the innermost loop if the buffer that it reads is invariant there;
        return whether it is.
        """
        loop = self._around
        if loop is None or reads not in loop.invariants:
            return False
        loop.early.append(Call(kernel, tuple(buffers), label, group=self.group))
        return True

    def _insert(self, start: int, calls: Sequence[Call]) -> None:
        """Insert calls before call `start`, outside a loop that begins there."""
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
        """Return the outermost buffer that a part lies in, and the first byte of the part in it."""
        start = 0
        while buffer in self.parts:
            buffer, offset = self.parts[buffer]
            start += offset
        return buffer, start

    def _look_for_faults(self) -> None:
        """Put a jump after the last call that may set the fault word, because the driver looks at
        the word at jumps. Later calls, such as updates of variables, then never have to be undone.
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
        """Complete the calls; return the first and the last call that use each buffer or a part."""
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
        for loop in self._loops:  # buffers that enter or leave a loop live through all of it
            for b in set().union(*used[loop.start : loop.end]):
                kept = b in kept_ones
                if kept or first[b] < loop.start:
                    last[b] = max(last[b], loop.end - 1)
                if kept or last[b] >= loop.end:
                    first[b] = min(first[b], loop.start)
        return {b: (first[b], last[b]) for b in first}

    def finish(self) -> Plan:
        """Place the arena's buffers by their lifetimes and return the plan."""
        lives = self.finish_calls()
        arena = self._lay_out(lives, False, 0)
        swapped = self._lay_out(lives, True, arena)
        for i in self.parts:
            whole, start = self.whole_of(i)
            offset = self.buffers[whole].offset + start
            self.buffers[i] = replace(self.buffers[i], offset=offset)
        calls = with_barriers(self.calls, self.buffers)
        plan = Plan(tuple(self.buffers), tuple(calls), arena, self.fault, swapped)
        if settings().verify:
            verify_plan(plan)
        return plan

    def _lay_out(self, lives: Mapping[int, tuple[int, int]], swapped: bool, start: int) -> int:
        """Place the arena's buffers that are in a file, or those that are not, from byte `start`
        on; return how many bytes they take.
        """
        placed = [
            i
            for i, b in enumerate(self.buffers)
            if b.kind == "arena" and b.swapped is swapped and i in lives
        ]
        offsets, total = pack([Lifetime(self.buffers[i].size, *lives[i]) for i in placed])
        for i, offset in zip(placed, offsets, strict=True):
            self.buffers[i] = replace(self.buffers[i], offset=start + offset)
        return total
