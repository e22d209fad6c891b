"""Elementary functions on vector registers. In: a float32 or float64 value. Out: another.

Any number of lanes (and scalars), straight-line code but for the arguments of sin and cos that
are too large for the usual reduction. Infinities, NaNs, signed zeros and subnormal numbers come
out as C's functions have them. The largest errors found by the tests, in units in the last place,
on processors with fused multiply-add:

                float32   float64                     float32   float64
    exp           1.0       1.0       tanh              1.5       2.5
    expm1         1.5       2.0       sigmoid           2.5       2.5
    log           1.0       1.0       erf               1.5       1.5
    log1p         1.5       1.5       sin, cos          1.0       1.0
    pow           1.0       1.5       atan2             2.5       2.5
    sqrt          0.5       0.5       rsqrt             1.5       1.5

The polynomials are minimax fits made for the intervals below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, pi

from headrace.compile.emit import F32, F64, I32, I64, PTR, VOID, Function, Reg, Type

__all__ = [
    "atan2", "cos", "erf", "exp", "expm1", "log", "log1p", "maximum", "minimum", "power", "rsqrt",
    "sigmoid", "sin", "sine_and_cosine", "sqrt", "tanh",
]  # fmt: skip


@dataclass(frozen=True)
class _Format:
    """What differs between float32 and float64: the layout of bits, and the polynomials.

    Coefficients are for Horner's scheme, highest power first.
    """

    integer: Type
    mantissa: int  # bits
    bias: int
    ln2: tuple[float, float]  # high part with trailing zeros, low part
    exp_range: tuple[float, float]  # beyond: 0 and infinity
    # (e^r - 1 - r) / r^2 for |r| < ln(2) / 2
    exp: Sequence[float]
    erf_small: Sequence[float]  # erf(x) / x - 1 of x^2 < 1
    erf_large: Sequence[float]  # log(erfc(1 + u)) for u up to the next field
    erf_end: float  # from here on erf is 1
    sin: Sequence[float]  # (sin(r) / r - 1) / r^2 of r^2, |r| < pi / 4
    cos: Sequence[float]  # (cos(r) - 1 + r^2 / 2) / r^4 of r^2
    atan: Sequence[float]  # (atan(t) / t - 1) / t^2 of t^2, |t| < tan(pi / 8)
    pi: tuple[float, float]


_SINGLE = _Format(
    I32, 23, 127, (0.693145751953125, 1.42860682030941723212e-6), (-104.0, 88.8),
    exp=(0.0001991444834583993, 0.0013941206821362752, 0.008333272586276053, 0.041666352284742136,
         0.16666666818838421, 0.500000004694484),
    erf_small=(-9.641523417781343e-06, 0.00011256950370769853, -0.0008482829165782837,
               0.005220945453067552, -0.026865400048447664, 0.11283781974191484,
               -0.37612638434655293, 0.128379167058024),
    erf_large=(-2.168667235793315e-05, 0.0002895275085951664, -0.0020119656548113147,
               0.010046451564718702, -0.04156348050349517, -0.8431070817879706,
               -2.6389675145257616, -1.8496055100667148),
    erf_end=4.0,
    sin=(2.7182744640864007e-06, -0.000198393309958717, 0.008333329374117494,
         -0.1666666664152681),
    cos=(2.443809107657426e-05, -0.00138873644876047, 0.041666646807275214),
    atan=(-0.06081154482509255, 0.10595139386788308, -0.14243738775987388, 0.19998484005193135,
          -0.3333331542380557),
    pi=(3.1415927410125732, -8.742277657347586e-08),
)  # fmt: skip

_DOUBLE = _Format(
    I64, 52, 1023, (0.6931471803691238, 1.9082149292705877e-10), (-746.0, 710.0),
    exp=(2.0924601231951945e-09, 2.5109261689620835e-08, 2.755724225483184e-07,
         2.755724360963937e-06, 2.480158736113931e-05, 0.0001984126988667281,
         0.0013888888888866546, 0.008333333333321436, 0.0416666666666667, 0.16666666666666677,
         0.5),
    erf_small=(-4.2228952169747165e-12, 8.703789198262737e-11, -1.2163041730009666e-09,
               1.479214572150456e-08, -1.6364614418196023e-07, 1.6462043407566466e-06,
               -1.4925647465107308e-05, 0.00012055332899357617, -0.0008548327021853194,
               0.005223977625422086, -0.026866170645129733, 0.11283791670955119,
               -0.37612638903183754, 0.12837916709551256),
    erf_large=(-1.771561031499356e-13, 5.5072396956131455e-12, -7.992937168503264e-11,
               7.197488695500138e-10, -4.48775481818938e-09, 2.0244632338753194e-08,
               -6.489880538976054e-08, 1.2073181509704005e-07, 1.1135664159852927e-07,
               -2.027401996547717e-06, 9.583896346872378e-06, -2.714473739095884e-05,
               2.6271830377961297e-05, 0.0002373242929956813, -0.001977902940469883,
               0.010033825424136087, -0.04156109804576125, -0.8431072563585149,
               -2.638967514234791, -1.8496055099332482),
    erf_end=5.95,
    sin=(-7.578693611481599e-13, 1.6058366543409184e-10, -2.5052104910942154e-08,
         2.7557319214188004e-06, -0.00019841269841255064, 0.008333333333333323,
         -0.16666666666666666),
    cos=(-1.1359559285651432e-11, 2.087572162297416e-09, -2.755731434065532e-07,
         2.4801587289443475e-05, -0.0013888888888874064, 0.0416666666666666),
    atan=(-0.012977336537217575, 0.029609170919089725, -0.04055029228538295, 0.047055936194202695,
          -0.0525556480898163, 0.058816267365308074, -0.06666617480373609, 0.07692305366939828,
          -0.09090909016414742, 0.11111111109574295, -0.14285714285695558, 0.19999999999999885,
          -0.3333333333333333),
    pi=(pi, 1.2246467991473532e-16),
)  # fmt: skip

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


def _format(x: Reg) -> _Format:
    if x.type.element == "float":
        return _SINGLE
    if x.type.element == "double":
        return _DOUBLE
    raise TypeError(f"elementary functions work on float32 and float64, not on {x.type}")


def _polynomial(f: Function, x: Reg, coefficients: Sequence[float]) -> Reg:
    total = f.const(coefficients[0], x.type)
    for c in coefficients[1:]:
        total = f.fma(total, x, c)
    return total


def _bits(f: Function, x: Reg) -> Reg:
    """The value's bits as integers of the same size."""
    return f.convert("bitcast", x, _format(x).integer.of(x.type.lanes))


def _number(f: Function, bits: Reg) -> Reg:
    """The value with these bits."""
    type = F32 if bits.type.element == "i32" else F64
    return f.convert("bitcast", bits, type.of(bits.type.lanes))


def _absolute(f: Function, x: Reg) -> Reg:
    return f.intrinsic("fabs", x.type, x)


def _signed(f: Function, magnitude: Reg, like: Reg) -> Reg:
    return f.intrinsic("copysign", magnitude.type, magnitude, like)


def _at_least(f: Function, x: Reg, bound: float) -> Reg:
    """max(x, bound), NaN for NaN: one instruction when it's spelled like this."""
    return f.select(f.fcmp("ogt", bound, x), bound, x)


def _at_most(f: Function, x: Reg, bound: float) -> Reg:
    return f.select(f.fcmp("olt", bound, x), bound, x)


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


def _power_of_two(f: Function, n: Reg, kind: _Format) -> Reg:
    """2^n for n within the normal exponents."""
    return _number(f, f.shl(f.wrapping("add", n, kind.bias), kind.mantissa))


def _reduce_exponent(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """x = n * ln(2) + r: the integers n and the r with |r| <= ln(2) / 2."""
    kind = _format(x)
    # Adding 1.5 * 2^mantissa rounds to an integer and leaves it in the low bits.
    magic = 1.5 * 2.0**kind.mantissa
    shifted = f.fma(x, 1.4426950408889634, magic)
    k = f.fsub(shifted, magic)
    high, low = kind.ln2
    r = f.fma(k, -low, f.fma(k, -high, x))
    return f.wrapping("sub", _bits(f, shifted), _bits(f, f.const(magic, x.type))), r


def _exp_core(f: Function, r: Reg, coefficients: Sequence[float] | None = None) -> Reg:
    """e^r - 1 for |r| <= ln(2) / 2."""
    p = _polynomial(f, r, coefficients or _format(r).exp)
    return f.fma(p, f.fmul(r, r), r)


def _scaled(f: Function, y: Reg, n: Reg) -> Reg:
    """y * 2^n in two steps, as n may be outside the normal exponents."""
    kind = _format(y)
    half = f.ashr(n, 1)
    rest = f.wrapping("sub", n, half)
    return f.fmul(f.fmul(y, _power_of_two(f, half, kind)), _power_of_two(f, rest, kind))


def exp(f: Function, x: Reg) -> Reg:
    """e^x."""
    low, high = _format(x).exp_range
    n, r = _reduce_exponent(f, _at_most(f, _at_least(f, x, low), high))
    return _scaled(f, f.fadd(_exp_core(f, r), 1.0), n)


def _exp_moderate(f: Function, x: Reg) -> Reg:
    """e^x for an x that is known to give a normal number (or is NaN)."""
    n, r = _reduce_exponent(f, x)
    return f.fmul(f.fadd(_exp_core(f, r), 1.0), _power_of_two(f, n, _format(x)))


def expm1(f: Function, x: Reg) -> Reg:
    """e^x - 1, exact near 0."""
    kind = _format(x)
    # 2^n (e^r - 1) + (2^n - 1). Half of it is computed: 2^n itself may be too large.
    x_bounded = _at_most(f, _at_least(f, x, -45.0), kind.exp_range[1])
    n, r = _reduce_exponent(f, x_bounded)
    scale = _power_of_two(f, f.wrapping("sub", n, 1), kind)
    half = f.fma(_exp_core(f, r), scale, f.fsub(scale, 0.5))
    return _signed(f, f.fadd(half, half), x)


def sigmoid(f: Function, x: Reg) -> Reg:
    """1 / (1 + e^-x), without overflow on either side."""
    e = exp(f, f.fneg(_absolute(f, x)))
    numerator = f.select(f.fcmp("olt", x, 0.0), e, 1.0)
    return f.fdiv(numerator, f.fadd(e, 1.0))


def tanh(f: Function, x: Reg) -> Reg:
    """The hyperbolic tangent."""
    if _format(x) is _DOUBLE:
        t = expm1(f, _at_most(f, f.fmul(_absolute(f, x), 2.0), 40.0))
        return _signed(f, f.fdiv(t, f.fadd(t, 2.0)), x)
    magnitude = _absolute(f, x)
    z = f.fmul(x, x)
    part = f.fmul(_polynomial(f, z, _TANH_SINGLE), z)
    small = f.fma(part, magnitude, magnitude)
    e = _exp_moderate(f, _at_most(f, f.fadd(magnitude, magnitude), 20.0))
    large = f.fsub(1.0, f.fdiv(2.0, f.fadd(e, 1.0)))
    return _signed(f, f.select(f.fcmp("olt", magnitude, 0.625), small, large), x)


def erf(f: Function, x: Reg) -> Reg:
    """The error function: a polynomial below 1, above it 1 - e^(log(erfc(x)))."""
    kind = _format(x)
    magnitude = _at_most(f, _absolute(f, x), kind.erf_end)
    part = _polynomial(f, f.fmul(x, x), kind.erf_small)
    small = f.fma(part, magnitude, magnitude)
    exponent = _polynomial(f, f.fsub(magnitude, 1.0), kind.erf_large)
    large = f.fsub(1.0, _exp_moderate(f, exponent))
    return _signed(f, f.select(f.fcmp("olt", magnitude, 1.0), small, large), x)


# -- Logarithms ---------------------------------------------------------------------------------


def _exponent_and_fraction(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """x = m * 2^e for a positive normal x: the integers e and the m in [sqrt(1/2), sqrt(2))."""
    kind = _format(x)
    bits = _bits(f, x)
    root = 0x3F3504F3 if kind is _SINGLE else 0x3FE6A09E667F3BCD
    e = f.ashr(f.wrapping("sub", bits, root), kind.mantissa)
    return e, _number(f, f.wrapping("sub", bits, f.shl(e, kind.mantissa)))


def _log_sum(f: Function, e: Reg, g: Reg) -> Reg:
    """log(1 + g) + e * ln(2), where 1 + g is in [sqrt(1/2), sqrt(2))."""
    kind = _format(g)
    high, low = kind.ln2
    if kind is _SINGLE:
        z = f.fmul(g, g)
        y = f.fmul(f.fmul(g, z), _polynomial(f, g, _LOG_SINGLE))
        y = f.fma(z, -0.5, f.fma(e, low, y))
        return f.fma(e, high, f.fadd(g, y))
    s = f.fdiv(g, f.fadd(g, 2.0))
    z = f.fmul(s, s)
    half = f.fmul(f.fmul(g, g), 0.5)
    rest = f.fma(s, f.fma(z, _polynomial(f, z, _LOG_DOUBLE), half), f.fmul(e, low))
    return f.fma(e, high, f.fsub(g, f.fsub(half, rest)))


def _normal(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """A positive x as a normal number, and the power of two that was taken from it, floating."""
    kind = _format(x)
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
    kind = _format(x)
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
    return _log_edges(f, _signed(f, y, x), x, -1.0)


# -- Powers -------------------------------------------------------------------------------------


def power(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y, with C's rules for signs, zeros, infinities and NaNs."""
    magnitude = _absolute(f, x)
    if _format(x) is _SINGLE:
        result = _power_by_double(f, magnitude, y)
    else:
        result = _power_double(f, magnitude, y)
    result = _signed_power(f, x, y, result)
    one = f.or_(f.fcmp("oeq", y, 0.0), f.fcmp("oeq", x, 1.0))
    infinite = f.fcmp("oeq", _absolute(f, y), inf)
    one = f.or_(one, f.and_(infinite, f.fcmp("oeq", magnitude, 1.0)))
    return f.select(one, 1.0, result)


def _signed_power(f: Function, x: Reg, y: Reg, result: Reg) -> Reg:
    """|x|^y with its sign: an odd y keeps that of x, and a negative x wants an integer y."""
    half = f.fmul(y, 0.5)
    integer = f.fcmp("oeq", f.intrinsic("trunc", y.type, y), y)
    odd = f.and_(integer, f.fcmp("one", f.intrinsic("trunc", y.type, half), half))
    bad = f.and_(f.fcmp("olt", x, 0.0), f.xor(integer, f.const(1, integer.type)))
    # (-infinity)^y is defined for all y.
    bad = f.and_(bad, f.fcmp("one", x, -inf))
    return f.select(bad, nan, f.select(odd, _signed(f, result, x), result))


def _power_by_double(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y of float32s x >= 0: in float64, every error but the last rounding is far below."""
    wide = log(f, f.convert("fpext", x, F64))
    exponent = f.fmul(f.convert("fpext", y, F64), wide)
    exponent = _at_most(f, _at_least(f, exponent, -200.0), 200.0)
    n, r = _reduce_exponent(f, exponent)
    e = f.fmul(f.fadd(_exp_core(f, r, _EXP_SHORT), 1.0), _power_of_two(f, n, _DOUBLE))
    return f.convert("fptrunc", e, F32)


def _product(f: Function, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """x * y exactly, as a sum of two."""
    high = f.fmul(x, y)
    return high, f.fma(x, y, f.fneg(high))


def _sum(f: Function, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """x + y exactly, as a sum of two; |x| >= |y|."""
    high = f.fadd(x, y)
    return high, f.fadd(f.fsub(x, high), y)


def _power_double(f: Function, x: Reg, y: Reg) -> Reg:
    """x^y of float64s x >= 0: y * log(x) needs more than 64 bits, so it's a sum of two."""
    high, low = _log_long(f, x)
    product, rest = _product(f, y, high)
    rest = f.fma(y, low, rest)
    # Infinities have no low parts.
    finite = f.fcmp("olt", _absolute(f, product), 1e4)
    rest = f.select(finite, rest, 0.0)
    bounds = _DOUBLE.exp_range
    n, r = _reduce_exponent(f, _at_most(f, _at_least(f, product, bounds[0]), bounds[1]))
    return _scaled(f, f.fadd(_exp_core(f, f.fadd(r, rest)), 1.0), n)


def _log_long(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """log(x) of a float64 x >= 0 as a sum of two, to about 66 bits."""
    scaled, shift = _normal(f, x)
    e, m = _exponent_and_fraction(f, scaled)
    e = f.fsub(f.convert("sitofp", e, x.type), shift)
    g = f.fsub(m, 1.0)
    # s = g / (2 + g) with its remainder; 2 + g isn't exact either.
    divisor, divisor_low = _sum(f, f.const(2.0, x.type), g)
    s = f.fdiv(g, divisor)
    remainder = f.fma(f.fneg(s), divisor, g)
    s_low = f.fdiv(f.fma(f.fneg(s), divisor_low, remainder), divisor)
    z, z_low = _product(f, s, s)
    z_low = f.fma(f.fadd(s, s), s_low, z_low)
    # log(m) = 2 s + 2/3 s^3 + s^5 p(s^2), the first two with their low parts.
    cube, cube_low = _product(f, z, s)
    cube_low = f.fma(z_low, s, f.fma(z, s_low, cube_low))
    third, third_low = _product(f, cube, f.const(2 / 3, x.type))
    third_low = f.fma(cube_low, 2 / 3, f.fma(cube, 3.700743415417188e-17, third_low))
    tail = f.fmul(f.fmul(cube, z), _polynomial(f, z, _LOG_LONG))
    part, part_low = _sum(f, f.fadd(s, s), third)
    part_low = f.fadd(part_low, f.fadd(f.fadd(tail, third_low), f.fadd(s_low, s_low)))
    base = f.fmul(e, _DOUBLE.ln2[0])  # exact: the high part has trailing zeros
    swap = f.fcmp("oeq", e, 0.0)
    high, low = _sum(f, f.select(swap, part, base), f.select(swap, base, part))
    low = f.fma(e, _DOUBLE.ln2[1], f.fadd(low, part_low))
    high, low = _sum(f, high, low)
    high = _log_edges(f, high, x, 0.0)
    return high, f.select(f.fcmp("olt", _absolute(f, high), inf), low, 0.0)


# -- Circular functions -------------------------------------------------------------------------

# pi / 2 in pieces of 33 bits, so that multiples up to 2^20 of the first two are exact.
_QUARTERS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_REDUCIBLE = 1.0e6


def sin(f: Function, x: Reg) -> Reg:
    """The sine of any finite x; NaN for infinity."""
    return sine_and_cosine(f, x)[0]


def cos(f: Function, x: Reg) -> Reg:
    """The cosine of any finite x; NaN for infinity."""
    return sine_and_cosine(f, x)[1]


def sine_and_cosine(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """Both, for about the price of one."""
    quadrant, r, low = _reduce_angle(f, x)
    z = f.fmul(r, r)
    kind = _format(x)
    s = f.fadd(f.fma(f.fmul(_polynomial(f, z, kind.sin), z), r, low), r)
    half = f.fmul(z, 0.5)
    # 1 - z/2 loses bits that the next term must carry.
    near = f.fsub(1.0, half)
    lost = f.fsub(f.fsub(1.0, near), half)
    rest = f.fma(f.fmul(z, z), _polynomial(f, z, kind.cos), f.fsub(lost, f.fmul(r, low)))
    c = f.fadd(near, rest)
    swap = f.icmp("ne", f.and_(quadrant, 1), 0)
    sine, cosine = f.select(swap, c, s), f.select(swap, s, c)
    sine = f.select(f.icmp("ne", f.and_(quadrant, 2), 0), f.fneg(sine), sine)
    sine = f.select(f.fcmp("oeq", x, 0.0), x, sine)  # -0 is lost on the way
    turned = f.and_(f.wrapping("add", quadrant, 1), 2)
    return sine, f.select(f.icmp("ne", turned, 0), f.fneg(cosine), cosine)


def _reduce_angle(f: Function, x: Reg) -> tuple[Reg, Reg, Reg]:
    """x = quadrant * pi / 2 + r + low: the quadrant (modulo 4) as integers, r and its low part."""
    kind = _format(x)
    wide = f.convert("fpext", x, F64) if kind is _SINGLE else x
    shifted = f.fma(wide, 2 / pi, 1.5 * 2.0**52)
    k = f.fsub(shifted, 1.5 * 2.0**52)
    exact = f.fma(k, -_QUARTERS[0], wide)
    second = f.fmul(k, _QUARTERS[1])
    r = f.fsub(exact, second)
    r, low = _sum(f, r, f.fma(k, -_QUARTERS[2], f.fsub(f.fsub(exact, r), second)))
    quadrant = _bits(f, shifted)
    large = f.fcmp("ogt", _absolute(f, wide), _REDUCIBLE)
    some = f.reduce("or", large) if large.type.lanes else large
    quadrant, r, low = f.when(some, lambda: _reduce_lanes(f, wide), lambda: [quadrant, r, low])
    if kind is _DOUBLE:
        return quadrant, r, low
    quadrant = f.convert("trunc", quadrant, I32)
    single = f.convert("fptrunc", r, F32)
    return quadrant, single, f.convert("fptrunc", f.fsub(r, f.convert("fpext", single, F64)), F32)


def _reduce_lanes(f: Function, x: Reg) -> list[Reg]:
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
    return [
        f.load(I64.of(x.type.lanes), quadrants), f.load(x.type, high), f.load(x.type, low)
    ]  # fmt: skip


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
    bits = _bits(g, _absolute(g, x))
    mantissa = g.or_(g.and_(bits, (1 << 52) - 1), 1 << 52)
    # Small angles come here too, in the company of a large one: their digits start in the zeros.
    exponent = g.wrapping("sub", g.lshr(bits, 52), 1075)
    small = g.icmp("slt", exponent, -62)
    start = g.wrapping("add", g.select(small, g.const(-62, I64), exponent), 62)
    words = [_digits(g, table, start, i) for i in range(3)]
    top, middle, _ = _multiply_192(g, mantissa, words)
    quadrant = g.lshr(g.wrapping("add", top, 1 << 61), 62)
    # The fraction of a quadrant, in [-1/2, 1/2), as 128 bits.
    fraction = g.or_(g.shl(top, 2), g.lshr(middle, 62))
    below = g.shl(middle, 2)
    head = g.convert("sitofp", g.and_(fraction, -1024), F64)
    tail = g.convert("uitofp", g.and_(fraction, 1023), F64)
    tail = g.fma(g.convert("uitofp", below, F64), 2.0**-64, tail)
    turn, rest = _sum(g, g.fmul(head, 2.0**-64), g.fmul(tail, 2.0**-64))
    r, r_low = _product(g, turn, g.const(pi / 2, F64))
    r_low = g.fma(rest, pi / 2, g.fma(turn, _DOUBLE.pi[1] / 2, r_low))
    r, r_low = _sum(g, r, r_low)
    negative = g.fcmp("olt", x, 0.0)
    # Below 2^-9 an angle is its own remainder; infinities have none.
    own = g.fcmp("olt", _absolute(g, x), 2.0**-9)
    infinite = g.fcmp("ueq", _absolute(g, x), inf)
    r = g.select(own, x, g.select(negative, g.fneg(r), r))
    r_low = g.select(own, 0.0, g.select(negative, g.fneg(r_low), r_low))
    turned = g.select(negative, g.wrapping("sub", g.const(0, I64), quadrant), quadrant)
    g.store(g.select(own, g.const(0, I64), turned), quadrant_at)
    g.store(g.select(infinite, nan, r), high_at)
    g.store(r_low, low_at)
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
    kind = _format(x)
    ax, ay = _absolute(f, x), _absolute(f, y)
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
    angle = f.fma(f.fmul(_polynomial(f, z, kind.atan), z), t, t)
    # Then reflected at the diagonal and at the y axis, adding the parts of pi from small to large.
    turn, turn_low = eighth, eighth_low
    quarter, quarter_low = kind.pi[0] / 2, kind.pi[1] / 2
    angle = f.select(steep, f.fneg(angle), angle)
    turn = f.select(steep, f.fsub(quarter, turn), turn)
    turn_low = f.select(steep, f.fsub(quarter_low, turn_low), turn_low)
    behind = f.icmp("slt", _bits(f, x), 0)
    angle = f.select(behind, f.fneg(angle), angle)
    turn = f.select(behind, f.fsub(kind.pi[0], turn), turn)
    turn_low = f.select(behind, f.fsub(kind.pi[1], turn_low), turn_low)
    result = _signed(f, f.fadd(turn, f.fadd(angle, turn_low)), y)
    return f.select(f.fcmp("uno", x, y), nan, result)
