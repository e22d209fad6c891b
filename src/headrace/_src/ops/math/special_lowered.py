"""Special functions as pointwise programs, for native code. In: a lane. Out: a lane of its type.

They match `special_error`, `special_gamma` and `special_bessel`, with the same coefficients. All
branches are computed and one is selected. As there, narrow types are computed in float64 and
rounded once; float32 and narrower use approximations of that accuracy, which take half the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from headrace._src.lowering.pointwise import Lane, Recorder
from headrace._src.ops.math import special_bessel, special_error, special_gamma
from headrace._src.ops.math.special_gamma import Fit

__all__ = ["bessel_i0e", "bessel_i1e", "digamma", "erfc", "lgamma"]


def _in_float64(function: Callable[..., Lane]) -> Callable[..., Lane]:
    """Let function(e, x, single) compute in float64; `single`: float32's accuracy suffices."""

    def run(e: Recorder, x: Lane) -> Lane:
        single = x.dtype != "float64"
        return e.cast(function(e, e.cast(x, "float64"), single), x.dtype)

    return run


def _horner(x: Lane, coefficients: Sequence[float]) -> Lane:
    """Return the polynomial with `coefficients` (highest power first) at `x`."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def _rational(x: Lane, fit: Fit) -> Lane:
    numerator, denominator = fit
    return _horner(x, numerator) / _horner(x, denominator)


def _sine(r: Lane, square: Lane) -> Lane:
    """sin(pi r) for |r| <= 1/2, by its power series."""
    return _horner(square, _SINE) * r


def _cosine(square: Lane) -> Lane:
    """cos(pi r) for |r| <= 1/2, by its power series in r^2."""
    return _horner(square, _COSINE)


def _series(first: int) -> tuple[float, ...]:
    """Return the coefficients of sin(pi r) / r (first = 1) or cos(pi r) (0) in r^2: up to 1e-18."""
    powers = range(first, 26, 2)
    terms = [(-1) ** (n // 2) * math.pi**n / math.factorial(n) for n in powers]
    return tuple(reversed(terms))


_SINE, _COSINE = _series(1), _series(0)


# Error functions ---------------------------------------------------------------------------------


@_in_float64
def erfc(e: Recorder, x: Lane, single: bool) -> Lane:
    """1 - erf(x), accurate for large x too."""
    fit, end = (special_error.ERFCX_SINGLE, 11.0) if single else (special_error.ERFCX, 28.0)
    magnitude = e.min(e.abs(x), end)
    t = e.reciprocal(magnitude + 2)
    tail = _rational(t, fit) * t
    if single:
        tail = tail * e.exp(-(magnitude * magnitude))
        return e.select(x < 0, 2 - tail, tail)
    tail = tail * _exp_minus_square(e, magnitude)
    centre = 1 - _rational(x * x, special_error.ERF) * x
    return e.select(e.abs(x) <= 0.5, centre, e.select(x < 0, 2 - tail, tail))


def _exp_minus_square(e: Recorder, x: Lane) -> Lane:
    """Return exp(-x * x), corrected for the rounding error of x * x."""
    square = x * x
    high = e.cast(e.cast(x, "float32"), "float64")
    low = x - high
    residue = (high * high - square) + 2 * high * low + low * low
    return e.exp(-square) * (1 - residue)


# Gamma functions ---------------------------------------------------------------------------------


def _near_or_far(
    e: Recorder, y: Lane, centre: Fit, tail: Fit, factors: Sequence[Lane], power: int
) -> Lane:
    """Return, for y < 3, the fit at u, the distance of y or y + 1 from 2, times the factors;
    beyond, the fit at y^-2 times y^-power. One division serves both: it takes as long as the
    polynomials.
    """
    y = e.min(y, 1e8)  # beyond, the tail is negligible and powers of y would overflow
    square = y * y
    near, near_divisor = (_horner(_from_two(e, y), c) for c in centre)
    far, far_divisor = (_horner(square, tuple(reversed(c))) for c in tail)
    for factor in factors:
        near = near * factor
    far_divisor = far_divisor * (square if power == 2 else y)
    is_near = y < 3
    return e.select(is_near, near, far) / e.select(is_near, near_divisor, far_divisor)


def _from_two(e: Recorder, y: Lane) -> Lane:
    """Return y - 2 for y >= 1, else y + 1 - 2."""
    return e.select(y < 1, y - 1, y - 2)


@_in_float64
def lgamma(e: Recorder, x: Lane, single: bool) -> Lane:
    """log|gamma(x)|."""
    centre, tail = special_gamma.LGAMMA_SINGLE if single else special_gamma.LGAMMA
    y = e.abs(x)
    log, u = e.log(y), _from_two(e, y)
    fit = _near_or_far(e, y, centre, tail, (u, u + 1), 1)
    near = e.select(y < 1, fit - log, fit)
    # Factored so that y = inf gives inf, not inf - inf.
    far = (log - 1) * (y - 0.5) + (fit + (special_gamma.HALF_LOG_2PI - 0.5))
    positive = e.select(y < 3, near, far)
    # gamma(x) gamma(-x) = -pi / (x sin(pi x))
    r = x - e.rint(x)
    sine = e.abs(_sine(r, r * r))
    negative = math.log(math.pi) - e.log(sine) - log - positive
    negative = e.select(e.eq(x, e.floor(x)), math.inf, negative)
    return e.select(x < 0, negative, positive)


@_in_float64
def digamma(e: Recorder, x: Lane, single: bool) -> Lane:
    """The derivative of lgamma."""
    centre, tail = special_gamma.DIGAMMA_SINGLE if single else special_gamma.DIGAMMA
    y = e.abs(x)
    inverse, u = e.reciprocal(y), _from_two(e, y)
    from_root = u + (2 - special_gamma.PSI_ROOT) - special_gamma.PSI_ROOT_LOW
    fit = _near_or_far(e, y, centre, tail, (from_root,), 2)
    near = e.select(y < 1, fit - inverse, fit)
    positive = e.select(y < 3, near, e.log(y) - 0.5 * inverse - fit)
    # psi(x) = psi(1 - x) - pi cot(pi x), with psi(1 - x) = psi(-x) - 1/x
    r = x - e.rint(x)
    cotangent = _cosine(r * r) / _sine(r, r * r)
    other = positive + (inverse - math.pi * cotangent)
    other = e.select(e.eq(x, e.floor(x)), math.inf, other)
    return e.select(x <= 0, other, positive)


# Bessel functions --------------------------------------------------------------------------------


@_in_float64
def bessel_i0e(e: Recorder, x: Lane, single: bool) -> Lane:
    """exp(-|x|) I0(x)."""
    y = e.abs(x)
    near = _horner(e.square(0.5 * y), special_bessel.I0_SERIES) * e.exp(-y)
    return e.select(y <= special_bessel.SPLIT, near, _far(e, y, special_bessel.I0_HANKEL))


@_in_float64
def bessel_i1e(e: Recorder, x: Lane, single: bool) -> Lane:
    """exp(-|x|) I1(x)."""
    y = e.abs(x)
    near = _horner(e.square(0.5 * y), special_bessel.I1_SERIES) * e.exp(-y) * (0.5 * x)
    far = _far(e, y, special_bessel.I1_HANKEL)
    return e.select(y <= special_bessel.SPLIT, near, e.select(x < 0, -far, far))


def _far(e: Recorder, y: Lane, hankel: Sequence[float]) -> Lane:
    return _horner(e.reciprocal(y), hankel) / e.sqrt(2 * math.pi * y)
