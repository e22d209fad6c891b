"""Texts cut at single bytes: the fields of plain CSV records, and the pieces between marks."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I8, I64, Function, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.singles.text_spans import count_while, span_at

__all__ = ["CsvFields", "SplitTexts"]


def _byte(f: Function, text: Reg, at: Reg) -> Reg:
    return f.convert("zext", f.load(I8, text, at), I64)


@dataclass(frozen=True)
class CsvFields:
    """Where the fields of records are: addresses and sizes, [columns, records]. It stops at a
    record with another number of fields, and at one that is empty or has a byte of `special`.

    `sizes`: how many records and columns, and the delimiter. `special`: uint8 [256], 1 for a byte
    that is left to others. `done`: how many records were read.
    """

    arguments = (
        "sizes", "addresses", "lengths", "special", "out:places", "out:place_sizes", "out:done",
    )  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, special, places, place_sizes, done = team.args
        records, columns, delimiter = (f.load(I64, sizes, i) for i in range(3))

        def read(i: Reg) -> Reg:
            text, size = span_at(f, addresses, lengths, i)

            def put(column: Reg, start: Reg, end: Reg) -> Reg:
                """Write a field, if there is a column for it; returns the next column."""
                at = f.add(f.mul(column, records), i)

                def write() -> None:
                    f.store(f.offset(text, start, I8), places, at)
                    f.store(f.sub(end, start), place_sizes, at)

                f.when(f.icmp("slt", column, columns), write)
                return f.add(column, 1)

            def look(at: Reg, column: Reg, start: Reg, plain: Reg) -> list[Reg]:
                byte = _byte(f, text, at)
                column, start = f.when(
                    f.icmp("eq", byte, delimiter),
                    lambda: [put(column, start, at), f.add(at, 1)],
                    lambda: [column, start],
                )
                return [column, start, f.or_(plain, f.load(I8, special, byte))]

            zero = f.const(0, I64)
            column, start, odd = f.loop(0, size, look, [zero, zero, f.const(0, I8)])
            fields = put(column, start, size)
            plain = f.and_(f.icmp("eq", odd, 0), f.icmp("sgt", size, 0))
            return f.and_(plain, f.icmp("eq", fields, columns))

        f.store(count_while(f, records, read), done)


@dataclass(frozen=True)
class SplitTexts:
    """The pieces of texts between marks: where they are, and for each one (text, place in it).

    `sizes`: how many texts, and 1 if empty pieces count. `marks`: uint8 [256], 1 for a mark.
    `counts`: how many pieces each text has. There is room for one piece more than a text has bytes,
    for each text. `done`: how many pieces there are.
    """

    arguments = (
        "sizes", "addresses", "lengths", "marks", "out:places", "out:place_sizes", "out:indices",
        "out:counts", "out:done",
    )  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, marks, places, place_sizes, indices, counts, done = team.args
        texts, keep_empty = f.load(I64, sizes), f.icmp("ne", f.load(I64, sizes, 1), 0)

        def split(i: Reg, before: Reg) -> Reg:
            text, size = span_at(f, addresses, lengths, i)

            def piece(start: Reg, end: Reg, total: Reg) -> Reg:
                def write() -> Reg:
                    f.store(f.offset(text, start, I8), places, total)
                    f.store(f.sub(end, start), place_sizes, total)
                    pair = f.mul(total, 2)
                    f.store(i, indices, pair)
                    f.store(f.sub(total, before), indices, f.add(pair, 1))
                    return f.add(total, 1)

                counts_too = f.or_(keep_empty, f.icmp("ne", start, end))
                (after,) = f.when(counts_too, write, lambda: total)
                return after

            def look(at: Reg, start: Reg, total: Reg) -> list[Reg]:
                return f.when(
                    f.icmp("ne", f.load(I8, marks, _byte(f, text, at)), 0),
                    lambda: [f.add(at, 1), piece(start, at, total)],
                    lambda: [start, total],
                )

            start, total = f.loop(0, size, look, [f.const(0, I64), before])
            total = piece(start, size, total)
            f.store(f.sub(total, before), counts, i)
            return total

        (total,) = f.loop(0, texts, split, [f.const(0, I64)])
        f.store(total, done)
