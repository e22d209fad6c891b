"""The largest elements of rows, and where they are."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.compile.emit import I1, I32, Reg
from headrace.compile.kernel import Team
from headrace.compile.pointwise import load_value, memory_type, store_value

__all__ = ["Largest"]


@dataclass(frozen=True)
class Largest:
    """The k largest of each of `rows` rows of `length` elements, in descending order; of equal ones
    the first comes first, and a NaN is larger than any number.

    Elements come one by one. What has been found so far is in order in the result, and an element
    that belongs there moves the smaller ones on by a place.
    """

    rows: int
    length: int
    k: int
    dtype: str

    arguments = ("x", "out:values", "out:indices")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        x, values, indices = team.args
        type = memory_type(self.dtype)

        def row(r: Reg) -> None:
            at = f.mul(r, self.k)
            found = f.offset(values, at, type), f.offset(indices, at, I32)
            source = f.offset(x, f.mul(r, self.length), type)

            def element(j: Reg) -> None:
                value = load_value(f, self.dtype, 0, source, j)
                least = load_value(f, self.dtype, 0, found[0], self.k - 1)
                room = f.icmp("slt", j, self.k)
                f.when(
                    f.or_(room, self._beats(team, value, least)),
                    lambda: self._insert(team, found, j, value),
                )

            f.loop(0, self.length, element)

        f.loop(*team.share(self.rows), row)

    def _insert(self, team: Team, found: tuple[Reg, Reg], j: Reg, value: Reg) -> None:
        """Put element j among those that were found: of the places, the first j are taken."""
        f = team.f
        values, indices = found

        def place(i: Reg, value: Reg, index: Reg, moved: Reg) -> list[Reg]:
            here = load_value(f, self.dtype, 0, values, i)
            there = f.load(I32, indices, i)
            moves = f.or_(f.icmp("sge", i, j), self._beats(team, value, here))
            moves = f.or_(moved, moves)
            store_value(f, self.dtype, f.select(moves, value, here), values, i)
            f.store(f.select(moves, index, there), indices, i)
            return [f.select(moves, here, value), f.select(moves, there, index), moves]

        start = [value, f.convert("trunc", j, I32), f.const(False, I1)]
        f.loop(0, self.k, place, start)

    def _beats(self, team: Team, x: Reg, y: Reg) -> Reg:
        f = team.f
        if "float" in self.dtype:
            return f.and_(f.fcmp("ord", y, y), f.fcmp("ugt", x, y))
        return f.icmp("ugt" if self.dtype.startswith("u") else "sgt", x, y)
