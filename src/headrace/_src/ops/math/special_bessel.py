"""The modified Bessel functions I0 and I1, scaled by exp(-|x|), over 1-D float64 blocks.

In: a 1-D float64 array. Out: a float64 array of the same size, accurate to a few units in the last
place.
"""

from __future__ import annotations

import math

import numpy as np

from headrace._src.ops.math.special_series import Array, horner, piecewise

# I0(x) e**-x by its power series (A&S 9.6.10) up to here, by Hankel's expansion (A&S 9.7.1) beyond,
# where the expansion's smallest term is below the rounding error.
SPLIT = 30.0
_TERMS = 50


def _power_series(order: int) -> tuple[float, ...]:
    return tuple(
        1.0 / (math.factorial(k) * math.factorial(k + order)) for k in reversed(range(_TERMS))
    )


def _hankel_series(order: int) -> tuple[float, ...]:
    coefficients = [1.0]
    for k in range(1, 20):
        coefficients.append(coefficients[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8.0 * k))
    return tuple(reversed(coefficients))


I0_SERIES, I1_SERIES = _power_series(0), _power_series(1)
I0_HANKEL, I1_HANKEL = _hankel_series(0), _hankel_series(1)


def bessel_i0e(x: Array) -> Array:
    """Return exp(-|x|) I0(x)."""
    y = np.abs(x)

    def near(y: Array) -> Array:
        return horner(np.square(0.5 * y), I0_SERIES) * np.exp(-y)

    return piecewise(y <= SPLIT, y, near, lambda y: _far(y, I0_HANKEL))


def bessel_i1e(x: Array) -> Array:
    """Return exp(-|x|) I1(x)."""
    y = np.abs(x)

    def near(y: Array) -> Array:
        return horner(np.square(0.5 * y), I1_SERIES) * np.exp(-y) * (0.5 * y)

    return np.copysign(piecewise(y <= SPLIT, y, near, lambda y: _far(y, I1_HANKEL)), x)


def _far(y: Array, hankel: tuple[float, ...]) -> Array:
    return horner(1.0 / y, hankel) / np.sqrt(2.0 * math.pi * y)
