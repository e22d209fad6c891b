"""The regularised incomplete beta function, over 1-D float64 blocks.

In: 1-D float64 arrays a, b, x of the same size. Out: a float64 array of that size; NaN, as in
TensorFlow, for a <= 0, b <= 0 and x outside [0, 1].

The tail that is not near 1 is computed, by the continued fraction or, for two large shapes, where
that is slow, by quadrature; the other tail is its complement.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from headrace._src.ops.math.special_gamma import binet, lgamma_of_one_plus
from headrace._src.ops.math.special_incomplete_gamma import log1p_minus
from headrace._src.ops.math.special_series import Array, iterate

_EPSILON = 2.0**-53
# Around the mean the fraction takes under 100 steps; thousands only for b < 1 and x close to 1.
_MAX_STEPS = 20000
_LARGE_SHAPES = 3000.0
_STIRLING_SHAPE = 10.0


def _exact_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return x*y rounded, and the rounding error (Dekker's product)."""

    def split(v: Array) -> tuple[Array, Array]:
        scaled = v * 134217729.0  # 2**27 + 1
        high = scaled - (scaled - v)
        return high, v - high

    product = x * y
    (x1, x0), (y1, y0) = split(x), split(y)
    return product, ((x1 * y1 - product) + x1 * y0 + x0 * y1) + x0 * y0


def _excess(a: Array, b: Array, x: Array) -> Array:
    """Return x (a + b) - a without cancellation: a + b times how far x is above the mean."""
    total = a + b
    large, small = np.maximum(a, b), np.minimum(a, b)
    total_error = small - (total - large)
    product, product_error = _exact_product(x, total)
    return (product - a) + (product_error + x * total_error)


def _log_of(x: Array, complement: Array) -> Array:
    """Return log(x), given 1 - x as well: the smaller of the two is exact."""
    return np.where(x > 0.5, np.log1p(-complement), np.log(x))


def _scale(a: Array, b: Array, x: Array, y: Array, excess: Array) -> Array:
    """Return x**a y**b / (a B(a, b)), y = 1 - x."""
    result = np.empty_like(a)
    both = np.minimum(a, b) >= _STIRLING_SHAPE
    peaked, plain = np.flatnonzero(both), np.flatnonzero(~both)
    if peaked.size:
        p, q, e = a[peaked], b[peaked], excess[peaked]
        result[peaked] = _peaked_scale(p, q, x[peaked], y[peaked], e)
    if plain.size:
        p, q = a[plain], b[plain]
        log_x, log_y = _log_of(x[plain], y[plain]), _log_of(y[plain], x[plain])
        exponent = p * log_x + q * log_y + _log_inverse_beta(p, q)
        result[plain] = np.exp(exponent) * (q / (p + q))
    return result


def _peaked_scale(a: Array, b: Array, x: Array, y: Array, excess: Array) -> Array:
    """Return `_scale` for large shapes: Stirling's formula, expanded about the mean."""
    u, v = excess / a, -excess / b
    total = a + b
    # a u + b v = 0, so the linear terms of both logarithms can be dropped.
    log_x = _log_less_linear(u, _log_of(x, y) - np.log(a / total))
    log_y = _log_less_linear(v, _log_of(y, x) - np.log(b / total))
    exponent = a * log_x + b * log_y + (binet(total) - binet(a) - binet(b))
    return np.exp(exponent) * np.sqrt(b / a / (2.0 * math.pi * total))


def _log_less_linear(u: Array, log: Array) -> Array:
    """Return log(1 + u) - u, given log(1 + u) from a source that is accurate for u near -1."""
    return np.where(u > -0.5, log1p_minus(np.maximum(u, -0.5)), log - u)


def _log_inverse_beta(a: Array, b: Array) -> Array:
    """Return log(gamma(a + b + 1) / (gamma(a + 1) gamma(b + 1))), one shape below 10."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    tame = lgamma_of_one_plus(a + b) - lgamma_of_one_plus(b) - lgamma_of_one_plus(a)
    # For a large shape, the difference of two huge logarithms is taken term by term of Stirling's
    # formula.
    n = np.maximum(large, _STIRLING_SHAPE) + 1.0
    ratio = (n - 0.5) * np.log1p(small / n) + small * (np.log(n + small) - 1.0)
    ratio += binet(n + small) - binet(n)
    return np.where(large >= _STIRLING_SHAPE, ratio - lgamma_of_one_plus(small), tame)


def _fraction(a: Array, b: Array, x: Array, y: Array, excess: Array) -> Array:
    """Return I_x(a, b) / (x**a y**b / (a B(a, b))) by a continued fraction with Lentz's method.

    It is the even part of DLMF 8.17.22 (DiDonato and Morris 1992, section 8); the nearly cancelling
    terms of that fraction are collected in `excess`, which is known without rounding error.
    """

    def step(n, a, b, x, base, growth, c, d, value):
        odd = a + (2 * n - 1)
        ratio = n * (b - n) * x / odd
        numerator = (a + (n - 1)) / odd * (a + b + (n - 1)) * x * ratio
        denominator = n + ratio + (a + n) / (a + (2 * n + 1)) * (base + n * growth)
        d *= numerator
        d += denominator
        np.reciprocal(d, out=d)
        np.divide(numerator, c, out=c)
        c += denominator
        factor = c * d
        value *= factor
        return ~(np.abs(factor - 1.0) > 2.0 * _EPSILON)  # NaN ends the iteration too

    base = 1.0 - excess
    first = (a + 1.0) / (a * base)
    # c starts at infinity: the fraction's first quotient is `first` itself.
    state = (a, b, x, base, 1.0 + y, np.full_like(a, np.inf), first, first)
    (value,) = iterate(step, state, (7,), _MAX_STEPS)
    return value * a


@functools.cache
def _quadrature() -> tuple[tuple[float, float], ...]:
    """Return 48 Gauss-Legendre (node, weight) pairs on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    return tuple(zip((0.5 * (nodes + 1.0)).tolist(), (0.5 * weights).tolist(), strict=True))


def _integral(a: Array, b: Array, x: Array, y: Array) -> Array:
    """Return I_x(a, b) / (x**a y**b / (a B(a, b))) for large shapes and x not above the mean.

    There the integrand falls from its value at x towards 0 like the flank of a Gaussian; the
    quadrature covers its decrease by a factor of e**60.
    """
    slope = np.maximum((a - 1.0) / x - (b - 1.0) / y, 0.0)
    curvature = (a - 1.0) / np.square(x) + (b - 1.0) / np.square(y)
    width = np.minimum(120.0 / (slope + np.sqrt(np.square(slope) + 120.0 * curvature)), x)
    total = np.zeros_like(a)
    for node, weight in _quadrature():
        t = width * node
        exponent = (a - 1.0) * np.log1p(-t / x) + (b - 1.0) * np.log1p(t / y)
        total += weight * np.exp(exponent)
    return total * width * a / (x * y)


def _tail(a: Array, b: Array, x: Array, y: Array, excess: Array) -> Array:
    """Return I_x(a, b) where it is not dominated by its complement."""
    result = _scale(a, b, x, y, excess)
    large = np.minimum(a, b) >= _LARGE_SHAPES
    by_quadrature, by_fraction = np.flatnonzero(large), np.flatnonzero(~large)
    if by_quadrature.size:
        s = by_quadrature
        result[s] *= _integral(a[s], b[s], x[s], y[s])
    if by_fraction.size:
        s = by_fraction
        result[s] *= _fraction(a[s], b[s], x[s], y[s], excess[s])
    return result


def _inside(a: Array, b: Array, x: Array) -> Array:
    """Return I_x(a, b) for finite positive a, b and 0 < x < 1."""
    y = 1.0 - x
    excess = _excess(a, b, x)
    mean = np.where(np.minimum(a, b) >= _LARGE_SHAPES, a / (a + b), (a + 1.0) / (a + b + 2.0))
    swap = x > mean
    first, second = np.where(swap, b, a), np.where(swap, a, b)
    lower, upper = np.where(swap, y, x), np.where(swap, x, y)
    tail = _tail(first, second, lower, upper, np.where(swap, -excess, excess))
    result = np.where(swap, 1.0 - tail, tail)
    # For b < 1 the complement may be 1 to all digits; there the fraction converges, slowly, even
    # beyond the mean.
    redo = np.flatnonzero(swap & (tail > 0.9) & (b < 1.0) & (x < 0.99999))
    if redo.size:
        result[redo] = _tail(a[redo], b[redo], x[redo], y[redo], excess[redo])
    return result


def betainc(a: Array, b: Array, x: Array) -> Array:
    """Return I_x(a, b), the regularised incomplete beta function."""
    result = np.full_like(a, np.nan)
    defined = ~(a <= 0.0) & ~(b <= 0.0)
    inner = defined & (x > 0.0) & (x < 1.0) & np.isfinite(a) & np.isfinite(b)
    where = np.flatnonzero(inner)
    if where.size:
        result[where] = np.clip(_inside(a[where], b[where], x[where]), 0.0, 1.0)
    result[defined & (x == 0.0)] = 0.0
    result[defined & (x == 1.0)] = 1.0
    return result
