"""The two floating formats as elementary functions need them, and the arithmetic they share.

In and out: registers of float32 or float64, of any number of lanes. A Format has the layout of the
bits and the coefficients of polynomials, which are minimax fits made for the given intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

from headrace._src.compile.codegen.emit import F32, F64, I32, I64, Function, Reg, Type

__all__ = [
    "DOUBLE", "SINGLE", "Format", "absolute", "at_least", "at_most", "bits_of", "exact_product",
    "exact_sum", "format_of", "number_of", "polynomial", "rounding_number", "with_sign",
]  # fmt: skip


@dataclass(frozen=True)
class Format:
    """The differences between float32 and float64: the layout of bits, and the polynomials.

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


SINGLE = Format(
    I32, 23, 127, (0.693145751953125, 1.42860682030941723212e-6), (-104.0, 88.8),
    exp=(0.0001991444834583993, 0.0013941206821362752, 0.008333272586276053, 0.041666352284742136,
         0.16666666818838421, 0.500000004694484),
    erf_small=(7.853854390490962e-05, -0.0008010191525426207, 0.005188327450032517,
               -0.026853811816075913, 0.11283585146094664, -0.37612625824108087,
               0.128379165726753),
    erf_large=(0.0001855735128105531, -0.001826161778145318, 0.00989089044147951,
               -0.04150068758939443, -0.8431183365711189, -2.6389668159224864,
               -1.8496055164799459),
    erf_end=4.0,
    sin=(2.7182744640864007e-06, -0.000198393309958717, 0.008333329374117494,
         -0.1666666664152681),
    cos=(2.443809107657426e-05, -0.00138873644876047, 0.041666646807275214),
    atan=(-0.06081154482509255, 0.10595139386788308, -0.14243738775987388, 0.19998484005193135,
          -0.3333331542380557),
    pi=(3.1415927410125732, -8.742277657347586e-08),
)  # fmt: skip

DOUBLE = Format(
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


def format_of(x: Reg) -> Format:
    if x.type.element == "float":
        return SINGLE
    if x.type.element == "double":
        return DOUBLE
    raise TypeError(f"elementary functions work on float32 and float64, not on {x.type}")


def polynomial(f: Function, x: Reg, coefficients: Sequence[float]) -> Reg:
    total = f.const(coefficients[0], x.type)
    for c in coefficients[1:]:
        total = f.fma(total, x, c)
    return total


def bits_of(f: Function, x: Reg) -> Reg:
    """The value's bits as integers of the same size."""
    return f.convert("bitcast", x, format_of(x).integer.of(x.type.lanes))


def number_of(f: Function, bits: Reg) -> Reg:
    """The value with these bits."""
    type = F32 if bits.type.element == "i32" else F64
    return f.convert("bitcast", bits, type.of(bits.type.lanes))


def absolute(f: Function, x: Reg) -> Reg:
    return f.intrinsic("fabs", x.type, x)


def with_sign(f: Function, magnitude: Reg, like: Reg) -> Reg:
    return f.intrinsic("copysign", magnitude.type, magnitude, like)


def at_least(f: Function, x: Reg, bound: float) -> Reg:
    """max(x, bound), NaN for NaN: one instruction when it's spelled like this."""
    return f.select(f.fcmp("ogt", bound, x), bound, x)


def at_most(f: Function, x: Reg, bound: float) -> Reg:
    return f.select(f.fcmp("olt", bound, x), bound, x)


def rounding_number(x: Reg) -> float:
    """Return the number that rounds another one to a whole number when it's added."""
    return 1.5 * 2.0 ** format_of(x).mantissa


def exact_product(f: Function, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """x * y exactly, as a sum of two."""
    high = f.fmul(x, y)
    if f.target.fma:
        return high, f.fma(x, y, f.fneg(high))
    (a, b), (c, d) = _halves(f, x), _halves(f, y)
    rest = f.fadd(f.fsub(f.fmul(a, c), high), f.fadd(f.fmul(a, d), f.fmul(b, c)))
    return high, f.fadd(rest, f.fmul(b, d))


def _halves(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """x as the sum of two with half as many digits each, whose products are exact."""
    digits = (format_of(x).mantissa + 2) // 2
    upper = number_of(f, f.and_(bits_of(f, x), -(1 << digits)))
    return upper, f.fsub(x, upper)


def exact_sum(f: Function, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """x + y exactly, as a sum of two; |x| >= |y|."""
    high = f.fadd(x, y)
    return high, f.fadd(f.fsub(x, high), y)
