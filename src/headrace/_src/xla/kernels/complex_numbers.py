"""Complex numbers and spectra. In: inputs as an op's kernel has them. Out: outputs.

Element-wise ops on complex numbers have their rules; the ops here convert, sum or transform them.
A function returns NotImplemented for real numbers where the rule serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

__all__ = ["KERNELS"]


def _complex(real: Any, imaginary: Any, *, Tout: Any) -> Any:
    return (jnp.asarray(real) + 1j * jnp.asarray(imaginary)).astype(Tout.numpy)


def _part(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, Tout: function(jnp.asarray(x)).astype(Tout.numpy)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, axes: np.ndarray, *, keep_dims: bool) -> Any:
        x = jnp.asarray(x)
        if not jnp.iscomplexobj(x):
            return NotImplemented
        along = tuple(int(a) for a in axes.reshape(-1))
        return function(x, along, keepdims=keep_dims)

    return run


def _product(x: Any, y: Any, adjoint_x: bool, adjoint_y: bool) -> Any:
    x, y = jnp.asarray(x), jnp.asarray(y)
    if not jnp.iscomplexobj(x):
        return NotImplemented
    x = jnp.conj(jnp.swapaxes(x, -1, -2)) if adjoint_x else x
    y = jnp.conj(jnp.swapaxes(y, -1, -2)) if adjoint_y else y
    return jnp.matmul(x, y)


def _transposed_product(x: Any, y: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    x = jnp.swapaxes(jnp.asarray(x), -1, -2) if transpose_a else x
    y = jnp.swapaxes(jnp.asarray(y), -1, -2) if transpose_b else y
    return _product(x, y, False, False)


def _conjugate_transpose(x: Any, permutation: np.ndarray) -> Any:
    x = jnp.asarray(x)
    if not jnp.iscomplexobj(x):
        return NotImplemented
    return jnp.conj(jnp.transpose(x, [int(d) for d in permutation]))


def _round(x: Any) -> Any:
    x = jnp.asarray(x)
    if not jnp.iscomplexobj(x):
        return NotImplemented
    return (jnp.rint(x.real) + 1j * jnp.rint(x.imag)).astype(x.dtype)


def _squared_difference(x: Any, y: Any) -> Any:
    x, y = jnp.asarray(x), jnp.asarray(y)
    if not jnp.iscomplexobj(x):
        return NotImplemented
    return jnp.conj(x - y) * (x - y)


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
    "BatchMatMul": lambda x, y, *, adj_x, adj_y: _product(x, y, adj_x, adj_y),
    "BatchMatMulV2": lambda x, y, *, adj_x, adj_y: _product(x, y, adj_x, adj_y),
    "Complex": _complex,
    "ComplexAbs": _part(jnp.abs),
    "Conj": lambda x: jnp.conj(jnp.asarray(x)),
    "ConjugateTranspose": _conjugate_transpose,
    "Imag": _part(jnp.imag),
    "MatMul": _transposed_product,
    "Mean": _reduced(jnp.mean),
    "Prod": _reduced(jnp.prod),
    "Real": _part(jnp.real),
    "Round": _round,
    "SquaredDifference": _squared_difference,
    "Sum": _reduced(jnp.sum),
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
