"""Evaluate polynomials, rational functions and convergent recurrences over arrays.

In: 1-D floating arrays and coefficients, highest power first. Out: new arrays of the same dtype.
The special functions share these loops; every step works in place on a whole block, so a polynomial
needs one temporary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray


def horner(x: Array, coefficients: Sequence[float]) -> Array:
    """Return the polynomial with `coefficients` (highest power first) at `x`."""
    if len(coefficients) == 1:
        return np.full_like(x, coefficients[0])
    total = x * x.dtype.type(coefficients[0])
    total += x.dtype.type(coefficients[1])
    for coefficient in coefficients[2:]:
        total *= x
        total += x.dtype.type(coefficient)
    return total


def rational(x: Array, numerator: Sequence[float], denominator: Sequence[float]) -> Array:
    """Return numerator(x) / denominator(x)."""
    quotient = horner(x, numerator)
    quotient /= horner(x, denominator)
    return quotient


def piecewise(
    mask: Array, x: Array, chosen: Callable[[Array], Array], other: Callable[[Array], Array]
) -> Array:
    """Return chosen(x) where `mask` holds and other(x) elsewhere, each called on its elements only.

    Gathering and scattering costs less than a `np.where`, and neither function sees arguments
    outside its range.
    """
    inside = np.flatnonzero(mask)
    if inside.size == x.size:
        return chosen(x)
    if inside.size == 0:
        return other(x)
    outside = np.flatnonzero(~mask)
    result = np.empty_like(x)
    result[inside] = chosen(x[inside])
    result[outside] = other(x[outside])
    return result


def iterate(
    step: Callable[..., Array], state: Sequence[Array], results: Sequence[int], limit: int
) -> list[Array]:
    """Repeat `step(n, *state)`, n = 1, 2, ..., until every element has converged.

    `step` updates the arrays of `state` in place and returns the mask of converged elements.
    Converged elements leave the working set, so a few slow ones do not hold up the rest. Returns
    the arrays at positions `results` of the state; an element that has not converged after `limit`
    steps is NaN there: no digits rather than wrong ones.
    """
    arrays = [np.array(array) for array in state]
    outputs = [np.full_like(arrays[i], np.nan) for i in results]
    active = np.arange(arrays[0].size)
    for n in range(1, limit + 1):
        converged = step(n, *arrays)
        # Packing the working set costs about as much as a step: check only occasionally.
        if n % 8 and n != limit:
            continue
        done = np.flatnonzero(converged)
        if done.size == 0:
            continue
        for output, i in zip(outputs, results, strict=True):
            output[active[done]] = arrays[i][done]
        if done.size == active.size:
            break
        rest = np.flatnonzero(~converged)
        active = active[rest]
        arrays = [array[rest] for array in arrays]
    return outputs
