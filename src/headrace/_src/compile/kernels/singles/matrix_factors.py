"""Cholesky factors and inverses of matrices of moderate size, a thread to a matrix.

LAPACK's blocked algorithms pay for large matrices; up to a few hundred rows their calls dominate.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type

__all__ = ["PANEL", "Cholesky", "Inverse"]

PANEL = 32  # columns that are eliminated before the other columns are updated
_ROWS = 4  # elements that are compared at once
_DOTS = 8  # dot products at once
_TILE = 8  # rows of a tile of the product


@dataclass(frozen=True)
class Cholesky:
    """The lower triangular factors of `count` matrices [n, n], of which the lower triangles are
    read. Factors are [n, width], zeros before: width, at least n, is a multiple of PANEL. A matrix
    that isn't positive definite sets its word of the status.

    Column by column: an element is its matrix's less the dot product of two rows of the factor. The
    rows' later elements are still zeros, so that dot products go over whole vectors.
    """

    dtype: str

    arguments = ("sizes", "x", "inout:factors", "inout:status")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, type = team.f, memory_type(self.dtype)
        sizes, x, factors, status = team.args
        count, n, width = (f.load(I64, sizes, i) for i in range(3))
        factor = self._factor(team)

        def matrix(m: Reg) -> None:
            source = f.offset(x, f.mul(m, f.mul(n, n)), type)
            target = f.offset(factors, f.mul(m, f.mul(n, width)), type)
            f.call_function(factor, source, target, f.offset(status, m, I64), n, width)

        f.loop(*team.share(count), matrix)

    def _factor(self, team: Team) -> Function:
        f, type = team.helper("factor", [PTR, PTR, PTR, I64, I64]), memory_type(self.dtype)
        x, factor, status, n, width = f.parameters
        lanes = team.target.lanes(self.dtype)
        zero = f.const(0.0, type.of(lanes))

        def rest(i: Operand, j: Reg, count: int) -> list[Reg]:
            """Elements j of some rows from i on, less what the columns before j explain."""
            pivot = f.mul(j, width)
            starts = [f.mul(f.add(i, k), width) for k in range(count)]

            def add(c: Reg, *sums: Reg) -> list[Reg]:
                other = f.load(type.of(lanes), factor, f.add(pivot, c))
                return [
                    f.fma(f.load(type.of(lanes), factor, f.add(s, c)), other, total)
                    for s, total in zip(starts, sums, strict=True)
                ]

            sums = f.loop(0, j, add, [zero] * count, step=lanes)
            given = [f.load(type, x, f.add(f.mul(f.add(i, k), n), j)) for k in range(count)]
            return [f.fsub(g, f.reduce("fadd", s)) for g, s in zip(given, sums, strict=True)]

        def column(j: Reg) -> None:
            (square,) = rest(j, j, 1)
            bad = f.fcmp("ule", square, 0.0)
            f.when(bad, lambda: f.store(f.const(1, I64), status))
            root = f.intrinsic("sqrt", type, square)
            inverse = f.fdiv(1.0, root)

            def below(i: Operand, count: int) -> None:
                for k, value in enumerate(rest(i, j, count)):
                    place = f.add(f.mul(f.add(i, k), width), j)
                    f.store(f.fmul(value, inverse), factor, place)

            first = f.add(j, 1)
            whole = f.add(first, f.mul(f.div(f.sub(n, first), _DOTS), _DOTS))
            f.loop(first, whole, lambda i: below(i, _DOTS), step=_DOTS)
            f.loop(whole, n, lambda i: below(i, 1))
            f.store(root, factor, f.add(f.mul(j, width), j))

        f.loop(0, n, column)
        return f.finish()


@dataclass(frozen=True)
class Inverse:
    """The inverses [n, n] of `count` matrices, each in a frame [width, width] that is the identity
    around it: width, at least n, is a multiple of PANEL. The frames are overwritten. A matrix
    without inverse sets its word of the status. `work`: for each thread (PANEL + 2) * width numbers
    of 8 bytes.

    By Gauss-Jordan elimination with partial pivoting, in place: a column that has been eliminated
    holds what elimination did, so that of a panel of columns all others get one product.
    """

    dtype: str

    arguments = ("sizes", "inout:frames", "out:inverses", "inout:status", "inout:work")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, type = team.f, memory_type(self.dtype)
        sizes, frames, inverses, status, work = team.args
        count, n, width = (f.load(I64, sizes, i) for i in range(3))
        panel, update, gather = self._panel(team), self._update(team), self._gather(team)
        room = f.mul(f.mul(width, PANEL + 2), team.thread)
        pivots = f.offset(work, room, I64)
        order = f.offset(pivots, width, I64)
        rows = f.offset(order, width, I64)

        def matrix(m: Reg) -> None:
            frame = f.offset(frames, f.mul(m, f.mul(width, width)), type)
            word = f.offset(status, m, I64)

            def eliminate(first: Reg) -> None:
                f.call_function(panel, frame, pivots, word, width, first)
                f.call_function(update, frame, rows, width, first)

            f.loop(0, width, eliminate, step=PANEL)
            target = f.offset(inverses, f.mul(m, f.mul(n, n)), type)
            f.call_function(gather, frame, target, pivots, order, n, width)

        f.loop(*team.share(count), matrix)

    def _panel(self, team: Team) -> Function:
        """Eliminate the columns of a panel, in the panel alone; swap whole rows."""
        f, type = team.helper("panel", [PTR, PTR, PTR, I64, I64]), memory_type(self.dtype)
        frame, pivots, status, width, first = f.parameters
        lanes = team.target.lanes(self.dtype)
        vector = type.of(lanes)

        def size(row: Reg, column: Reg) -> Reg:
            return f.intrinsic("fabs", type, f.load(type, frame, f.add(f.mul(row, width), column)))

        def largest(k: Reg) -> Reg:
            """The row, from k on, of the largest element of column k; several are looked at in
            turn, so that none waits for the one before.
            """

            def look(r: Reg, *best: Reg) -> list[Reg]:
                found: list[Reg] = []
                for t in range(_ROWS):
                    row = f.add(r, t)
                    value = f.select(f.icmp("sge", row, k), size(row, k), f.const(-1.0, type))
                    larger = f.fcmp("ogt", value, best[2 * t + 1])
                    found += [f.select(larger, row, best[2 * t])]
                    found += [f.select(larger, value, best[2 * t + 1])]
                return found

            start = [k, size(k, k)] * _ROWS
            best = f.loop(f.and_(k, -_ROWS), width, look, start, step=_ROWS)
            row, value = best[:2]
            for t in range(1, _ROWS):
                larger = f.fcmp("ogt", best[2 * t + 1], value)
                row = f.select(larger, best[2 * t], row)
                value = f.select(larger, best[2 * t + 1], value)
            return row

        def column(k: Reg) -> None:
            pivot = largest(k)
            f.store(pivot, pivots, k)
            mine, other = f.mul(k, width), f.mul(pivot, width)

            def swap(c: Reg) -> None:
                a, b = (f.load(vector, frame, f.add(r, c)) for r in (mine, other))
                f.store(b, frame, f.add(mine, c))
                f.store(a, frame, f.add(other, c))

            f.when(f.icmp("ne", pivot, k), lambda: f.loop(0, width, swap, step=lanes))
            diagonal = f.add(mine, k)
            value = f.load(type, frame, diagonal)
            f.when(f.fcmp("oeq", value, 0.0), lambda: f.store(f.const(1, I64), status))
            f.store(f.const(1.0, type), frame, diagonal)
            parts = range(0, PANEL, lanes)
            start, divisor = f.add(mine, first), f.splat(value, lanes)
            row = [f.fdiv(f.load(vector, frame, f.add(start, c)), divisor) for c in parts]
            for c, part in zip(parts, row, strict=True):
                f.store(part, frame, f.add(start, c))

            inverse = f.fdiv(1.0, value)

            def subtract(r: Reg) -> None:
                at = f.mul(r, width)
                place = f.add(at, k)
                factor = f.fneg(f.load(type, frame, place))
                many = f.splat(factor, lanes)
                for c, part in zip(parts, row, strict=True):
                    here = f.add(f.add(at, first), c)
                    f.store(f.fma(many, part, f.load(vector, frame, here)), frame, here)
                # Last: vectors that hold what has just been stored alone would be loaded slowly.
                f.store(f.fmul(factor, inverse), frame, place)

            f.loop(0, k, subtract)
            f.loop(f.add(k, 1), width, subtract)

        f.loop(first, f.add(first, PANEL), column)
        return f.finish()

    def _update(self, team: Team) -> Function:
        """Apply the elimination of a panel to the columns outside it: add the product of the panel
        and its rows, which themselves become that product.
        """
        f, type = team.helper("update", [PTR, PTR, I64, I64]), memory_type(self.dtype)
        frame, rows, width, first = f.parameters
        lanes = team.target.lanes(self.dtype)
        vector = type.of(lanes)
        end = f.add(first, PANEL)
        own = f.mul(first, width)
        f.loop(
            0,
            f.mul(width, PANEL),
            lambda i: f.store(f.load(vector, frame, f.add(own, i)), rows, i),
            step=lanes,
        )

        def tile(i: Reg, c: Reg) -> None:
            starts = [f.mul(f.add(i, t), width) for t in range(_TILE)]
            places = [f.add(f.add(s, c), v) for s in starts for v in (0, lanes)]
            inside = f.and_(f.icmp("sge", i, first), f.icmp("slt", i, end))
            mask = f.splat(inside, lanes)
            zero = f.const(0.0, vector)
            sums = [f.select(mask, zero, f.load(vector, frame, p)) for p in places]

            def add(k: Reg, *sums: Reg) -> list[Reg]:
                at = f.add(f.mul(k, width), c)
                right = [f.load(vector, rows, f.add(at, v)) for v in (0, lanes)]
                column = f.add(first, k)
                left = [f.splat(f.load(type, frame, f.add(s, column)), lanes) for s in starts]
                return [f.fma(left[j // 2], right[j % 2], total) for j, total in enumerate(sums)]

            for place, total in zip(places, f.loop(0, PANEL, add, sums), strict=True):
                f.store(total, frame, place)

        def at_rows(i: Reg) -> None:
            f.loop(0, first, lambda c: tile(i, c), step=2 * lanes)
            f.loop(end, width, lambda c: tile(i, c), step=2 * lanes)

        f.loop(0, width, at_rows, step=_TILE)
        return f.finish()

    def _gather(self, team: Team) -> Function:
        """Undo the swaps of rows by swapping columns, and take the matrix from its frame."""
        f, type = team.helper("gather", [PTR, PTR, PTR, PTR, I64, I64]), memory_type(self.dtype)
        frame, target, pivots, order, n, width = f.parameters
        f.loop(0, width, lambda i: f.store(i, order, i))

        def swap(i: Reg) -> None:
            k = f.sub(f.sub(width, 1), i)
            pivot = f.load(I64, pivots, k)
            a, b = f.load(I64, order, k), f.load(I64, order, pivot)
            f.store(b, order, k)
            f.store(a, order, pivot)

        f.loop(0, width, swap)

        def row(r: Reg) -> None:
            source, place = f.mul(r, width), f.mul(r, n)

            def element(c: Reg) -> None:
                value = f.load(type, frame, f.add(source, f.load(I64, order, c)))
                f.store(value, target, f.add(place, c))

            f.loop(0, n, element)

        f.loop(0, n, row)
        return f.finish()
