"""Elementary functions on vector registers. In: a float32 or float64 value. Out: another.

They take any number of lanes (and scalars). Their code is straight-line, except for arguments of
sin and cos that are too large for the usual reduction. Infinities, NaNs, signed zeros and subnormal
numbers give the results of C's functions. The largest errors found by the tests, in units in the
last place, on processors with fused multiply-add:

                float32   float64                     float32   float64
    exp           1.0       1.0       tanh              1.5       2.5
    expm1         1.5       2.0       sigmoid           2.5       2.5
    log           1.0       1.0       erf               1.5       1.5
    log1p         1.5       1.5       sin, cos          2.0       1.0
    pow           1.0       1.5       atan2             2.5       2.5
    sqrt          0.5       0.5       rsqrt             1.5       1.5

Sin, cos and atan2 are in vector_angles, a quicker tanh for AVX-512 in vector_tables (1.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

from headrace._src.compile.codegen.emit import F32, F64, I8, I16, I32, Function, Reg
from headrace._src.compile.codegen.vector_formats import (
    DOUBLE,
    SINGLE,
    Format,
    absolute,
    at_least,
    at_most,
    bits_of,
    exact_product,
    exact_sum,
    format_of,
    number_of,
    polynomial,
    rounding_number,
    with_sign,
)
from headrace._src.compile.codegen.vector_tables import has_table_for, tanh_by_table

__all__ = [
    "erf", "exp", "expm1", "log", "log1p", "maximum", "minimum", "power", "rsqrt", "sigmoid",
    "sqrt", "tanh",
]  # fmt: skip

# (log(1 + f) - f + f^2 / 2) / f^3, sqrt(1/2) - 1 < f < sqrt(2) - 1
_LOG_SINGLE = (
    0.06915551625717714, -0.11789882807219984, 0.11872929696289158, -0.12384331731397742,
    0.14218662764002793, -0.16669252018936828, 0.20002226394339392, -0.24999986572948407,
    0.33333310443707775,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s^2 of s^2, |s| < (sqrt(2) - 1) / (sqrt(2) + 1)
_LOG_DOUBLE = (
    0.1325275935453019, 0.13249961514923134, 0.15387097674065428, 0.18181775507984133,
    0.22222222648757392, 0.28571428569072915, 0.40000000000006286, 0.6666666666666666,
)  # fmt: skip
# The same with another term taken away: ((log((1 + s) / (1 - s)) / s - 2) / s^2 - 2/3) / s^2
_LOG_LONG = (
    0.11990422228307265, 0.11674649719087725, 0.13336325712872762, 0.1538455665601194,
    0.18181818873456382, 0.22222222217510948, 0.2857142857144522, 0.3999999999999998,
)  # fmt: skip
# (e^r - 1 - r) / r^2 to 40 bits: enough where a float64 serves as an exact float32.
_EXP_SHORT = (
    2.470790464474166e-05, 0.00019909209340915028, 0.001388919963220387, 0.008333281395996294,
    0.0416666643775795, 0.16666666785855677, 0.5000000000433729,
)  # fmt: skip
# (tanh(x) / x - 1) / x^2 of x^2, |x| < 0.625
_TANH_SINGLE = (
    0.002147541335932308, -0.008182679255929953, 0.021702969544161285, -0.053947204773555905,
    0.13333209768395976, -0.33333330906813535,
)  # fmt: skip


def maximum(f: Function, x: Reg, y: Reg) -> Reg:
    """The greater, NaN if either is NaN."""
    return f.select(f.fcmp("uno", x, x), x, f.select(f.fcmp("ogt", x, y), x, y))


def minimum(f: Function, x: Reg, y: Reg) -> Reg:
    """The smaller, NaN if either is NaN."""
    return f.select(f.fcmp("uno", x, x), x, f.select(f.fcmp("olt", x, y), x, y))


# -- Roots --------------------------------------------------------------------------------------


def sqrt(f: Function, x: Reg) -> Reg:
    """The square root, correctly rounded."""
    return f.intrinsic("sqrt", x.type, x)


def rsqrt(f: Function, x: Reg) -> Reg:
    """1 / sqrt(x)."""
    return f.fdiv(1.0, sqrt(f, x))


# -- Exponentials -------------------------------------------------------------------------------


def _power_of_two(f: Function, n: Reg, kind: Format) -> Reg:
    """2^n for n within the normal exponents."""
    return number_of(f, f.shl(f.wrapping("add", n, kind.bias), kind.mantissa))


@dataclass(frozen=True)
class _Whole:
    """A whole number n, as a float and (computed on demand) as an integer."""

    number: Reg
    shifted: Reg  # n + 1.5 * 2^mantissa: n is in the low bits

    def integer(self, f: Function) -> Reg:
        magic = f.const(rounding_number(self.number), self.number.type)
        return f.wrapping("sub", bits_of(f, self.shifted), bits_of(f, magic))


def _reduce_exponent(f: Function, x: Reg) -> tuple[_Whole, Reg]:
    """x = n * ln(2) + r: whole n, and r with |r| <= ln(2) / 2."""
    high, low = format_of(x).ln2
    shifted = f.fma(x, 1.4426950408889634, rounding_number(x))
    n = f.fsub(shifted, rounding_number(x))
    return _Whole(n, shifted), f.fma(n, -low, f.fma(n, -high, x))


def _exp_core(f: Function, r: Reg, coefficients: Sequence[float] | None = None) -> Reg:
    """e^r - 1 for |r| <= ln(2) / 2."""
    p = polynomial(f, r, coefficients or format_of(r).exp)
    return f.fma(p, f.fmul(r, r), r)


def _scaled(f: Function, y: Reg, n: _Whole, moderate: bool = False) -> Reg:
    """y * 2^n; a `moderate` n gives a normal power of two."""
    if _has_scale_instruction(f, y):
        return _scale_instruction(f, y, n.number)
    kind, whole = format_of(y), n.integer(f)
    if moderate:
        return f.fmul(y, _power_of_two(f, whole, kind))
    # In two steps, as n may be outside the normal exponents.
    half = f.ashr(whole, 1)
    rest = f.wrapping("sub", whole, half)
    return f.fmul(f.fmul(y, _power_of_two(f, half, kind)), _power_of_two(f, rest, kind))


def _has_scale_instruction(f: Function, y: Reg) -> bool:
    return f.target.has("avx512f") and y.type.lanes * y.type.bits == 512


def _scale_instruction(f: Function, y: Reg, n: Reg) -> Reg:
    suffix, mask = ("ps", I16) if format_of(y) is SINGLE else ("pd", I8)
    everything, nearest = f.const(-1, mask), f.const(4, I32)
    name = f"llvm.x86.avx512.mask.scalef.{suffix}.512"
    return f.call(name, y.type, y, n, y, everything, nearest)


def exp(f: Function, x: Reg) -> Reg:
    """e^x."""
    low, high = format_of(x).exp_range
    n, r = _reduce_exponent(f, at_most(f, at_least(f, x, low), high))
    return _scaled(f, f.fadd(_exp_core(f, r), 1.0), n)


def _exp_moderate(f: Function, x: Reg) -> Reg:
    """e^x for an x that is known to give a normal number (or is NaN)."""
    n, r = _reduce_exponent(f, x)
    return _scaled(f, f.fadd(_exp_core(f, r), 1.0), n, moderate=True)


def expm1(f: Function, x: Reg) -> Reg:
    """e^x - 1, exact near 0."""
    kind = format_of(x)
    # 2^n (e^r - 1) + (2^n - 1). Half of it is computed: 2^n itself may be too large.
    x_bounded = at_most(f, at_least(f, x, -45.0), kind.exp_range[1])
    n, r = _reduce_exponent(f, x_bounded)
    scale = _power_of_two(f, f.wrapping("sub", n.integer(f), 1), kind)
    half = f.fma(_exp_core(f, r), scale, f.fsub(scale, 0.5))
    return with_sign(f, f.fadd(half, half), x)


def sigmoid(f: Function, x: Reg) -> Reg:
    """1 / (1 + e^-x), without overflow on either side."""
    e = exp(f, f.fneg(absolute(f, x)))
    numerator = f.select(f.fcmp("olt", x, 0.0), e, 1.0)
    return f.fdiv(numerator, f.fadd(e, 1.0))


def tanh(f: Function, x: Reg) -> Reg:
    """The hyperbolic tangent."""
    if format_of(x) is DOUBLE:
        t = expm1(f, at_most(f, f.fmul(absolute(f, x), 2.0), 40.0))
        return with_sign(f, f.fdiv(t, f.fadd(t, 2.0)), x)
    if has_table_for(f, x):
        return tanh_by_table(f, x)
    magnitude = absolute(f, x)
    z = f.fmul(x, x)
    part = f.fmul(polynomial(f, z, _TANH_SINGLE), z)
    small = f.fma(part, magnitude, magnitude)
    e = _exp_moderate(f, at_most(f, f.fadd(magnitude, magnitude), 20.0))
    large = f.fsub(1.0, f.fdiv(2.0, f.fadd(e, 1.0)))
    return with_sign(f, f.select(f.fcmp("olt", magnitude, 0.625), small, large), x)


def erf(f: Function, x: Reg) -> Reg:
    """The error function: a polynomial below 1, above it 1 - e^(log(erfc(x)))."""
    kind = format_of(x)
    magnitude = at_most(f, absolute(f, x), kind.erf_end)
    part = polynomial(f, f.fmul(x, x), kind.erf_small)
    small = f.fma(part, magnitude, magnitude)
    exponent = polynomial(f, f.fsub(magnitude, 1.0), kind.erf_large)
    large = f.fsub(1.0, _exp_moderate(f, exponent))
    return with_sign(f, f.select(f.fcmp("olt", magnitude, 1.0), small, large), x)


# -- Logarithms ---------------------------------------------------------------------------------


def _exponent_and_fraction(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """x = m * 2^e for a positive normal x: the integers e and the m in [sqrt(1/2), sqrt(2))."""
    kind = format_of(x)
    bits = bits_of(f, x)
    root = 0x3F3504F3 if kind is SINGLE else 0x3FE6A09E667F3BCD
    e = f.ashr(f.wrapping("sub", bits, root), kind.mantissa)
    return e, number_of(f, f.wrapping("sub", bits, f.shl(e, kind.mantissa)))


def _log_sum(f: Function, e: Reg, g: Reg) -> Reg:
    """log(1 + g) + e * ln(2), where 1 + g is in [sqrt(1/2), sqrt(2))."""
    kind = format_of(g)
    high, low = kind.ln2
    if kind is SINGLE:
        z = f.fmul(g, g)
        y = f.fmul(f.fmul(g, z), polynomial(f, g, _LOG_SINGLE))
        y = f.fma(z, -0.5, f.fma(e, low, y))
        return f.fma(e, high, f.fadd(g, y))
    s = f.fdiv(g, f.fadd(g, 2.0))
    z = f.fmul(s, s)
    half = f.fmul(f.fmul(g, g), 0.5)
    rest = f.fma(s, f.fma(z, polynomial(f, z, _LOG_DOUBLE), half), f.fmul(e, low))
    return f.fma(e, high, f.fsub(g, f.fsub(half, rest)))


def _normal(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """A positive x as a normal number, and the power of two that was taken from it, floating."""
    kind = format_of(x)
    shift = kind.mantissa + 2
    tiny = f.fcmp("olt", x, 2.0 ** (1 - kind.bias))
    scaled = f.select(tiny, f.fmul(x, 2.0**shift), x)
    return scaled, f.select(tiny, f.const(float(shift), x.type), f.const(0.0, x.type))


def log(f: Function, x: Reg) -> Reg:
    """The natural logarithm."""
    scaled, shift = _normal(f, x)
    e, m = _exponent_and_fraction(f, scaled)
    y = _log_sum(f, f.fsub(f.convert("sitofp", e, x.type), shift), f.fsub(m, 1.0))
    return _log_edges(f, y, x, 0.0)


def _log_edges(f: Function, y: Reg, x: Reg, pole: float) -> Reg:
    """-infinity at the pole, NaN below it and for NaN, infinity for infinity."""
    y = f.select(f.fcmp("oeq", x, pole), -inf, y)
    y = f.select(f.fcmp("ult", x, pole), nan, y)
    return f.select(f.fcmp("oeq", x, inf), inf, y)


def log1p(f: Function, x: Reg) -> Reg:
    """log(1 + x), exact near 0."""
    kind = format_of(x)
    total = f.fadd(x, 1.0)
    # What the sum lost, exactly.
    part = f.fsub(total, 1.0)
    lost = f.fadd(f.fsub(1.0, f.fsub(total, part)), f.fsub(x, part))
    e, m = _exponent_and_fraction(f, total)
    # For large exponents what is lost doesn't matter, but its scale must stay a number.
    bounded = f.select(f.icmp("slt", e, kind.mantissa), e, kind.mantissa)
    unscale = _power_of_two(f, f.wrapping("sub", f.const(0, e.type), bounded), kind)
    g = f.fma(lost, unscale, f.fsub(m, 1.0))
    y = _log_sum(f, f.convert("sitofp", e, x.type), g)
    return _log_edges(f, with_sign(f, y, x), x, -1.0)


# -- Powers -------------------------------------------------------------------------------------


def power(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y, with C's rules for signs, zeros, infinities and NaNs."""
    magnitude = absolute(f, x)
    if format_of(x) is SINGLE:
        result = _power_by_double(f, magnitude, y)
    else:
        result = _power_double(f, magnitude, y)
    result = _signed_power(f, x, y, result)
    one = f.or_(f.fcmp("oeq", y, 0.0), f.fcmp("oeq", x, 1.0))
    infinite = f.fcmp("oeq", absolute(f, y), inf)
    one = f.or_(one, f.and_(infinite, f.fcmp("oeq", magnitude, 1.0)))
    return f.select(one, 1.0, result)


def _signed_power(f: Function, x: Reg, y: Reg, result: Reg) -> Reg:
    """Return |x|^y with its sign: an odd y keeps the sign of x; NaN for a negative x if y isn't an
    integer.
    """
    half = f.fmul(y, 0.5)
    integer = f.fcmp("oeq", f.intrinsic("trunc", y.type, y), y)
    odd = f.and_(integer, f.fcmp("one", f.intrinsic("trunc", y.type, half), half))
    bad = f.and_(f.fcmp("olt", x, 0.0), f.xor(integer, f.const(1, integer.type)))
    # (-infinity)^y is defined for all y.
    bad = f.and_(bad, f.fcmp("one", x, -inf))
    return f.select(bad, nan, f.select(odd, with_sign(f, result, x), result))


def _power_by_double(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y of float32s x >= 0: in float64, every error but the last rounding is far below."""
    wide = log(f, f.convert("fpext", x, F64))
    exponent = f.fmul(f.convert("fpext", y, F64), wide)
    exponent = at_most(f, at_least(f, exponent, -200.0), 200.0)
    n, r = _reduce_exponent(f, exponent)
    e = _scaled(f, f.fadd(_exp_core(f, r, _EXP_SHORT), 1.0), n, moderate=True)
    return f.convert("fptrunc", e, F32)


def _power_double(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y of float64s x >= 0: y * log(x) needs more than 64 bits, so it's a sum of two."""
    high, low = _log_long(f, x)
    product, rest = exact_product(f, y, high)
    rest = f.fma(y, low, rest)
    # Infinities have no low parts.
    finite = f.fcmp("olt", absolute(f, product), 1e4)
    rest = f.select(finite, rest, 0.0)
    bounds = DOUBLE.exp_range
    n, r = _reduce_exponent(f, at_most(f, at_least(f, product, bounds[0]), bounds[1]))
    return _scaled(f, f.fadd(_exp_core(f, f.fadd(r, rest)), 1.0), n)


def _log_long(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """log(x) of a float64 x >= 0 as a sum of two, to about 66 bits."""
    scaled, shift = _normal(f, x)
    e, m = _exponent_and_fraction(f, scaled)
    e = f.fsub(f.convert("sitofp", e, x.type), shift)
    g = f.fsub(m, 1.0)
    # s = g / (2 + g) with its remainder; 2 + g isn't exact either.
    divisor, divisor_low = exact_sum(f, f.const(2.0, x.type), g)
    s = f.fdiv(g, divisor)
    near, lost = exact_product(f, s, divisor)
    remainder = f.fsub(f.fsub(g, near), lost)
    s_low = f.fdiv(f.fma(f.fneg(s), divisor_low, remainder), divisor)
    z, z_low = exact_product(f, s, s)
    z_low = f.fma(f.fadd(s, s), s_low, z_low)
    # log(m) = 2 s + 2/3 s^3 + s^5 p(s^2), the first two with their low parts.
    cube, cube_low = exact_product(f, z, s)
    cube_low = f.fma(z_low, s, f.fma(z, s_low, cube_low))
    third, third_low = exact_product(f, cube, f.const(2 / 3, x.type))
    third_low = f.fma(cube_low, 2 / 3, f.fma(cube, 3.700743415417188e-17, third_low))
    tail = f.fmul(f.fmul(cube, z), polynomial(f, z, _LOG_LONG))
    part, part_low = exact_sum(f, f.fadd(s, s), third)
    part_low = f.fadd(part_low, f.fadd(f.fadd(tail, third_low), f.fadd(s_low, s_low)))
    base = f.fmul(e, DOUBLE.ln2[0])  # exact: the high part has trailing zeros
    swap = f.fcmp("oeq", e, 0.0)
    high, low = exact_sum(f, f.select(swap, part, base), f.select(swap, base, part))
    low = f.fma(e, DOUBLE.ln2[1], f.fadd(low, part_low))
    high, low = exact_sum(f, high, low)
    high = _log_edges(f, high, x, 0.0)
    return high, f.select(f.fcmp("olt", absolute(f, high), inf), low, 0.0)
