"""Complex numbers and spectra. In: inputs as an op's kernel has them. Out: outputs.

Arithmetic on complex numbers has its rules; these functions are for the other ops. Those of sums
and products serve wherever the rules of these ops do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["KERNELS"]


def _complex(real: Any, imaginary: Any, *, Tout: Any) -> Any:
    return (jnp.asarray(real) + 1j * jnp.asarray(imaginary)).astype(Tout.numpy)


def _part(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, Tout: function(jnp.asarray(x)).astype(Tout.numpy)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, axes: np.ndarray, *, keep_dims: bool) -> Any:
        along = tuple(int(a) for a in axes.reshape(-1))
        return function(jnp.asarray(x), along, keepdims=keep_dims)

    return run


def _mean(x: Any, axes: Any, keepdims: bool) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.mean(x, axes, keepdims=keepdims)
    total = jnp.sum(x, axes, dtype=x.dtype, keepdims=keepdims)
    return jax.lax.div(total, jnp.full_like(total, x.size // max(total.size, 1)))


def _product(x: Any, y: Any, *, adj_x: bool, adj_y: bool) -> Any:
    x, y = jnp.asarray(x), jnp.asarray(y)
    x = jnp.conj(jnp.swapaxes(x, -1, -2)) if adj_x else x
    y = jnp.conj(jnp.swapaxes(y, -1, -2)) if adj_y else y
    return jnp.matmul(x, y).astype(x.dtype)


def _transposed_product(x: Any, y: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    x, y = jnp.asarray(x), jnp.asarray(y)
    return jnp.matmul(x.T if transpose_a else x, y.T if transpose_b else y).astype(x.dtype)


def _conjugate_transpose(x: Any, permutation: np.ndarray) -> Any:
    return jnp.conj(jnp.transpose(jnp.asarray(x), [int(d) for d in permutation]))


def _round(x: Any) -> Any:
    return (jnp.rint(x.real) + 1j * jnp.rint(x.imag)).astype(x.dtype)


def _squared_difference(x: Any, y: Any) -> Any:
    return jnp.conj(x - y) * (x - y)


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: function(*map(jnp.asarray, inputs))


# Element-wise functions of complex numbers whose rules are for real ones.
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Acos": jnp.arccos,
    "Acosh": jnp.arccosh,
    "Asin": jnp.arcsin,
    "Asinh": jnp.arcsinh,
    "Atan": jnp.arctan,
    "Atanh": jnp.arctanh,
    "Cosh": jnp.cosh,
    "Expm1": jnp.expm1,
    "Inv": lambda x: 1 / x,
    "InvGrad": lambda y, dy: -dy * jnp.conj(y) ** 2,
    "Log1p": jnp.log1p,
    "RealDiv": jnp.divide,
    "Reciprocal": lambda x: 1 / x,
    "ReciprocalGrad": lambda y, dy: -dy * jnp.conj(y) ** 2,
    "Round": _round,
    "Rsqrt": lambda x: 1 / jnp.sqrt(x),
    "RsqrtGrad": lambda y, dy: dy * jnp.conj(y) ** 3 * -0.5,
    "Sigmoid": lambda x: 1 / (1 + jnp.exp(-x)),
    "SigmoidGrad": lambda y, dy: (1 - y) * y * dy,
    "Sinh": jnp.sinh,
    "SqrtGrad": lambda y, dy: dy * 0.5 / jnp.conj(y),
    "SquaredDifference": _squared_difference,
    "Tan": jnp.tan,
    "TanhGrad": lambda y, dy: (1 - y * y) * dy,
}


def _spectrum(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        return function(jnp.asarray(x), axes=range(-axes, 0)).astype(x.dtype)

    return run


def _real_spectrum(function: Callable[..., Any], axes: int, dtype: Any) -> Callable[..., Any]:
    def run(x: Any, length: np.ndarray) -> Any:
        sizes = [int(n) for n in length]
        return function(jnp.asarray(x), sizes, axes=range(-axes, 0)).astype(dtype)

    return run


KERNELS: dict[str, Callable[..., Any]] = {
    "Angle": _part(jnp.angle),
    "BatchMatMul": _product,
    "BatchMatMulV2": _product,
    "Complex": _complex,
    "ComplexAbs": _part(jnp.abs),
    "Conj": lambda x: jnp.conj(jnp.asarray(x)),
    "ConjugateTranspose": _conjugate_transpose,
    "Imag": _part(jnp.imag),
    "MatMul": _transposed_product,
    "Mean": _reduced(_mean),
    "Prod": _reduced(jnp.prod),
    "Real": _part(jnp.real),
    "Sum": _reduced(jnp.sum),
    **{name: _on_arrays(function) for name, function in _ELEMENTWISE.items()},
    **{f"FFT{d}": _spectrum(jnp.fft.fftn, n) for n, d in enumerate(("", "2D", "3D"), 1)},
    **{f"IFFT{d}": _spectrum(jnp.fft.ifftn, n) for n, d in enumerate(("", "2D", "3D"), 1)},
    **{
        f"RFFT{d}": _real_spectrum(jnp.fft.rfftn, n, np.complex64)
        for n, d in enumerate(("", "2D", "3D"), 1)
    },
    **{
        f"IRFFT{d}": _real_spectrum(jnp.fft.irfftn, n, np.float32)
        for n, d in enumerate(("", "2D", "3D"), 1)
    },
}
