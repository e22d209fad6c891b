"""The incomplete gamma functions and their derivative in the shape, over 1-D float64 blocks.

In: 1-D float64 arrays a (shape) and x of the same size. Out: float64 arrays of that size. Outside
the domain the results are TensorFlow's: NaN for a <= 0 or x < 0, except that `igamma`,
`igamma_grad_a` and `random_gamma_grad` are 0 at x = 0 for every a.

The quarter plane is split into three regions, each with a method that converges there in a few
dozen steps: `_Series` (x below about a), `_ContinuedFraction` (x above), `_Uniform` (large a, x
near a). Each has the same four functions on its region: lower, upper, gradient, sample_gradient.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from headrace._src.ops.math.special_error import erfc
from headrace._src.ops.math.special_gamma import binet, digamma, lgamma_of_one_plus
from headrace._src.ops.math.special_series import Array, horner, iterate

_EPSILON = 2.0**-53
_MAX_STEPS = 2000
# From this shape on, the uniform expansion holds for |x - a| <= _UNIFORM_WIDTH * a.
_UNIFORM_SHAPE = 25.0
_UNIFORM_WIDTH = 0.4
# Below this x the continued fraction is slow, and a power series works for every a.
_SERIES_X = 1.5


def log1p_minus(u: Array) -> Array:
    """Return log(1 + u) - u for u > -1/2, with relative accuracy as u goes to 0.

    With r = u / (2 + u), log(1 + u) = 2 atanh(r) = 2r + 2r**3/3 + ..., and u - 2r = r u.
    """
    r = u / (2.0 + u)
    square = np.square(r)
    near = (
        2.0 * r * square * horner(square, tuple(1.0 / (2 * k + 3) for k in reversed(range(18))))
        - r * u
    )
    return np.where(np.abs(u) <= 0.5, near, np.log1p(u) - u)


def _log_kernel(a: Array, x: Array) -> Array:
    """Return log(x/a) - (x - a)/a: the exponent, per unit of a, of the density at its peak."""
    u = (x - a) / a
    return np.where(u > -0.5, log1p_minus(np.maximum(u, -0.5)), np.log(x / a) - u)


def _scale(a: Array, x: Array) -> Array:
    """Return x**a exp(-x) / gamma(a + 1)."""
    # For small a the factors are moderate; the bound on x only avoids 0 * inf, where exp(-x) is 0.
    bounded = np.minimum(x, 1e6)
    small = np.minimum(a, 10.0)
    direct = np.power(bounded, small) * np.exp(-bounded - lgamma_of_one_plus(small))
    large = np.maximum(a, 10.0)
    peaked = np.exp(large * _log_kernel(large, x) - binet(large)) / np.sqrt(2.0 * math.pi * large)
    return np.where(a < 10.0, direct, peaked)


class _Series:
    """P by its power series (DLMF 8.11.4): scale * sum of x**n / ((a + 1) ... (a + n))."""

    @staticmethod
    def sums(a: Array, x: Array, with_derivative: bool) -> tuple[Array, Array]:
        """Return the sum and its derivative in a (zero unless requested)."""

        def step(n, a, x, term, total, harmonic, derivative):
            shape = a + n
            term *= x / shape
            total += term
            if not with_derivative:
                return term <= _EPSILON * total
            harmonic += 1.0 / shape
            change = term * harmonic
            derivative -= change
            return (term <= _EPSILON * total) & (change <= -_EPSILON * derivative)

        one, zero = np.ones_like(a), np.zeros_like(a)
        total, derivative = iterate(step, (a, x, one, one, zero, zero), (3, 5), _MAX_STEPS)
        return total, derivative

    @staticmethod
    def lower(a: Array, x: Array) -> Array:
        return np.minimum(_scale(a, x) * _Series.sums(a, x, with_derivative=False)[0], 1.0)

    @staticmethod
    def upper(a: Array, x: Array) -> Array:
        p = _Series.lower(a, x)
        q = 1.0 - p
        # Where P is nearly 1, a and x are small: Q has its own series (DLMF 8.7.3).
        cancelled = np.flatnonzero((p > 0.7) & (x < _SERIES_X))
        if cancelled.size:
            q[cancelled] = _upper_for_small_shape(a[cancelled], x[cancelled])
        return q

    @staticmethod
    def lower_slope(a: Array, x: Array) -> Array:
        """Return dP/da divided by x**a exp(-x) / gamma(a + 1)."""
        total, derivative = _Series.sums(a, x, with_derivative=True)
        return (np.log(x) - digamma(a + 1.0)) * total + derivative

    @staticmethod
    def gradient(a: Array, x: Array) -> Array:
        return _scale(a, x) * _Series.lower_slope(a, x)

    @staticmethod
    def sample_gradient(a: Array, x: Array) -> Array:
        return -_Series.lower_slope(a, x) * (x / a)


def _upper_for_small_shape(a: Array, x: Array) -> Array:
    """Return Q for a and x of order 1 and less.

    Q = 1 - x**a / gamma(1 + a) - x**a / gamma(a) * sum of (-x)**n / (n! (a + n)), n >= 1.
    """
    log_power = a * np.log(x) - lgamma_of_one_plus(a)
    power, total = np.ones_like(x), np.zeros_like(x)
    for n in range(1, 28):  # 1.5**28 / 28! < 1e-24
        power *= -x / n
        total += power / (a + n)
    return -np.expm1(log_power) - np.exp(log_power) * a * total


class _ContinuedFraction:
    """Q by Legendre's continued fraction (DLMF 8.9.2), with Lentz's forward recurrence."""

    @staticmethod
    def fraction(a: Array, x: Array, with_derivative: bool) -> tuple[Array, Array]:
        """Return Gamma(a, x) x**-a exp(x), and d/da of its logarithm if requested."""

        def step(n, a, b, c, d, dc, dd, value, slope):
            numerator = n * (a - n)
            b += 2.0
            if with_derivative:
                dc[:] = -1.0 + (n - numerator * dc / c) / c
                dd[:] = n * d + numerator * dd - 1.0
            d *= numerator
            d += b
            np.reciprocal(d, out=d)
            np.divide(numerator, c, out=c)
            c += b
            factor = c * d
            value *= factor
            converged = np.abs(factor - 1.0) <= 2.0 * _EPSILON
            if with_derivative:
                dd *= -np.square(d)
                change = dc / c + dd / d
                slope += change
                converged &= np.abs(change) <= 2.0 * _EPSILON * np.abs(slope)
            return converged

        b = x + 1.0 - a
        first = 1.0 / b
        # c starts as if the fraction had been b0 = infinity: then its first quotient is b itself.
        state = (
            a,
            b,
            np.full_like(a, np.inf),
            first,
            np.zeros_like(a),
            np.square(first),
            first,
            first,
        )
        value, slope = iterate(step, state, (6, 7), _MAX_STEPS)
        return value, slope

    @staticmethod
    def upper(a: Array, x: Array) -> Array:
        return _scale(a, x) * a * _ContinuedFraction.fraction(a, x, with_derivative=False)[0]

    @staticmethod
    def lower(a: Array, x: Array) -> Array:
        return 1.0 - _ContinuedFraction.upper(a, x)

    @staticmethod
    def upper_slope(a: Array, x: Array) -> Array:
        """Return dQ/da divided by x**a exp(-x) / gamma(a)."""
        value, slope = _ContinuedFraction.fraction(a, x, with_derivative=True)
        return value * (np.log(x) - digamma(a) + slope)

    @staticmethod
    def gradient(a: Array, x: Array) -> Array:
        return -_scale(a, x) * (a * _ContinuedFraction.upper_slope(a, x))

    @staticmethod
    def sample_gradient(a: Array, x: Array) -> Array:
        return _ContinuedFraction.upper_slope(a, x) * x


class _Uniform:
    """Temme's uniform expansion for large a (DLMF 8.12): with eta**2/2 = x/a - 1 - log(x/a),

    Q = erfc(eta sqrt(a/2))/2 + R,  R = exp(-a eta**2/2) / sqrt(2 pi a) * sum of c_k(eta) / a**k.
    """

    @staticmethod
    def eta(a: Array, x: Array) -> Array:
        return np.copysign(np.sqrt(-2.0 * _log_kernel(a, x)), x - a)

    @staticmethod
    def remainder(a: Array, eta: Array) -> Array:
        peak = np.exp(-0.5 * a * np.square(eta)) / np.sqrt(2.0 * math.pi * a)
        return peak * _correction(a, eta, _temme_coefficients())

    @staticmethod
    def lower(a: Array, x: Array) -> Array:
        eta = _Uniform.eta(a, x)
        return 0.5 * erfc(-eta * np.sqrt(0.5 * a)) - _Uniform.remainder(a, eta)

    @staticmethod
    def upper(a: Array, x: Array) -> Array:
        eta = _Uniform.eta(a, x)
        return 0.5 * erfc(eta * np.sqrt(0.5 * a)) + _Uniform.remainder(a, eta)

    @staticmethod
    def upper_slope(a: Array, x: Array) -> Array:
        """Return dQ/da divided by exp(-a eta**2/2) / sqrt(2 pi a).

        With x fixed and mu = x/a - 1: d(eta)/da = -mu / (a eta), d(a eta**2/2)/da = -log(x/a).
        """
        eta = _Uniform.eta(a, x)
        mu = (x - a) / a
        quotient = np.divide(mu, eta, out=np.ones_like(mu), where=eta != 0.0)
        rows = _temme_coefficients()
        in_eta = tuple(tuple(n * c for n, c in enumerate(row))[1:] or (0.0,) for row in rows)
        in_shape = tuple(tuple(-k * c for c in row) for k, row in enumerate(rows))
        value = _correction(a, eta, rows)
        slope = _correction(a, eta, in_shape) / a
        slope -= quotient * _correction(a, eta, in_eta) / a
        return quotient - 0.5 * eta + (np.log1p(mu) - 0.5 / a) * value + slope

    @staticmethod
    def gradient(a: Array, x: Array) -> Array:
        peak = np.exp(a * _log_kernel(a, x)) / np.sqrt(2.0 * math.pi * a)
        return -peak * _Uniform.upper_slope(a, x)

    @staticmethod
    def sample_gradient(a: Array, x: Array) -> Array:
        return _Uniform.upper_slope(a, x) * np.exp(binet(a)) * (x / a)


@functools.cache
def _temme_coefficients() -> tuple[tuple[float, ...], ...]:
    """Return the significant Taylor coefficients of c_0, c_1, ... in eta, lowest power first.

    Exact rational arithmetic from the definition: mu(eta) solves mu mu' = eta (1 + mu); c_0 = 1/mu
    - 1/eta; c_k = c_{k-1}'/eta + g_k/mu, where g_k cancels the pole at eta = 0.
    """
    orders, size = 11, 46
    mu = [Fraction(0), Fraction(1)]
    for k in range(2, size + 1):
        known = sum((mu[i] * (k + 1 - i) * mu[k + 1 - i] for i in range(2, k)), Fraction(0))
        mu.append((mu[k - 1] - known) / (k + 1))
    inverse = [Fraction(1)]  # of mu / eta
    for n in range(1, size):
        inverse.append(-sum((mu[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    row = inverse[1:]
    rows = []
    for k in range(orders):
        floats = [float(c) for c in row]
        reach = [abs(c) * 0.48**n * _UNIFORM_SHAPE**-k for n, c in enumerate(floats)]
        rows.append(
            tuple(floats[: 1 + max((n for n, r in enumerate(reach) if r > 1e-18), default=0)])
        )
        pole = -row[1]
        row = [(n + 2) * row[n + 2] + pole * inverse[n + 1] for n in range(len(row) - 2)]
    return tuple(rows)


def _correction(a: Array, eta: Array, rows: tuple[tuple[float, ...], ...]) -> Array:
    """Return the sum over k of rows[k](eta) / a**k."""
    inverse = 1.0 / a
    total = np.zeros_like(a)
    for row in reversed(rows):
        total *= inverse
        total += horner(eta, row[::-1])
    return total


def _evaluate(
    a: Array, x: Array, methods: Sequence[Callable[[Array, Array], Array]], at_infinity: float
) -> Array:
    """Return the function that the three `methods` (series, fraction, uniform) compute.

    It has a value for finite positive a and x, the limit `at_infinity` at x = inf, and is NaN
    elsewhere.
    """
    proper = (a > 0.0) & (x > 0.0) & np.isfinite(a)
    inside = proper & (x < np.inf)
    uniform = inside & (a >= _UNIFORM_SHAPE) & (np.abs(x - a) <= _UNIFORM_WIDTH * a)
    fraction = inside & ~uniform & (x >= _SERIES_X) & (x >= a + 1.0)
    series = inside & ~uniform & ~fraction
    result = np.full_like(a, np.nan)
    for method, region in zip(methods, (series, fraction, uniform), strict=True):
        where = np.flatnonzero(region)
        if where.size:
            result[where] = method(a[where], x[where])
    result[proper & (x == np.inf)] = at_infinity
    return result


def igamma(a: Array, x: Array) -> Array:
    """Return P(a, x), the lower regularised incomplete gamma function."""
    methods = (_Series.lower, _ContinuedFraction.lower, _Uniform.lower)
    result = _evaluate(a, x, methods, 1.0)
    result[(a == np.inf) & (x >= 0.0) & (x < 1.0)] = 0.0
    result[x == 0.0] = 0.0
    return result


def igammac(a: Array, x: Array) -> Array:
    """Return Q(a, x) = 1 - P(a, x), the upper regularised incomplete gamma function."""
    methods = (_Series.upper, _ContinuedFraction.upper, _Uniform.upper)
    result = _evaluate(a, x, methods, 0.0)
    result[(a > 0.0) & (x == np.inf)] = 0.0
    result[(a == np.inf) & (x >= 0.0) & (x < 1.0)] = 1.0
    result[(a > 0.0) & (x == 0.0)] = 1.0
    return result


def igamma_grad_a(a: Array, x: Array) -> Array:
    """Return the derivative of P(a, x) in a."""
    methods = (_Series.gradient, _ContinuedFraction.gradient, _Uniform.gradient)
    result = _evaluate(a, x, methods, -0.0)
    result[x == 0.0] = 0.0
    return result


def random_gamma_grad(alpha: Array, sample: Array) -> Array:
    """Return d(sample)/d(alpha) at a fixed quantile: -(dP/da) / (dP/dx)."""
    methods = (
        _Series.sample_gradient,
        _ContinuedFraction.sample_gradient,
        _Uniform.sample_gradient,
    )
    result = _evaluate(alpha, sample, methods, -0.0)
    result[sample == 0.0] = 0.0
    return result
