"""Fourier transforms of rows whose length is a power of two: Stockham's algorithm, radix 4.

A pass takes the sums and differences of four parts of the row, n / 4 apart, times powers of a root
of unity, and writes them next to each other in runs of `s` elements: 1, 4, 16, ... from pass to
pass, with one pass of radix 2 at the end where the logarithm is odd. So reads are always
contiguous, and the result is in order. Between the passes, real and imaginary parts are in separate
planes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type

__all__ = ["Fourier"]

_Pair = tuple[Reg, Reg]  # of real and imaginary parts


@dataclass(frozen=True)
class Fourier:
    """The transforms of complex numbers with parts of `dtype` along the middle axis of
    [outer, n, inner], or their inverses.

    sizes: outer, n (a power of two, at least 64) and inner (1, or a multiple of the lanes); roots:
    real parts, then imaginary parts, of e^(-2 pi i j k / n) for k = 1, 2, 3 and j < n / 4, as
    [2, 3, n / 4]; work: room of 4 n numbers, times the lanes if inner isn't 1, for each thread.

    The result may overwrite the input. Along an axis that isn't the last, as many transforms are
    done at once as there are lanes. A thread does whole transforms: a barrier between passes would
    take longer than a pass.
    """

    dtype: str
    inverse: bool

    arguments = ("sizes", "roots", "x", "out:y", "inout:work")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        _Transform(team, self.dtype, self.inverse).emit()


class _Transform:
    """The kernel while it's written. Planes have `total` numbers each: those of one transform, or
    of as many side by side as there are lanes.
    """

    def __init__(self, team: Team, dtype: str, inverse: bool) -> None:
        self.team = team
        self.type = memory_type(dtype)
        self.lanes = team.target.lanes(dtype)
        self.inverse = inverse

    def emit(self) -> None:
        team, f = self.team, self.team.f
        sizes, roots, x, y, work = team.args
        outer, n, inner = (f.load(I64, sizes, i) for i in range(3))
        row, column = self._row(), self._column()

        def along_rows() -> None:
            memory = f.offset(work, f.mul(f.mul(n, 4), team.thread), self.type)

            def one(r: Reg) -> None:
                at = f.mul(f.mul(r, n), 2)
                places = (f.offset(a, at, self.type) for a in (x, y))
                f.call_function(row, *places, memory, roots, n)

            f.loop(*team.share(outer), one)

        def along_columns() -> None:
            room = f.mul(f.mul(n, 4 * self.lanes), team.thread)
            memory = f.offset(work, room, self.type)
            blocks = f.div(inner, self.lanes)

            def one(b: Reg) -> None:
                image = f.mul(f.mul(f.div(b, blocks), n), inner)
                at = f.mul(f.add(image, f.mul(f.rem(b, blocks), self.lanes)), 2)
                places = (f.offset(a, at, self.type) for a in (x, y))
                f.call_function(column, *places, memory, roots, n, inner)

            f.loop(*team.share(f.mul(outer, blocks)), one)

        f.when(f.icmp("eq", inner, 1), along_rows, along_columns)

    def _row(self) -> Function:
        """The function that transforms one row."""
        first = self._first_of_row()
        woven = {s: self._woven_pass(s) for s in (4,) if s < self.lanes}
        finish = self._finish("of_row", 0)
        f = self.team.helper("row", [PTR, PTR, PTR, PTR, I64])
        source, target, memory, roots, n = f.parameters
        planes, s = (memory, f.offset(memory, f.mul(n, 2), self.type)), 4
        f.call_function(first, source, memory, roots, n)
        while s in woven:
            f.call_function(woven[s], *planes, roots, n)
            planes, s = planes[::-1], 4 * s
        f.call_function(finish, *planes, roots, target, n, s, self.lanes)
        return f.finish()

    def _column(self) -> Function:
        """The function that transforms as many columns as there are lanes."""
        first = self._first_of_column()
        finish = self._finish("of_column", self.lanes.bit_length() - 1)
        f = self.team.helper("column", [PTR, PTR, PTR, PTR, I64, I64])
        source, target, memory, roots, n, inner = f.parameters
        total = f.mul(n, self.lanes)
        other = f.offset(memory, f.mul(total, 2), self.type)
        f.call_function(first, source, memory, roots, n, inner)
        f.call_function(finish, memory, other, roots, target, total, 4 * self.lanes, inner)
        return f.finish()

    def _finish(self, name: str, shift: int) -> Function:
        """The function that runs the passes in runs of s elements and more, and stores the result,
        `step` complex numbers from vector to vector. Roots are for 2^shift elements each.
        """
        wide, halves, join = self._wide_pass(name, shift), self._halves(name), self._join(name)
        f = self.team.helper(name, [PTR, PTR, PTR, PTR, I64, I64, I64])
        memory, other, roots, target, total, s, step = f.parameters

        def one_pass(s: Reg, source: Reg, place: Reg) -> list[Reg]:
            f.call_function(wide, source, place, roots, total, s)
            return [f.shl(s, 2), place, source]

        def fits(s: Reg, *_: Reg) -> Reg:
            return f.icmp("sle", f.shl(s, 2), total)

        s, source, place = f.repeat(fits, one_pass, [s, memory, other])

        def half() -> list[Reg]:
            f.call_function(halves, source, place, total)
            return [place]

        (found,) = f.when(f.icmp("slt", s, total), half, lambda: [source])
        f.call_function(join, found, target, total, step)
        return f.finish()

    # -- Passes ----------------------------------------------------------------------------------

    def _first_of_row(self) -> Function:
        """From complex numbers side by side to planes, in runs of one."""
        f = self.team.helper("first_of_row", [PTR, PTR, PTR, I64])
        source, target, roots, n = f.parameters
        quarter = f.lshr(n, 2)

        def vector(i: Reg) -> None:
            parts = [self._split(f, source, f.add(i, f.mul(quarter, k))) for k in range(4)]
            factors = [self._root(f, roots, quarter, k, i) for k in range(3)]
            self._weave(f, _butterfly(f, parts, factors), target, n, i, 1)

        f.loop(0, quarter, vector, step=self.lanes)
        return f.finish()

    def _first_of_column(self) -> Function:
        """From columns of complex numbers to planes."""
        f = self.team.helper("first_of_column", [PTR, PTR, PTR, I64, I64])
        source, target, roots, n, inner = f.parameters
        quarter = f.lshr(n, 2)
        total = f.mul(n, self.lanes)

        def vector(p: Reg) -> None:
            places = [f.mul(f.add(p, f.mul(quarter, k)), inner) for k in range(4)]
            parts = [self._split(f, source, place) for place in places]
            factors = [self._root(f, roots, quarter, k, p, single=True) for k in range(3)]
            for k, pair in enumerate(_butterfly(f, parts, factors)):
                at = f.mul(f.add(f.mul(p, 4), k), self.lanes)
                self._store(f, pair, target, total, at)

        f.loop(0, quarter, vector)
        return f.finish()

    def _woven_pass(self, s: int) -> Function:
        """A pass in runs of `s` elements, fewer than a vector has."""
        f = self.team.helper(f"runs_of_{s}", [PTR, PTR, PTR, I64])
        source, target, roots, n = f.parameters
        quarter = f.lshr(n, 2)
        order = [lane - lane % s for lane in range(self.lanes)]

        def vector(i: Reg) -> None:
            parts = [self._load(f, source, n, f.add(i, f.mul(quarter, k))) for k in range(4)]
            found = [self._root(f, roots, quarter, k, i) for k in range(3)]
            factors = [(f.shuffle(a, None, order), f.shuffle(b, None, order)) for a, b in found]
            self._weave(f, _butterfly(f, parts, factors), target, n, i, s)

        f.loop(0, quarter, vector, step=self.lanes)
        return f.finish()

    def _wide_pass(self, name: str, shift: int) -> Function:
        """A pass in runs of whole vectors, `s` elements each."""
        f = self.team.helper(f"pass_{name}", [PTR, PTR, PTR, I64, I64])
        source, target, roots, total, s = f.parameters
        quarter = f.lshr(total, 2)
        spacing = f.lshr(quarter, shift)

        def vector(i: Reg) -> None:
            q = f.and_(i, f.sub(s, 1))
            base = f.sub(i, q)
            parts = [self._load(f, source, total, f.add(i, f.mul(quarter, k))) for k in range(4)]
            at = f.lshr(base, shift)
            factors = [self._root(f, roots, spacing, k, at, single=True) for k in range(3)]
            place = f.add(f.mul(base, 4), q)
            for k, pair in enumerate(_butterfly(f, parts, factors)):
                self._store(f, pair, target, total, f.add(place, f.mul(s, k)))

        f.loop(0, quarter, vector, step=self.lanes)
        return f.finish()

    def _halves(self, name: str) -> Function:
        """The sums and differences of the two halves."""
        f = self.team.helper(f"halves_{name}", [PTR, PTR, I64])
        source, target, total = f.parameters
        half = f.lshr(total, 1)

        def vector(i: Reg) -> None:
            a, b = (self._load(f, source, total, at) for at in (i, f.add(i, half)))
            self._store(f, _added(f, a, b), target, total, i)
            self._store(f, _subtracted(f, a, b), target, total, f.add(i, half))

        f.loop(0, half, vector, step=self.lanes)
        return f.finish()

    def _join(self, name: str) -> Function:
        """From planes to complex numbers; those of an inverse are divided by n."""
        f = self.team.helper(f"join_{name}", [PTR, PTR, I64, I64])
        source, target, total, step = f.parameters
        n = total if name == "of_row" else f.div(total, self.lanes)
        scale = f.splat(f.fdiv(1.0, f.convert("sitofp", n, self.type)), self.lanes)
        order = [k for i in range(self.lanes) for k in (i, self.lanes + i)]

        def vector(v: Reg) -> None:
            real, imaginary = self._load(f, source, total, f.mul(v, self.lanes))
            if self.inverse:  # transformed with the parts swapped
                real, imaginary = f.fmul(imaginary, scale), f.fmul(real, scale)
            f.store(f.shuffle(real, imaginary, order), target, f.mul(f.mul(v, step), 2))

        f.loop(0, f.div(total, self.lanes), vector)
        return f.finish()

    # -- Memory ----------------------------------------------------------------------------------

    def _load(self, f: Function, planes: Reg, n: Reg, at: Operand) -> _Pair:
        type = self.type.of(self.lanes)
        return f.load(type, planes, at), f.load(type, planes, f.add(at, n))

    def _store(self, f: Function, pair: _Pair, planes: Reg, n: Reg, at: Operand) -> None:
        f.store(pair[0], planes, at)
        f.store(pair[1], planes, f.add(at, n))

    def _split(self, f: Function, source: Reg, at: Operand) -> _Pair:
        """Complex numbers from memory as two vectors; for an inverse the parts are swapped."""
        both = f.load(self.type.of(2 * self.lanes), source, f.mul(at, 2))
        even, odd = (f.shuffle(both, None, range(k, 2 * self.lanes, 2)) for k in (0, 1))
        return (odd, even) if self.inverse else (even, odd)

    def _root(
        self, f: Function, roots: Reg, quarter: Reg, k: int, at: Operand, single: bool = False
    ) -> _Pair:
        """The roots of power k + 1 from element `at` on, or that one alone in all lanes."""
        real, imaginary = (f.add(at, f.mul(quarter, plane)) for plane in (k, k + 3))
        if single:
            alone = f.load(self.type, roots, real), f.load(self.type, roots, imaginary)
            return f.splat(alone[0], self.lanes), f.splat(alone[1], self.lanes)
        type = self.type.of(self.lanes)
        return f.load(type, roots, real), f.load(type, roots, imaginary)

    def _weave(
        self, f: Function, results: list[_Pair], planes: Reg, n: Reg, at: Operand, run: int
    ) -> None:
        """Store four vectors to 4 * at, one after the other in runs of so many elements."""
        lanes = self.lanes
        for part in (0, 1):
            a, b, c, d = (pair[part] for pair in results)
            twos = _alternating(lanes, run)
            left, right = f.shuffle(a, b, twos), f.shuffle(c, d, twos)
            fours = _alternating(2 * lanes, 2 * run)
            start = f.add(f.mul(at, 4), f.mul(n, part) if part else 0)
            for i in range(2):
                half = fours[i * 2 * lanes : (i + 1) * 2 * lanes]
                f.store(f.shuffle(left, right, half), planes, f.add(start, i * 2 * lanes))


def _alternating(lanes: int, run: int) -> list[int]:
    """The lanes of two vectors, in turn so many of each."""
    starts = [start + other for start in range(0, lanes, run) for other in (0, lanes)]
    return [start + i for start in starts for i in range(run)]


# -- Complex numbers -----------------------------------------------------------------------------


def _added(f: Function, x: _Pair, y: _Pair) -> _Pair:
    return f.fadd(x[0], y[0]), f.fadd(x[1], y[1])


def _subtracted(f: Function, x: _Pair, y: _Pair) -> _Pair:
    return f.fsub(x[0], y[0]), f.fsub(x[1], y[1])


def _times(f: Function, x: _Pair, y: _Pair) -> _Pair:
    real = f.fma(x[0], y[0], f.fneg(f.fmul(x[1], y[1])))
    return real, f.fma(x[0], y[1], f.fmul(x[1], y[0]))


def _butterfly(f: Function, parts: Sequence[_Pair], factors: Sequence[_Pair]) -> list[_Pair]:
    """The transform of four numbers, the last three of which are then multiplied."""
    a, b, c, d = parts
    sum_ac, sum_bd = _added(f, a, c), _added(f, b, d)
    difference, (real, imaginary) = _subtracted(f, a, c), _subtracted(f, b, d)
    turned = f.fneg(imaginary), real  # times i
    others = (
        _subtracted(f, difference, turned),
        _subtracted(f, sum_ac, sum_bd),
        _added(f, difference, turned),
    )
    products = [_times(f, x, w) for x, w in zip(others, factors, strict=True)]
    return [_added(f, sum_ac, sum_bd), *products]
