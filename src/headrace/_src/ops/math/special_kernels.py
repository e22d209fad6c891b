"""TensorFlow's special functions on NumPy arrays of any shape and any floating dtype.

In: arrays of one floating dtype, broadcast against each other. Out: an array of that dtype and the
broadcast shape. NaN, poles and arguments outside the domain follow TensorFlow 1.15; nothing warns.

float64 is computed in float64; narrower types are computed in float64 too, some with approximations
to float32's accuracy, and rounded once at the end. Computation is in blocks that stay in cache, so
large arrays need no large temporaries. The mathematics is in the modules `special_*`, on 1-D
blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from headrace._src.ops.math import (
    special_bessel,
    special_error,
    special_gamma,
    special_incomplete_beta,
    special_incomplete_gamma,
)

Array = np.ndarray

_NARROW = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_FLOATING = (np.dtype(np.float64), *_NARROW)
_COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))
# The block size: a few float64 temporaries of it fill L2, and calls are few (measured).
_BLOCK = 1 << 15


def _common(name: str, values: tuple[ArrayLike, ...], allowed: tuple[np.dtype, ...]) -> list[Array]:
    """Return the arguments as broadcast arrays; they must share one of the allowed dtypes."""
    arrays = [np.asarray(value) for value in values]
    dtype = arrays[0].dtype
    if dtype not in allowed or any(array.dtype != dtype for array in arrays):
        found = ", ".join(str(array.dtype) for array in arrays)
        raise TypeError(
            f"{name} takes arguments of one dtype among {', '.join(map(str, allowed))}; got {found}"
        )
    return list(np.broadcast_arrays(*arrays)) if len(arrays) > 1 else arrays


def _apply(
    name: str,
    function: Callable[..., Array],
    *values: ArrayLike,
    single: Callable[..., Array] | None = None,
) -> Array:
    """Apply a function to 1-D float64 blocks (`single`, to float32 blocks, for narrow dtypes)."""
    arrays = _common(name, values, _FLOATING)
    dtype, shape = arrays[0].dtype, arrays[0].shape
    if single is not None and dtype in _NARROW:
        function, work = single, np.dtype(np.float32)
    else:
        work = np.dtype(np.float64)
    flat = [array.reshape(-1) for array in arrays]
    result = np.empty(flat[0].size, dtype)
    with np.errstate(all="ignore"):
        for start in range(0, result.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            result[block] = function(*(array[block].astype(work, copy=False) for array in flat))
    return result.reshape(shape)


def erf(x: ArrayLike) -> Array:
    """Return the error function of x."""
    return _apply("erf", special_error.erf, x, single=special_error.erf_single)


def erfc(x: ArrayLike) -> Array:
    """Return 1 - erf(x), accurate for large x too."""
    return _apply("erfc", special_error.erfc, x, single=special_error.erfc_single)


def erfinv(x: ArrayLike) -> Array:
    """Return y with erf(y) = x; NaN outside [-1, 1]."""
    return _apply("erfinv", special_error.erfinv, x)


def ndtr(x: ArrayLike) -> Array:
    """Return the standard normal distribution function at x."""
    return _apply("ndtr", special_error.ndtr, x)


def ndtri(p: ArrayLike) -> Array:
    """Return x with ndtr(x) = p; NaN outside [0, 1]."""
    return _apply("ndtri", special_error.ndtri, p)


def lgamma(x: ArrayLike) -> Array:
    """Return log(|gamma(x)|); +inf at the poles."""
    return _apply("lgamma", special_gamma.lgamma, x, single=special_gamma.lgamma_single)


def digamma(x: ArrayLike) -> Array:
    """Return the derivative of lgamma; +inf at the poles."""
    return _apply("digamma", special_gamma.digamma, x, single=special_gamma.digamma_single)


def polygamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the a-th derivative of digamma at x; NaN unless a is an integer >= 0."""
    return _apply("polygamma", special_gamma.polygamma, a, x)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Return the Hurwitz zeta function, the sum over k >= 0 of (q + k)**-x."""
    return _apply("zeta", special_gamma.zeta, x, q)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the lower regularised incomplete gamma function P(a, x)."""
    return _apply("igamma", special_incomplete_gamma.igamma, a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return _apply("igammac", special_incomplete_gamma.igammac, a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the derivative of igamma(a, x) in a."""
    return _apply("igamma_grad_a", special_incomplete_gamma.igamma_grad_a, a, x)


def random_gamma_grad(alpha: ArrayLike, sample: ArrayLike) -> Array:
    """Return the derivative of a Gamma(alpha, 1) sample in alpha, at a fixed quantile."""
    gradient = special_incomplete_gamma.random_gamma_grad
    return _apply("random_gamma_grad", gradient, alpha, sample)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularised incomplete beta function I_x(a, b)."""
    return _apply("betainc", special_incomplete_beta.betainc, a, b, x)


def bessel_i0e(x: ArrayLike) -> Array:
    """Return exp(-|x|) I0(x), I0 the modified Bessel function of order 0."""
    return _apply("bessel_i0e", special_bessel.bessel_i0e, x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Return exp(-|x|) I1(x), I1 the modified Bessel function of order 1."""
    return _apply("bessel_i1e", special_bessel.bessel_i1e, x)


def _zero_where_x_is_zero(
    name: str, function: Callable[..., Any], x: ArrayLike, y: ArrayLike
) -> Array:
    first, second = _common(name, (x, y), _FLOATING + _COMPLEX)
    dtype = first.dtype
    if dtype.itemsize == 2:
        first, second = first.astype(np.float32), second.astype(np.float32)
    with np.errstate(all="ignore"):
        result = np.asarray(function(first, second))
        return np.where(first == 0, first.dtype.type(0), result).astype(dtype, copy=False)


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x * log(y), and 0 wherever x is 0; floating or complex."""
    return _zero_where_x_is_zero("xlogy", lambda x, y: x * np.log(y), x, y)


def xdivy(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x / y, and 0 wherever x is 0; floating or complex."""
    return _zero_where_x_is_zero("xdivy", np.divide, x, y)
