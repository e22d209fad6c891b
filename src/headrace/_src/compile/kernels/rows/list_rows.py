"""Rows of lists: write or read a row, by its number or at the top.

A list is `rows` rows of `inner` elements. For a tensor array, `marks` has a byte for each row: 1 if
it can be read. For a stack, `top` has two words: the number of rows in use, and how many of them
lie below and belong to other stacks in the same memory. A number out of range, a row that is
written twice, or one that is read before it was written sets the word `fault`. The kernel then
touches only its own memory, and the driver ends the step when it sees the word.

A stack of 0 rows *grows*: a header before its rows has the number of rows that there is room for,
and a word that says that they were too few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I8, I64, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import (
    emit_pointwise,
    load_value,
    memory_type,
    store_value,
)
from headrace._src.compile.kernels.rows.gather_rows import along, lanes_of, load_index
from headrace._src.lowering.pointwise import record

__all__ = ["HEADER", "CheckMarks", "CopyRows", "PutRow", "TakeRow", "ZeroRows"]

HEADER = 64  # bytes before the rows of a list that grows

_SMALL = 1024  # elements: rows of up to this many are faster by one thread


@dataclass(frozen=True)
class _Row:
    rows: int
    inner: int
    dtype: str

    counters = 0
    meetings = 1

    @property
    def small(self) -> bool:
        return self.inner <= _SMALL

    def scratch(self, threads: int) -> int:
        return 0

    def _by_first(self, team: Team, body: Callable[[], object]) -> None:
        """Make one thread update the row's state, after all threads have read it."""
        is_first = team.f.icmp("eq", team.f.reg(team.thread), 0)
        team.after(1, lambda: team.f.when(is_first, body))

    def _memory(self, f: Function, pointer: Reg) -> tuple[Operand, Reg]:
        """How many rows there is room for, and where they begin."""
        if self.rows:
            return self.rows, pointer
        return f.load(I64, pointer), f.offset(pointer, HEADER // 8, I64)

    def _shared(self, team: Team) -> tuple[Operand, Operand]:
        return team.share(self.inner, lanes_of(team.f, self.dtype))


def _at(f: Function, number: Reg, rows: Operand, inner: int) -> tuple[Reg, Reg]:
    """Return whether a row's number is in range, and where the row starts (row 0 if it isn't)."""
    good = f.icmp("ult", number, rows)
    return good, f.mul(f.select(good, number, 0), inner)


@dataclass(frozen=True)
class PutRow(_Row):
    """how: "set" (once), "add" (to what is there), "push" (at the top)."""

    how: str

    @property
    def arguments(self) -> tuple[str, ...]:
        if self.how == "push":
            return ("value", "inout:list", "inout:top", "inout:fault")
        return ("value", "index", "inout:list", "inout:marks", "inout:fault")

    @property
    def fills(self) -> tuple[str, ...]:
        return () if self.how == "add" else ("inout:list",)

    def emit(self, team: Team) -> None:
        f = team.f
        value, *rest, place, fault = team.args
        index, memory = rest[0], rest[-1]
        room, target = self._memory(f, memory)
        number = f.load(I64, place) if self.how == "push" else load_index(f, "int32", index, 0)
        good, start = _at(f, number, room, self.inner)
        if self.how == "set":
            mark = f.load(I8, place, f.select(good, number, 0))
            good = f.and_(good, f.icmp("eq", mark, f.const(0, I8)))
        first, last = self._shared(team)
        total = record(lambda e, old, new: e.add(old, new), [self.dtype, self.dtype])

        def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
            new = load_value(f, self.dtype, lanes, value, j, mask=mask)
            if self.how == "add":
                old = load_value(f, self.dtype, lanes, target, f.add(start, j), mask=mask)
                (new,) = emit_pointwise(f, total, [old, new])
            store_value(f, self.dtype, new, target, f.add(start, j), mask=mask)

        def move() -> None:
            f.when(good, lambda: along(f, lanes_of(f, self.dtype), first, last, self.inner, vector))

        team.after(0, move)

        def note() -> None:
            if self.how == "push":
                f.store(f.add(number, 1), place)
            elif self.how == "set":
                f.store(f.const(1, I8), place, number)

        def fail() -> None:
            f.store(f.const(1, I64), fault)
            if not self.rows:
                f.store(f.const(1, I64), memory, 1)

        self._by_first(team, lambda: f.when(good, note, fail))


@dataclass(frozen=True)
class TakeRow(_Row):
    """how: "get", "clear" (can't be read again), "sum" (a row of sums is always there), "pop"."""

    how: str

    @property
    def arguments(self) -> tuple[str, ...]:
        if self.how == "pop":
            return ("list", "inout:top", "out:value", "inout:fault")
        return ("list", "index", "inout:marks", "out:value", "inout:fault")

    def emit(self, team: Team) -> None:
        f = team.f
        source, *rest, place, value, fault = team.args
        if self.how == "pop":
            number = f.sub(f.load(I64, place), 1)
        else:
            number = load_index(f, "int32", rest[0], 0)
        room, source = self._memory(f, source)
        good, start = _at(f, number, room, self.inner)
        if self.how == "pop":
            good = f.and_(good, f.icmp("sge", number, f.load(I64, place, 1)))
        if self.how in ("get", "clear"):
            mark = f.load(I8, place, f.select(good, number, 0))
            good = f.and_(good, f.icmp("eq", mark, f.const(1, I8)))
        first, last = self._shared(team)

        def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
            taken = load_value(f, self.dtype, lanes, source, f.add(start, j), mask=mask)
            store_value(f, self.dtype, taken, value, j, mask=mask)

        def move() -> None:
            f.when(good, lambda: along(f, lanes_of(f, self.dtype), first, last, self.inner, vector))

        team.after(0, move)

        def note() -> None:
            if self.how == "pop":
                f.store(number, place)
            elif self.how == "clear":
                f.store(f.const(2, I8), place, number)

        self._by_first(team, lambda: f.when(good, note, lambda: f.store(f.const(1, I64), fault)))


@dataclass(frozen=True)
class ZeroRows(_Row):
    """Give a stack that grows as many rows of zeros as another one has: few, if any, since a
    backward loop leaves none.
    """

    arguments = ("like", "inout:list", "inout:top", "inout:fault")
    fills = ("inout:list", "inout:top")
    meetings = 0

    @property
    def small(self) -> bool:
        return True

    def emit(self, team: Team) -> None:
        f = team.f
        like, memory, top, fault = team.args
        count = f.sub(f.load(I64, like), f.load(I64, like, 1))
        room, target = self._memory(f, memory)
        zero = f.const(0, memory_type(self.dtype))

        def fill() -> None:
            f.loop(0, f.mul(count, self.inner), lambda i: f.store(zero, target, i))
            f.store(count, top)
            f.store(f.const(0, I64), top, 1)

        def fail() -> None:
            f.store(f.const(1, I64), fault)
            f.store(f.const(1, I64), memory, 1)

        f.when(f.icmp("sle", count, room), fill, fail)


@dataclass(frozen=True)
class CopyRows(_Row):
    """Copy the rows of a stack, `most` of them at most, and say how many they are."""

    most: int

    arguments = ("list", "top", "out:copy", "out:count", "inout:fault")
    meetings = 0

    @property
    def small(self) -> bool:
        return self.most * self.inner <= _SMALL

    def emit(self, team: Team) -> None:
        f = team.f
        source, top, target, count, fault = team.args
        begin = f.load(I64, top, 1)
        number = f.sub(f.load(I64, top), begin)
        fits = f.icmp("ule", number, self.most)
        _, source = self._memory(f, source)
        lanes = lanes_of(f, self.dtype)

        def row(i: Reg) -> None:
            start, place = f.mul(f.add(begin, i), self.inner), f.mul(i, self.inner)

            def vector(j: Operand, lanes: int, mask: Reg | None) -> None:
                value = load_value(f, self.dtype, lanes, source, f.add(start, j), mask=mask)
                store_value(f, self.dtype, value, target, f.add(place, j), mask=mask)

            along(f, lanes, 0, self.inner, self.inner, vector)

        first, last = team.share(f.select(fits, number, 0))
        f.loop(first, last, row)

        def note() -> None:
            f.store(number, count)
            f.when(f.icmp("ugt", number, self.most), lambda: f.store(f.const(1, I64), fault))

        f.when(f.icmp("eq", f.reg(team.thread), 0), note)


@dataclass(frozen=True)
class CheckMarks:
    """Set the fault unless the marks of all `rows` rows are `wanted`."""

    rows: int
    wanted: int

    arguments = ("marks", "inout:fault")
    counters = 0
    small = True

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        marks, fault = team.args

        def differs(i: Reg, found: Reg) -> Reg:
            return f.or_(found, f.icmp("ne", f.load(I8, marks, i), f.const(self.wanted, I8)))

        (bad,) = f.loop(0, self.rows, differs, [f.icmp("ne", f.reg(0), 0)])
        f.when(bad, lambda: f.store(f.const(1, I64), fault))
