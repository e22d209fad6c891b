"""Spans of bytes: where the bytes of strings are, and strings made of such places.

A span is an address and a size, each in an int64 array. `TextSpans` reads them from Python's
`bytes` objects, other kernels find parts of them, and `SpanTexts` makes new objects. Kernels that
read or make objects must hold Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I8, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.singles.byte_strings import FUNCTIONS

__all__ = [
    "SpanNumbers", "SpanTexts", "TextSpans", "copy_bytes", "count_while", "is_ascii",
    "new_text", "span_at",
]  # fmt: skip


def count_while(f: Function, count: Operand, body: Callable[[Reg], Reg]) -> Reg:
    """Run body(i) for i in range(count) until it returns false; returns how often it was true."""
    limit = f.reg(count)

    def step(i: Reg, _: Reg) -> list[Reg]:
        fits = body(i)
        return [f.add(i, f.convert("zext", fits, I64)), fits]

    found, _ = f.repeat(
        lambda i, fits: f.and_(fits, f.icmp("slt", i, limit)),
        step,
        [f.const(0, I64), f.const(True, I1)],
    )
    return found


def span_at(f: Function, addresses: Reg, lengths: Reg, i: Operand) -> tuple[Reg, Reg]:
    """The pointer and size of span i."""
    return f.load(PTR, addresses, i), f.load(I64, lengths, i)


def copy_bytes(f: Function, source: Reg, target: Reg, count: Operand) -> None:
    f.loop(0, count, lambda i: f.store(f.load(I8, source, i), target, i))


def is_ascii(f: Function, bytes: Reg, size: Operand) -> Reg:
    """Whether no byte has its highest bit set."""
    (bits,) = f.loop(0, size, lambda i, bits: f.or_(bits, f.load(I8, bytes, i)), [f.const(0, I8)])
    return f.icmp("sge", bits, 0)


def new_text(
    f: Function, make: Reg, size: Operand, bytes_at: int, fill: Callable[[Reg], None]
) -> tuple[Reg, Reg]:
    """A new `bytes` object that `fill` writes, given where its bytes are, and whether there was
    memory for it.
    """
    made = f.call_pointer(make, PTR, f.const(0, PTR), f.reg(size))
    there = f.icmp("ne", f.convert("ptrtoint", made, I64), 0)
    f.when(there, lambda: fill(f.offset(made, bytes_at, I8)))
    return made, there


@dataclass(frozen=True)
class TextSpans:
    """addresses[i], lengths[i] = the bytes of strings[i], until one is no `bytes` object.

    `sizes`: how many, and the address of the type `bytes`. `done`: how many strings were read.
    """

    type_at: int
    size_at: int
    bytes_at: int

    arguments = ("sizes", "strings", "out:addresses", "out:lengths", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, strings, addresses, lengths, done = team.args
        count, wanted = (f.load(I64, sizes, i) for i in range(2))

        def read(i: Reg) -> Reg:
            text = f.load(PTR, strings, i)
            (is_bytes,) = f.when(
                f.icmp("ne", f.convert("ptrtoint", text, I64), 0),
                lambda: f.icmp("eq", f.load(I64, f.offset(text, self.type_at, I8)), wanted),
                lambda: f.const(False, I1),
            )

            def take() -> None:
                f.store(f.offset(text, self.bytes_at, I8), addresses, i)
                f.store(f.load(I64, f.offset(text, self.size_at, I8)), lengths, i)

            f.when(is_bytes, take)
            return is_bytes

        f.store(count_while(f, count, read), done)


@dataclass(frozen=True)
class SpanTexts:
    """texts[i] = a new `bytes` object with the bytes of span i, until there is no memory for one.

    `sizes`: how many, and the address of PyBytes_FromStringAndSize.
    """

    arguments = ("sizes", "addresses", "lengths", "out:texts", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, texts, done = team.args
        count, make = f.load(I64, sizes), f.load(PTR, sizes, 1)

        def write(i: Reg) -> Reg:
            text = f.call_pointer(make, PTR, *span_at(f, addresses, lengths, i))
            f.store(text, texts, i)
            return f.icmp("ne", f.convert("ptrtoint", text, I64), 0)

        f.store(count_while(f, count, write), done)


@dataclass(frozen=True)
class SpanNumbers:
    """result[i] = function(span i), as StringNumbers computes it of objects.

    `sizes`: how many. `done`: how many spans are such numbers.
    """

    function: str

    arguments = ("sizes", "addresses", "lengths", "out:result", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        number = FUNCTIONS[self.function](team)
        f = team.f
        sizes, addresses, lengths, result, done = team.args

        def read(i: Reg) -> Reg:
            f.store(f.const(1, I64), done)
            pointer, size = span_at(f, addresses, lengths, i)
            f.store(f.call_function(number, pointer, size, sizes, done), result, i)
            return f.icmp("ne", f.load(I64, done), 0)

        f.store(count_while(f, f.load(I64, sizes), read), done)
