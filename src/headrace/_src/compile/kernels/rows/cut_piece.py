"""Slices at computed positions: copy a piece out of an array, or into an array of zeros.

A piece is a view of fixed sizes and strides. Entry k of "begin" moves it along an axis, in steps of
that axis's stride, to one of `places` positions; if it `wraps`, negative numbers count from the
end. A number out of range sets the word "fault", and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from headrace._src.compile.codegen.emit import I64, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type
from headrace._src.compile.kernels.rows.gather_rows import copy_row, load_index

__all__ = ["CutPiece"]

_SMALL = 1024  # elements: up to this many, one thread is faster


@dataclass(frozen=True)
class CutPiece:
    """moves: (entry, places, stride) of each number. `into`: 0 to take a piece out of an array;
    else the size of the array of zeros that it's put into.
    """

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    moves: tuple[tuple[int, int, int], ...]
    wraps: bool
    into: int
    dtype: str
    index_dtype: str

    arguments = ("given", "begin", "out:result", "inout:fault")
    counters = 0

    @property
    def meetings(self) -> int:
        """The zeros are written before the piece is."""
        return int(self.into > 0)

    @property
    def small(self) -> bool:
        return max(self.into, prod(self.extents)) <= _SMALL

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        given, begin, result, fault = team.args
        good, start = self._start(f, begin)
        if self.into:
            type = memory_type(self.dtype)
            zero = f.const(0, type)
            cleared = team.share(self.into, 64)
            team.after(0, lambda: f.loop(*cleared, lambda i: f.store(zero, result, i)))
        rows = team.share(prod(self.extents[:-1]))
        bad = f.and_(f.icmp("eq", good, 0), f.icmp("eq", f.reg(team.thread), 0))

        def copy() -> None:
            f.when(good, lambda: f.loop(*rows, lambda r: self._row(f, r, start, given, result)))
            f.when(bad, lambda: f.store(f.const(1, I64), fault))

        team.after(self.meetings, copy)

    def _start(self, f: Function, begin: Reg) -> tuple[Reg, Reg]:
        """Return whether all numbers are in range, and the piece's offset (any valid one
        if not).
        """
        good, start = f.icmp("eq", f.reg(0), 0), f.reg(self.offset)
        for entry, places, stride in self.moves:
            number = load_index(f, self.index_dtype, begin, entry)
            if self.wraps:
                negative = f.icmp("slt", number, 0)
                number = f.select(negative, f.wrapping("add", number, places), number)
            is_place = f.icmp("ult", number, places)
            good = f.and_(good, is_place)
            start = f.add(start, f.mul(f.select(is_place, number, 0), stride))
        return good, start

    def _row(self, f: Function, row: Reg, start: Reg, given: Reg, result: Reg) -> None:
        """Copy the elements of a piece's last dimension."""
        type, inner = memory_type(self.dtype), self.extents[-1]
        at: Operand = start
        left: Operand = row
        for extent, stride in list(zip(self.extents, self.strides, strict=True))[-2::-1]:
            at = f.add(at, f.mul(f.rem(left, extent), stride))
            left = f.div(left, extent)
        piece = f.mul(row, inner)
        if self.strides[-1] == 1:
            there, here = (at, piece) if self.into else (piece, at)
            copy_row(f, type, f.offset(result, there, type), f.offset(given, here, type), inner)
            return

        def element(i: Reg) -> None:
            outside, inside = f.add(at, f.mul(i, self.strides[-1])), f.add(piece, i)
            there, here = (outside, inside) if self.into else (inside, outside)
            f.store(f.load(type, given, here), result, there)

        f.loop(0, inner, element)
