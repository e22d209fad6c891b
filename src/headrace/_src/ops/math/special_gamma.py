"""The gamma function's logarithm and derivatives, and Hurwitz's zeta, over 1-D float blocks.

In: 1-D float64 arrays (float32 for the functions named `*_single`). Out: float64 arrays of the same
size. Poles follow TensorFlow: `lgamma` and `digamma` are +inf at 0, -1, -2, ... (and at -inf, where
every float is an integer).
"""

from __future__ import annotations

import math

import numpy as np

from headrace._src.ops.math.special_series import Array, piecewise, rational

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
# The positive zero of digamma is PSI_ROOT + PSI_ROOT_LOW.
PSI_ROOT = 1.4616321449683622
PSI_ROOT_LOW = 9.549995429965697e-17

# Rational interpolants at Chebyshev nodes, computed for this file in 50-digit arithmetic, as
# (numerator, denominator); the figure is the largest relative error between the nodes. A pair is
# (full, single precision).

# lgamma(u + 2) / (u (u + 1)) in u, |u| <= 1: 5e-16 and 2e-8.
_LGAMMA_CENTRE = (
    (8.687828903988597e-08, 4.3747309175755134e-05, 0.0017127407606034393, 0.023120895448254467,
     0.14406164648013134, 0.4534311392241391, 0.7008368261578349, 0.42278433509846713),
    (1.0961226869513494e-05, 0.0006783602854175668, 0.013315646275465616, 0.11981893618148341,
     0.5649492377427096, 1.4441456555158654, 1.894947521283159, 1.0),
)  # fmt: skip
_LGAMMA_CENTRE_SINGLE = (
    (-2.857950967574844e-05, 0.0011398390568837377, 0.05343936506803625,
     0.3000694871902559, 0.4227843345230885),
    (0.02295634893646459, 0.27313502390909655, 0.947023706716336, 1.0),
)  # fmt: skip
# Binet's function times y (Stirling's remainder) in y**-2, y >= 3: 6e-18 and 2e-7.
_BINET = (
    (0.13367152784692188, 2.5590246849488616, 6.6878298246260925,
     4.904304971117872, 1.1903726063459705, 0.08333333333333333),
    (2.223301837250385, 32.972253806823375, 82.10205390792463,
     59.319395997544994, 14.317804609484968, 1.0),
)  # fmt: skip
_BINET_SINGLE = ((0.01945428279889263, 0.08333332066578021), (0.2667598527354804, 1.0))
# digamma(u + 2) / (u + 2 - root) in u, |u| <= 1: 3e-19 and 5e-9.
_PSI_CENTRE = (
    (6.7149819550169945e-09, 6.457820650067738e-06, 0.00040493744305046027, 0.008564353648649485,
     0.08220661251927941, 0.3916142261649028, 0.897961849553291, 0.7853075386041053),
    (1.2091222231371764e-06, 0.00010679522102569397, 0.0029747740869747238, 0.03758706848132832,
     0.24512469666862843, 0.8497662480479878, 1.4754739350852262, 1.0),
)  # fmt: skip
_PSI_CENTRE_SINGLE = (
    (-2.7292313783245578e-05, 0.0011223948213772974, 0.07417930547663983,
     0.4902492088613727, 0.7853075381811055),
    (0.022492394697828107, 0.2731714013721389, 0.9562981712895284, 1.0),
)  # fmt: skip
# (log y - 1/(2y) - digamma(y)) y**2 in y**-2, y >= 3: 8e-17 and 9e-7 (of a term that is below 1% of
# the result).
_PSI_TAIL = (
    (0.3011955040168616, 4.787886709213266, 10.294446380115449,
     6.3924263623594735, 1.3463620620697865, 0.08333333333333333),
    (6.8343005269970005, 67.51238673123109, 130.6379580735728,
     78.28713177524745, 16.256344744837257, 1.0),
)  # fmt: skip
_PSI_TAIL_SINGLE = ((0.02821896174630474, 0.08333325935073498), (0.4384817815015371, 1.0))

Fit = tuple[tuple[float, ...], tuple[float, ...]]

# The fits of each function: near its zeros, and beyond.
LGAMMA, LGAMMA_SINGLE = (_LGAMMA_CENTRE, _BINET), (_LGAMMA_CENTRE_SINGLE, _BINET_SINGLE)
DIGAMMA, DIGAMMA_SINGLE = (_PSI_CENTRE, _PSI_TAIL), (_PSI_CENTRE_SINGLE, _PSI_TAIL_SINGLE)


def binet(y: Array, fit: Fit = _BINET) -> Array:
    """Return lgamma(y) - ((y - 1/2) log y - y + log(2 pi)/2) for y >= 3."""
    inverse = 1.0 / y
    result = rational(np.square(inverse), *fit)
    result *= inverse
    return result


def _lgamma_near_two(u: Array, centre: Fit) -> Array:
    """Return lgamma(2 + u) for |u| <= 1; exact zeros at u = 0 and u = -1."""
    result = rational(u, *centre)
    result *= u
    result *= u + 1.0
    return result


def _stirling(y: Array, tail: Fit) -> Array:
    """Return lgamma(y) for y >= 3."""
    # Factored so that y = inf gives inf, not inf - inf.
    result = np.log(y)
    result -= 1.0
    result *= y - 0.5
    result += binet(y, tail)
    result += HALF_LOG_2PI - 0.5
    return result


def _lgamma_positive(x: Array, centre: Fit, tail: Fit) -> Array:
    """Return lgamma(x) for x >= 0; one step of the recurrence maps [0, 1) to the centre."""

    def below_one(x: Array) -> Array:
        return _lgamma_near_two(x - 1.0, centre) - np.log(x)

    def below_three(x: Array) -> Array:
        return piecewise(x < 1.0, x, below_one, lambda x: _lgamma_near_two(x - 2.0, centre))

    return piecewise(x < 3.0, x, below_three, lambda x: _stirling(x, tail))


def _lgamma_signed(x: Array, centre: Fit, tail: Fit) -> Array:
    result = _lgamma_positive(np.abs(x), centre, tail)
    negative = np.flatnonzero(x < 0.0)
    if negative.size:
        # gamma(x) gamma(-x) = -pi / (x sin(pi x))
        y = x[negative]
        sine = np.abs(np.sin(math.pi * _offset_from_integer(y)))
        result[negative] = np.log(math.pi / sine) - np.log(-y) - result[negative]
        result[negative[y == np.floor(y)]] = np.inf
    return result


def _offset_from_integer(x: Array) -> Array:
    """Return x minus the nearest integer, exactly, so that sin(pi x), tan(pi x) stay accurate."""
    return x - np.rint(x)


def lgamma(x: Array) -> Array:
    """Return log|gamma(x)|, float64."""
    return _lgamma_signed(x, *LGAMMA)


def lgamma_single(x: Array) -> Array:
    """Return log|gamma(x)| to float32 accuracy."""
    return _lgamma_signed(x.astype(np.float64), *LGAMMA_SINGLE)


def lgamma_of_one_plus(a: Array) -> Array:
    """Return lgamma(1 + a) for a >= 0, with relative accuracy as a goes to 0."""

    def near(a: Array) -> Array:
        u = a - 1.0
        return rational(u, *_LGAMMA_CENTRE) * u * a

    return piecewise(a <= 2.0, a, near, lambda a: lgamma(1.0 + a))


def _digamma_near_two(u: Array, centre: Fit) -> Array:
    """Return digamma(2 + u) for |u| <= 1."""
    result = rational(u, *centre)
    from_root = u + (2.0 - PSI_ROOT)
    from_root -= PSI_ROOT_LOW
    result *= from_root
    return result


def _digamma_tail(y: Array, tail: Fit) -> Array:
    """Return digamma(y) for y >= 3."""
    inverse = 1.0 / y
    square = np.square(inverse)
    result = np.log(y)
    inverse *= 0.5
    result -= inverse
    square *= rational(square, *tail)
    result -= square
    return result


def _digamma_positive(x: Array, centre: Fit, tail: Fit) -> Array:
    """Return digamma(x) for x > 0; one step of the recurrence maps (0, 1) to the centre."""

    def below_one(x: Array) -> Array:
        return _digamma_near_two(x - 1.0, centre) - 1.0 / x

    def below_three(x: Array) -> Array:
        return piecewise(x < 1.0, x, below_one, lambda x: _digamma_near_two(x - 2.0, centre))

    return piecewise(x < 3.0, x, below_three, lambda x: _digamma_tail(x, tail))


def _digamma_signed(x: Array, centre: Fit, tail: Fit) -> Array:
    result = _digamma_positive(np.abs(x), centre, tail)
    other = np.flatnonzero(x <= 0.0)
    if other.size:
        # psi(x) = psi(1 - x) - pi cot(pi x), with psi(1 - x) = psi(-x) - 1/x
        y = x[other]
        result[other] -= 1.0 / y + math.pi / np.tan(math.pi * _offset_from_integer(y))
        result[other[y == np.floor(y)]] = np.inf
    return result


def digamma(x: Array) -> Array:
    """Return the derivative of lgamma, float64."""
    return _digamma_signed(x, *DIGAMMA)


def digamma_single(x: Array) -> Array:
    """Return the derivative of lgamma to float32 accuracy."""
    return _digamma_signed(x.astype(np.float64), *DIGAMMA_SINGLE)


# Euler-Maclaurin for zeta: terms summed one by one, and B(2k)/(2k)! for k = 1, 2, ... (Bernoulli
# numbers: A&S 23.2).
_DIRECT_TERMS = 10
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
    43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
_EULER_MACLAURIN = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1))
# Beyond this exponent only the first term of zeta counts; like every float that large, it is even.
_MAX_EXPONENT = 1e16


def _scaled_zeta(s: Array, q: Array) -> Array:
    """Return q**s * zeta(s, q) for s > 1, q > 0: a number between 1 and 1 + q/(s - 1)."""
    total = np.ones_like(s)
    for k in range(1, _DIRECT_TERMS):
        total += np.exp(-s * np.log1p(k / q))
    w = q + _DIRECT_TERMS
    scale = np.exp(-s * np.log1p(_DIRECT_TERMS / q))
    # Nested from the last term outwards: each is (s + 2k - 3)(s + 2k - 2) / w**2 times the one
    # before.
    correction = np.zeros_like(s)
    for k in range(len(_EULER_MACLAURIN) - 1, 0, -1):
        ratio = _EULER_MACLAURIN[k] / _EULER_MACLAURIN[k - 1]
        correction += 1.0
        correction *= ratio * ((s + (2 * k - 1)) / w) * ((s + 2 * k) / w)
    correction += 1.0
    correction *= _EULER_MACLAURIN[0] * (s / w)
    correction += 0.5 + w / (s - 1.0)
    return total + np.where(scale > 0.0, scale * correction, 0.0)


def _zeta_positive(s: Array, q: Array) -> Array:
    return np.power(q, -s) * _scaled_zeta(s, q)


def _zeta_negative(s: Array, q: Array) -> Array:
    """Return zeta(s, q) for integral s and q < 0, not an integer.

    The terms with a negative base are, except for their sign, the first terms of a zeta with
    positive q.
    """
    f = q - np.floor(q)
    sign = np.where(np.fmod(s, 2.0) == 0.0, 1.0, -1.0)
    near_poles = _zeta_positive(s, f) + sign * _zeta_positive(s, 1.0 - f)
    return near_poles - sign * _zeta_positive(s, 1.0 - q)


def zeta(s: Array, q: Array) -> Array:
    """Return the Hurwitz zeta function, the sum over k >= 0 of (q + k)**-s, float64.

    +inf at s = 1 and at the poles q = 0, -1, ...; NaN for s < 1, for q < 0 with s not integral, and
    at q = inf.
    """
    result = np.full_like(s, np.nan)
    exponent = np.minimum(s, _MAX_EXPONENT)
    pole = (q <= 0.0) & (q == np.floor(q))
    positive = np.flatnonzero((s > 1.0) & (q > 0.0) & np.isfinite(q))
    if positive.size:
        result[positive] = _zeta_positive(exponent[positive], q[positive])
        result[np.isinf(s) & (q > 1.0)] = np.nan
    negative = np.flatnonzero((s > 1.0) & (s == np.floor(s)) & (q < 0.0) & ~pole)
    if negative.size:
        result[negative] = _zeta_negative(exponent[negative], q[negative])
    result[pole & ~(s < 1.0)] = np.inf
    result[s == 1.0] = np.inf
    return result


def polygamma(n: Array, x: Array) -> Array:
    """Return the n-th derivative of digamma, float64; NaN unless n is an integer >= 0."""
    result = np.full_like(x, np.nan)
    zeroth = np.flatnonzero(n == 0.0)
    if zeroth.size:
        result[zeroth] = digamma(x[zeroth])
    higher = np.flatnonzero((n >= 1.0) & (n == np.floor(n)))
    if higher.size:
        result[higher] = _polygamma_by_zeta(n[higher], x[higher])
    return result


def _polygamma_by_zeta(n: Array, x: Array) -> Array:
    s = n + 1.0
    sign = np.where((np.fmod(n, 2.0) == 0.0) & np.isfinite(n), -1.0, 1.0)
    result = np.exp(lgamma(s)) * zeta(s, x)
    # n! overflows, and zeta underflows, long before their product does: combine them in one power.
    split = np.flatnonzero((n > 20.0) & np.isfinite(n) & (x > 0.0) & np.isfinite(x))
    if split.size:
        t, y = s[split], x[split]
        stirling = np.power(t / (math.e * y), t) * np.sqrt(2.0 * math.pi / t) * np.exp(binet(t))
        result[split] = stirling * _scaled_zeta(t, y)
    return sign * result
