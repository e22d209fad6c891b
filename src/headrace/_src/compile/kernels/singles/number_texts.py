"""Numbers as text, straight to `bytes` objects, as C's %d and %f write them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F64, I8, I64, PTR, Function, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.singles.text_spans import count_while

__all__ = ["NumberTexts"]

_ROOM = 64  # bytes of the longest text: a sign, 20 digits, a point, and some digits behind it


@dataclass(frozen=True)
class NumberTexts:
    """texts[i] = values[i], int64 or float64, in decimal digits.

    `sizes`: how many, the address of PyBytes_FromStringAndSize, and for floats the number of digits
    behind the point (15 at most) and the bits of that power of ten as a float64. A float times it
    is below 2^52.
    """

    is_float: bool

    arguments = ("sizes", "values", "out:texts", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, values, texts, done = team.args
        count, make = f.load(I64, sizes), f.load(PTR, sizes, 1)
        room = f.local(I8, _ROOM)

        def put(byte: int | Reg, at: Reg) -> Reg:
            """Write a byte in front of those at a position; returns the new position."""
            at = f.sub(at, 1)
            f.store(f.convert("trunc", f.reg(byte), I8), room, at)
            return at

        def digit(rest: Reg, at: Reg) -> list[Reg]:
            byte = f.add(f.rem(rest, 10), ord("0"))
            return [f.div(rest, 10), put(byte, at)]

        def integer(value: Reg) -> Reg:
            negative = f.icmp("slt", value, 0)
            size = f.select(negative, f.wrapping("sub", f.const(0, I64), value), value)
            return sign(negative, *digit(size, f.const(_ROOM, I64)))

        def fixed(value: Reg) -> Reg:
            digits, scale = f.load(I64, sizes, 2), f.load(F64, sizes, 3)
            negative = f.icmp("slt", f.convert("bitcast", value, I64), 0)
            whole = f.convert("fptosi", _scaled(f, value, scale), I64)
            end = f.const(_ROOM, I64)
            rest, at = f.loop(0, digits, lambda i, rest, at: digit(rest, at), [whole, end])
            (at,) = f.when(f.icmp("ne", digits, 0), lambda: put(ord("."), at), lambda: at)
            return sign(negative, *digit(rest, at))

        def sign(negative: Reg, rest: Reg, at: Reg) -> Reg:
            """Write the other digits and the sign; returns where the text starts."""
            _, at = f.repeat(lambda rest, at: f.icmp("ne", rest, 0), digit, [rest, at])
            (at,) = f.when(negative, lambda: put(ord("-"), at), lambda: at)
            return at

        def write(i: Reg) -> Reg:
            start = (
                fixed(f.load(F64, values, i)) if self.is_float else integer(f.load(I64, values, i))
            )
            size = f.sub(f.const(_ROOM, I64), start)
            text = f.call_pointer(make, PTR, f.offset(room, start, I8), size)
            f.store(text, texts, i)
            return f.icmp("ne", f.convert("ptrtoint", text, I64), 0)

        f.store(count_while(f, count, write), done)


def _scaled(f: Function, value: Reg, scale: Reg) -> Reg:
    """|value| * scale, rounded once to a whole number, halves to even."""
    size = f.intrinsic("fabs", F64, value)
    product = f.fmul(size, scale)
    error = f.intrinsic("fma", F64, size, scale, f.fneg(product))  # exact
    near = f.intrinsic("rint", F64, product)
    # The error matters only where the rounded product lies halfway between two whole numbers.
    left = f.fsub(product, near)
    up = f.and_(f.fcmp("oeq", left, 0.5), f.fcmp("ogt", error, 0.0))
    down = f.and_(f.fcmp("oeq", left, -0.5), f.fcmp("olt", error, 0.0))
    one, zero = f.const(1.0, F64), f.const(0.0, F64)
    return f.fadd(near, f.fsub(f.select(up, one, zero), f.select(down, one, zero)))
