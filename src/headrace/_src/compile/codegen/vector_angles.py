"""Circular functions on vector registers: sine, cosine, and the angle of a point.

In: float32 or float64 registers. Out: registers. Any finite angle is reduced exactly: usual angles
by fused multiply-adds, large ones with integers and many digits of 2 / pi. vector_math's table has
the largest errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, pi

from headrace._src.compile.codegen.emit import F32, F64, I32, I64, PTR, VOID, Function, Reg
from headrace._src.compile.codegen.vector_formats import (
    DOUBLE,
    absolute,
    bits_of,
    exact_product,
    exact_sum,
    format_of,
    polynomial,
    rounding_number,
    with_sign,
)

__all__ = ["atan2", "cos", "sin", "sine_and_cosine"]

# A reduced angle: the quadrant modulo 4 as integers, the rest, and what the rest is short of.
Angle = tuple[Reg, Reg, Reg]

# pi / 2 in pieces of 33 bits, so that multiples up to 2^20 of the first two are exact.
_QUARTERS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_REDUCIBLE = 1.0e6
# pi / 2 in float32 pieces. Up to 2^13 times the first is taken off exactly by a fused multiply-add,
# and the second, of 11 bits, where little is left.
_QUARTERS_SINGLE = (1.5707963705062866, -4.368484951555729e-08, -2.6540486822157483e-11)
_REDUCIBLE_SINGLE = 1.0e4


def sin(f: Function, x: Reg) -> Reg:
    """The sine of any finite x; NaN for infinity."""
    return sine_and_cosine(f, x)[0]


def cos(f: Function, x: Reg) -> Reg:
    """The cosine of any finite x; NaN for infinity."""
    return sine_and_cosine(f, x)[1]


def sine_and_cosine(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """Return sine and cosine, for about the cost of one."""
    quadrant, r, low = _reduce_angle(f, x)
    z = f.fmul(r, r)
    kind = format_of(x)
    s = f.fadd(f.fma(f.fmul(polynomial(f, z, kind.sin), z), r, low), r)
    half = f.fmul(z, 0.5)
    # 1 - z/2 loses bits that the next term must carry.
    near = f.fsub(1.0, half)
    lost = f.fsub(f.fsub(1.0, near), half)
    rest = f.fma(f.fmul(z, z), polynomial(f, z, kind.cos), f.fsub(lost, f.fmul(r, low)))
    c = f.fadd(near, rest)
    swap = f.icmp("ne", f.and_(quadrant, 1), 0)
    sine, cosine = f.select(swap, c, s), f.select(swap, s, c)
    sine = f.select(f.icmp("ne", f.and_(quadrant, 2), 0), f.fneg(sine), sine)
    sine = f.select(f.fcmp("oeq", x, 0.0), x, sine)  # the computation loses the sign of -0
    turned = f.and_(f.wrapping("add", quadrant, 1), 2)
    return sine, f.select(f.icmp("ne", turned, 0), f.fneg(cosine), cosine)


def _reduce_angle(f: Function, x: Reg) -> Angle:
    """x = quadrant * pi / 2 + r + low: the quadrant (modulo 4) as integers, r and its low part."""
    if format_of(x) is DOUBLE:
        return _reduce_double(f, x)
    if not f.target.fma:
        return _reduce_single_exactly(f, x)
    shifted = f.fma(x, 2 / pi, rounding_number(x))
    k = f.fsub(shifted, rounding_number(x))
    near = f.fma(k, -_QUARTERS_SINGLE[1], f.fma(k, -_QUARTERS_SINGLE[0], x))
    r = f.fma(k, -_QUARTERS_SINGLE[2], near)
    low = f.fma(k, -_QUARTERS_SINGLE[2], f.fsub(near, r))
    large = f.fcmp("ogt", absolute(f, x), _REDUCIBLE_SINGLE)
    usual = (bits_of(f, shifted), r, low)
    return _replaced(f, large, usual, lambda: _reduce_single_exactly(f, x))


def _replaced(f: Function, which: Reg, usual: Angle, unusual: Callable[[], Angle]) -> Angle:
    """Return `usual`, but in the lanes of `which` the other values, which are computed only if
    there is such a lane. A lane's result must not depend on its neighbours.
    """

    def mixed() -> list[Reg]:
        pairs = zip(unusual(), usual, strict=True)
        return [f.select(which, other, own) for other, own in pairs]

    quadrant, r, low = f.when(_any(f, which), mixed, lambda: list(usual))
    return quadrant, r, low


def _any(f: Function, lanes: Reg) -> Reg:
    return f.reduce("or", lanes) if lanes.type.lanes else lanes


def _reduce_single_exactly(f: Function, x: Reg) -> Angle:
    """Reduce float32 angles in float64."""
    quadrant, r, _ = _reduce_double(f, f.convert("fpext", x, F64))
    single = f.convert("fptrunc", r, F32)
    low = f.convert("fptrunc", f.fsub(r, f.convert("fpext", single, F64)), F32)
    return f.convert("trunc", quadrant, I32), single, low


def _reduce_double(f: Function, x: Reg) -> Angle:
    shifted = f.fma(x, 2 / pi, rounding_number(x))
    k = f.fsub(shifted, rounding_number(x))
    exact = f.fma(k, -_QUARTERS[0], x)
    second = f.fmul(k, _QUARTERS[1])
    r = f.fsub(exact, second)
    r, low = exact_sum(f, r, f.fma(k, -_QUARTERS[2], f.fsub(f.fsub(exact, r), second)))
    large = f.fcmp("ogt", absolute(f, x), _REDUCIBLE)
    return _replaced(f, large, (bits_of(f, shifted), r, low), lambda: _reduce_lanes(f, x))


def _reduce_lanes(f: Function, x: Reg) -> Angle:
    """Reduce angles of any size, lane by lane."""
    lanes = max(1, x.type.lanes)
    reducer = _angle_reducer(f)
    angles, quadrants = f.local(F64, lanes), f.local(I64, lanes)
    high, low = f.local(F64, lanes), f.local(F64, lanes)
    f.store(x, angles)
    f.loop(
        0,
        lanes,
        lambda i: f.call_function(
            reducer,
            f.load(F64, angles, i),
            f.offset(quadrants, i, I64),
            f.offset(high, i, F64),
            f.offset(low, i, F64),
        ),
    )
    whole = f.load(I64.of(x.type.lanes), quadrants)
    return whole, f.load(x.type, high), f.load(x.type, low)


# The binary digits of 2 / pi behind the point, after 64 zeros, 64 to a word.
_TWO_OVER_PI = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
)  # fmt: skip


def _angle_reducer(f: Function) -> Function:
    """The module's function that reduces one angle, however large, with integers.

    x = m * 2^e with a whole m. Digits of 2/pi that would give multiples of 4 quadrants are skipped;
    the next 192 are multiplied by m, and the top two bits of the product are the quadrant.
    """
    name = "reduce_angle"
    if name in f.module.functions:
        return f.module.functions[name]
    g = f.module.function(name, [F64, PTR, PTR, PTR], VOID)
    x, quadrant_at, high_at, low_at = g.parameters
    table = f.module.data("two_over_pi", [w - (w >> 63 << 64) for w in _TWO_OVER_PI], I64)
    bits = bits_of(g, absolute(g, x))
    mantissa = g.or_(g.and_(bits, (1 << 52) - 1), 1 << 52)
    # Small angles get here too if another lane has a large one; their results aren't used.
    exponent = g.wrapping("sub", g.lshr(bits, 52), 1075)
    start = g.wrapping("add", exponent, 62)
    start = g.select(g.icmp("slt", start, 0), g.const(0, I64), start)
    words = [_digits(g, table, start, i) for i in range(3)]
    top, middle, _ = _multiply_192(g, mantissa, words)
    quadrant = g.lshr(g.wrapping("add", top, 1 << 61), 62)
    # The fraction of a quadrant, in [-1/2, 1/2), as 128 bits.
    fraction = g.or_(g.shl(top, 2), g.lshr(middle, 62))
    below = g.shl(middle, 2)
    head = g.convert("sitofp", g.and_(fraction, -1024), F64)
    tail = g.convert("uitofp", g.and_(fraction, 1023), F64)
    tail = g.fma(g.convert("uitofp", below, F64), 2.0**-64, tail)
    turn, rest = exact_sum(g, g.fmul(head, 2.0**-64), g.fmul(tail, 2.0**-64))
    r, r_low = exact_product(g, turn, g.const(pi / 2, F64))
    r_low = g.fma(rest, pi / 2, g.fma(turn, DOUBLE.pi[1] / 2, r_low))
    r, r_low = exact_sum(g, r, r_low)
    negative = g.fcmp("olt", x, 0.0)
    turned = g.select(negative, g.wrapping("sub", g.const(0, I64), quadrant), quadrant)
    infinite = g.fcmp("oeq", absolute(g, x), inf)
    g.store(turned, quadrant_at)
    g.store(g.select(infinite, nan, g.select(negative, g.fneg(r), r)), high_at)
    g.store(g.select(negative, g.fneg(r_low), r_low), low_at)
    return g.finish()


def _digits(g: Function, table: Reg, start: Reg, word: int) -> Reg:
    """64 bits of the table from bit `start` + 64 * `word` on."""
    at = g.add(g.lshr(start, 6), word)
    shift = g.and_(start, 63)
    first = g.shl(g.load(I64, table, at), shift)
    second = g.lshr(g.lshr(g.load(I64, table, g.add(at, 1)), 1), g.wrapping("sub", 63, shift))
    return g.or_(first, second)


def _multiply_192(g: Function, m: Reg, words: Sequence[Reg]) -> list[Reg]:
    """m * (words as one number, most significant first), modulo 2^192."""
    low = g.wrapping("mul", m, words[2])
    middle = g.wrapping("mul", m, words[1])
    carried = g.wrapping("add", middle, _multiply_high(g, m, words[2]))
    carry = g.convert("zext", g.icmp("ult", carried, middle), I64)
    top = g.wrapping("add", g.wrapping("mul", m, words[0]), _multiply_high(g, m, words[1]))
    return [g.wrapping("add", top, carry), carried, low]


def _multiply_high(g: Function, x: Reg, y: Reg) -> Reg:
    """The upper 64 bits of a product, by halves: not every target multiplies 128 bits."""
    x_low, x_high = g.and_(x, 0xFFFFFFFF), g.lshr(x, 32)
    y_low, y_high = g.and_(y, 0xFFFFFFFF), g.lshr(y, 32)
    cross = g.wrapping("mul", x_high, y_low)
    middle = g.wrapping("add", cross, g.lshr(g.wrapping("mul", x_low, y_low), 32))
    other = g.wrapping("add", g.wrapping("mul", x_low, y_high), g.and_(middle, 0xFFFFFFFF))
    upper = g.wrapping("add", g.wrapping("mul", x_high, y_high), g.lshr(middle, 32))
    return g.wrapping("add", upper, g.lshr(other, 32))


def atan2(f: Function, y: Reg, x: Reg) -> Reg:
    """The angle of the point (x, y), in [-pi, pi]."""
    kind = format_of(x)
    ax, ay = absolute(f, x), absolute(f, y)
    # Two infinities are as far away as each other.
    both = f.and_(f.fcmp("oeq", ax, inf), f.fcmp("oeq", ay, inf))
    steep = f.fcmp("ogt", ay, ax)
    small = f.select(both, 1.0, f.select(steep, ax, ay))
    large = f.select(both, 1.0, f.select(steep, ay, ax))
    # Their sum must not overflow.
    scale = f.select(
        f.fcmp("ogt", large, 2.0 ** (kind.bias - 1)), f.const(0.25, x.type), f.const(1.0, x.type)
    )
    small, large = f.fmul(small, scale), f.fmul(large, scale)
    # atan(s / l) = pi / 4 + atan((s - l) / (s + l)) where s / l > tan(pi / 8).
    diagonal = f.fcmp("ogt", small, f.fmul(large, 0.41421356237309503))
    top = f.select(diagonal, f.fsub(small, large), small)
    bottom = f.select(diagonal, f.fadd(small, large), large)
    origin = f.fcmp("oeq", large, 0.0)
    t = f.fdiv(top, f.select(origin, 1.0, bottom))
    z = f.fmul(t, t)
    eighth = f.select(diagonal, f.const(kind.pi[0] / 4, x.type), f.const(0.0, x.type))
    eighth_low = f.select(diagonal, f.const(kind.pi[1] / 4, x.type), f.const(0.0, x.type))
    angle = f.fma(f.fmul(polynomial(f, z, kind.atan), z), t, t)
    # Then reflected at the diagonal and at the y axis, adding the parts of pi from small to large.
    turn, turn_low = eighth, eighth_low
    quarter, quarter_low = kind.pi[0] / 2, kind.pi[1] / 2
    angle = f.select(steep, f.fneg(angle), angle)
    turn = f.select(steep, f.fsub(quarter, turn), turn)
    turn_low = f.select(steep, f.fsub(quarter_low, turn_low), turn_low)
    behind = f.icmp("slt", bits_of(f, x), 0)
    angle = f.select(behind, f.fneg(angle), angle)
    turn = f.select(behind, f.fsub(kind.pi[0], turn), turn)
    turn_low = f.select(behind, f.fsub(kind.pi[1], turn_low), turn_low)
    result = with_sign(f, f.fadd(turn, f.fadd(angle, turn_low)), y)
    return f.select(f.fcmp("uno", x, y), nan, result)
