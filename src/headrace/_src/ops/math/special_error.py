"""The error function and related functions: erf, erfc, and their inverses, over 1-D float blocks.

In: a 1-D float64 array (float32 for the functions named `*_single`). Out: an array of the same
size; float64 results are accurate to a few units in the last place over the whole range, `*_single`
ones to about one unit of float32.
"""

from __future__ import annotations

import math

import numpy as np

from headrace._src.ops.math.special_series import Array, horner, piecewise, rational

# Rational interpolants at Chebyshev nodes, computed for this file in 50-digit arithmetic, as
# (numerator, denominator); the figure is the largest relative error between the nodes.

# erf(x)/x in x**2, |x| <= 1: 1e-18.
ERF = (
    (8.625602445726376e-08, 0.00019709588069752516, 0.0018829155471563983,
     0.0455033341653278, 0.14365581715028763, 1.1283791670955126),
    (2.0866484101019162e-05, 0.0006937362332349159, 0.010705251871973175,
     0.0938746087651241, 0.46064498648983654, 1.0),
)  # fmt: skip
# exp(x**2) erfc(x) (x + 2) in 1/(x + 2), 0.5 <= x <= 28: 6e-19.
ERFCX = (
    (434.6671256107965, 674.087970978739, 695.5661865054458, 485.93001471659676,
     351.50997396754684, 132.61903086713974, 91.21701423682089, 14.728067526200427,
     11.785104952362856, 0.4989249884427076, 0.5641895835478116),
    (47.23875335401657, -15.065643332576222, 239.99367111585016, -59.43779888526678,
     289.3224713776303, -52.02726198438782, 122.29690406212268, -14.230128468134593,
     19.619911620404594, -1.1156784829035167, 1.0),
)  # fmt: skip
# erf(x)/x in x**2, |x| <= 3.93, beyond which erf rounds to 1 in float32: 2e-8.
_ERF_SINGLE_LIMIT = np.float32(3.93)
_ERF_SINGLE_P = (
    -1.4900438460010306e-08, 5.034106603310876e-06, 0.0003915744937455194,
    0.0038331107536561907, 0.05443545328351499, 0.1838422828188441, 1.1283791846804314,
)  # fmt: skip
_ERF_SINGLE_Q = (
    6.642549652050124e-05, 0.001320346090903708, 0.015470433561612236,
    0.11366058938891314, 0.4962596341399301, 1.0,
)  # fmt: skip
# exp(x**2) erfc(x) (x + 2) in 1/(x + 2), 0 <= x <= 11: 1e-9.
ERFCX_SINGLE = (
    (9.210658900888301, 6.480039374630004, 4.064613416308102,
     3.025043226736359, 0.37520013957703474, 0.5641866886259662),
    (0.09420830053943409, 2.7133325979678484, -2.2805991136564816,
     4.538614178899871, -1.335252111172518, 1.0),
)  # fmt: skip

# Normal quantile: M. J. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), routine PPND16.
_CENTRE_P = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
    4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
    1.3314166789178437745e2, 3.3871328727963666080,
)  # fmt: skip
_CENTRE_Q = (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
    2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
    4.2313330701600911252e1, 1.0,
)  # fmt: skip
_NEAR_P = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
    1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
    4.63033784615654529590, 1.42343711074968357734,
)  # fmt: skip
_NEAR_Q = (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
    1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
    2.05319162663775882187, 1.0,
)  # fmt: skip
_FAR_P = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
    2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
    5.46378491116411436990, 6.65790464350110377720,
)  # fmt: skip
_FAR_Q = (
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
    7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
    5.99832206555887937690e-1, 1.0,
)  # fmt: skip


def _erf_centre(x: Array) -> Array:
    """Return erf(x) for |x| <= 1."""
    result = rational(np.square(x), *ERF)
    result *= x
    return result


def _exp_minus_square(x: Array, scale: float) -> Array:
    """Return exp(-scale * x*x) to full relative accuracy, `scale` a power of two.

    The rounding error of x*x would be multiplied by the exponent, so it is recovered from an exact
    split of x.
    """
    square = x * x
    high = x.astype(np.float32).astype(np.float64)
    low = x - high
    residue = (high * high - square) + 2.0 * high * low + low * low
    return np.exp(-scale * square) * (1.0 - scale * residue)


def _erfcx(x: Array) -> Array:
    """Return exp(x*x) erfc(x) for 0.5 <= x <= 28."""
    t = 1.0 / (x + 2.0)
    result = rational(t, *ERFCX)
    result *= t
    return result


def _erfc_tail(x: Array) -> Array:
    """Return erfc(x) for x >= 0.5."""
    x = np.minimum(x, 28.0)  # erfc(28) is 0 in float64
    return _erfcx(x) * _exp_minus_square(x, 1.0)


def erf(x: Array) -> Array:
    """Return erf(x), float64."""

    def outer(x: Array) -> Array:
        return np.copysign(1.0 - _erfc_tail(np.abs(x)), x)

    return piecewise(np.abs(x) <= 1.0, x, _erf_centre, outer)


def erfc(x: Array) -> Array:
    """Return erfc(x) = 1 - erf(x), float64, without cancellation for large x."""

    def below(x: Array) -> Array:
        return 2.0 - _erfc_tail(-x)

    def centre(x: Array) -> Array:
        return 1.0 - _erf_centre(x)

    def outer(x: Array) -> Array:
        return piecewise(x < 0.0, x, below, _erfc_tail)

    return piecewise(np.abs(x) <= 0.5, x, centre, outer)


def erf_single(x: Array) -> Array:
    """Return erf(x) for float32, in float64 arithmetic with a float32-sized approximation."""
    clipped = np.clip(x, -_ERF_SINGLE_LIMIT, _ERF_SINGLE_LIMIT).astype(np.float64)
    result = rational(np.square(clipped), _ERF_SINGLE_P, _ERF_SINGLE_Q)
    result *= clipped
    return result


def erfc_single(x: Array) -> Array:
    """Return erfc(x) for float32, in float64 arithmetic with a float32-sized approximation."""
    wide = x.astype(np.float64)
    magnitude = np.minimum(np.abs(wide), 11.0)  # erfc(11) is 0 in float32
    t = 1.0 / (magnitude + 2.0)
    tail = rational(t, *ERFCX_SINGLE)
    tail *= t
    magnitude *= -magnitude
    tail *= np.exp(magnitude, out=magnitude)
    negative = np.flatnonzero(wide < 0.0)
    tail[negative] = 2.0 - tail[negative]
    return tail


def ndtr(x: Array) -> Array:
    """Return the standard normal distribution function at x, float64."""

    def tail(x: Array) -> Array:
        # Not erfc(-x / sqrt(2)): the rounding error of the quotient would be multiplied by x*x.
        x = np.maximum(x, -39.0)  # ndtr(-39) is 0 in float64
        return 0.5 * _erfcx(x * -math.sqrt(0.5)) * _exp_minus_square(x, 0.5)

    return piecewise(x < -1.0, x, tail, lambda x: 0.5 * erfc(x * -math.sqrt(0.5)))


def _quantile(centred: Array, tail: Array) -> Array:
    """Return the normal quantile of p, given p - 1/2 and min(p, 1 - p), both exact."""
    r = np.clip(0.180625 - np.square(centred), 0.0, None)
    result = horner(r, _CENTRE_P)
    result *= centred
    result /= horner(r, _CENTRE_Q)
    outer = np.flatnonzero(~(np.abs(centred) <= 0.425))
    if outer.size:
        s = np.sqrt(-np.log(tail[outer]))
        near = rational(np.minimum(s, 5.0) - 1.6, _NEAR_P, _NEAR_Q)
        far = rational(np.clip(s, 5.0, 30.0) - 5.0, _FAR_P, _FAR_Q)
        value = np.where(s <= 5.0, near, far)
        value[tail[outer] == 0.0] = np.inf
        result[outer] = np.copysign(value, centred[outer])
    return result


def ndtri(p: Array) -> Array:
    """Return the normal quantile of p, float64; NaN outside [0, 1], infinite at the ends."""
    return _quantile(p - 0.5, np.minimum(p, 1.0 - p))


def erfinv(y: Array) -> Array:
    """Return the inverse of erf at y, float64; NaN outside [-1, 1], infinite at the ends."""
    result = _quantile(0.5 * y, 0.5 * (1.0 - np.abs(y)))
    result *= math.sqrt(0.5)
    return result
