"""New texts of others: in another case, without whitespace at the ends, joined."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I8, I64, PTR, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.singles.text_spans import (
    copy_bytes,
    count_while,
    new_text,
    span_at,
)

__all__ = ["ChangedCase", "JoinedTexts", "StrippedSpans"]


@dataclass(frozen=True)
class ChangedCase:
    """texts[i] = span i with its ASCII letters in lower (or upper) case.

    `sizes`: how many, and the address of PyBytes_FromStringAndSize. `done`: how many were written.
    """

    lower: bool
    bytes_at: int

    arguments = ("sizes", "addresses", "lengths", "out:texts", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, texts, done = team.args
        count, make = f.load(I64, sizes), f.load(PTR, sizes, 1)
        first = ord("A" if self.lower else "a")

        def write(i: Reg) -> Reg:
            text, size = span_at(f, addresses, lengths, i)

            def change(j: Reg, target: Reg) -> None:
                byte = f.load(I8, text, j)
                is_letter = f.icmp("ult", f.wrapping("sub", byte, f.const(first, I8)), 26)
                f.store(f.xor(byte, f.select(is_letter, f.const(32, I8), 0)), target, j)

            def fill(target: Reg) -> None:
                f.loop(0, size, lambda j: change(j, target))

            made, there = new_text(f, make, size, self.bytes_at, fill)
            f.store(made, texts, i)
            return there

        f.store(count_while(f, count, write), done)


@dataclass(frozen=True)
class StrippedSpans:
    """places[i], place_sizes[i] = span i without the bytes of `blanks` (uint8 [256], 1 for such a
    byte) at its ends. `sizes`: how many.
    """

    arguments = (
        "sizes", "addresses", "lengths", "blanks", "out:places", "out:place_sizes", "out:done",
    )  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, blanks, places, place_sizes, done = team.args

        def strip(i: Reg) -> None:
            text, size = span_at(f, addresses, lengths, i)

            def is_blank(inside: Reg, at: Reg) -> Reg:
                def look() -> Reg:
                    byte = f.convert("zext", f.load(I8, text, at), I64)
                    return f.icmp("ne", f.load(I8, blanks, byte), 0)

                (found,) = f.when(inside, look, lambda: f.const(False, I1))
                return found

            (start,) = f.repeat(
                lambda at: is_blank(f.icmp("slt", at, size), at),
                lambda at: f.add(at, 1),
                [f.const(0, I64)],
            )
            (end,) = f.repeat(
                lambda end: is_blank(f.icmp("sgt", end, start), f.sub(end, 1)),
                lambda end: f.sub(end, 1),
                [size],
            )
            f.store(f.offset(text, start, I8), places, i)
            f.store(f.sub(end, start), place_sizes, i)

        count = f.load(I64, sizes)
        f.loop(0, count, strip)
        f.store(count, done)


@dataclass(frozen=True)
class JoinedTexts:
    """texts[i] = spans [0, i], [1, i], ... with the separator between them.

    `sizes`: how many texts, how many parts each (at least one), the size of the separator, and the
    address of PyBytes_FromStringAndSize. `done`: how many were written.
    """

    bytes_at: int

    arguments = ("sizes", "addresses", "lengths", "separator", "out:texts", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, separator, texts, done = team.args
        count, parts, between = (f.load(I64, sizes, i) for i in range(3))
        make = f.load(PTR, sizes, 3)

        def write(i: Reg) -> Reg:
            def at(part: Reg) -> Reg:
                return f.add(f.mul(part, count), i)

            (size,) = f.loop(
                0,
                parts,
                lambda part, size: f.add(size, f.load(I64, lengths, at(part))),
                [f.mul(f.sub(parts, 1), between)],
            )

            def fill(target: Reg) -> None:
                def put(part: Reg, written: Reg) -> Reg:
                    text, length = span_at(f, addresses, lengths, at(part))

                    def put_separator() -> Reg:
                        copy_bytes(f, separator, f.offset(target, written, I8), between)
                        return f.add(written, between)

                    (start,) = f.when(f.icmp("ne", part, 0), put_separator, lambda: written)
                    copy_bytes(f, text, f.offset(target, start, I8), length)
                    return f.add(start, length)

                f.loop(0, parts, put, [f.const(0, I64)])

            made, there = new_text(f, make, size, self.bytes_at, fill)
            f.store(made, texts, i)
            return there

        f.store(count_while(f, count, write), done)
