"""Fourier transforms over the last one, two or three dimensions.

Kernels are NumPy's (pocketfft), which keep single precision. The transforms of real signals give
or take only the non-redundant half of the last dimension; `fft_length` is the signal's size there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import generated
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["irfft", "irfft2d", "irfft3d", "rfft", "rfft2d", "rfft3d"]


_SHORTEST = 64  # the shortest row that generated code transforms

# Kernels ---------------------------------------------------------------------------------------


def _check_rank(x: np.ndarray, rank: int) -> None:
    if x.ndim < rank:
        raise ValueError(f"Input must have rank of at least {rank} but got: {list(x.shape)}")


def _transform(function: Callable[..., Any], rank: int) -> Callable[[np.ndarray], np.ndarray]:
    axes, inverse = tuple(range(-rank, 0)), function is np.fft.ifftn

    def kernel(x: np.ndarray) -> np.ndarray:
        _check_rank(x, rank)
        if not x.size:
            return x
        found = _generated_transform(x, rank, inverse)
        return function(x, axes=axes) if found is None else found

    return kernel


def _generated_transform(x: np.ndarray, rank: int, inverse: bool) -> np.ndarray | None:
    """Transform a large array with generated code, for lengths that are powers of two; return None
    for others. Real numbers are transformed as complex ones.
    """
    lengths = x.shape[x.ndim - rank :]
    if x.size < generated.LEAST or any(n < _SHORTEST or n & (n - 1) for n in lengths):
        return None
    run = generated.fourier("float64" if x.dtype == np.complex128 else "float32", inverse)
    if run is None:
        return None
    x = x if x.dtype.kind == "c" else x.astype(np.complex64)
    x, result = np.ascontiguousarray(x), empty_aligned(x.shape, x.dtype)
    outer, inner = math.prod(x.shape[: x.ndim - rank]), math.prod(lengths)
    for n in lengths:
        inner //= n
        run(x.reshape(outer, n, inner), result.reshape(outer, n, inner))
        x, outer = result, outer * n
    return result


def _lengths(x: np.ndarray, fft_length: np.ndarray, rank: int) -> list[int]:
    _check_rank(x, rank)
    if fft_length.shape != (rank,):
        raise ValueError(f"fft_length must have shape [{rank}]")
    lengths = fft_length.tolist()
    if min(lengths) < 0:
        raise ValueError(f"fft_length must be >= 0, but got: {lengths}")
    return lengths


def _cut(x: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Return the first `sizes` elements of the last dimensions; x must have that many."""
    found = x.shape[x.ndim - len(sizes) :]
    for i, (have, want) in enumerate(zip(found, sizes, strict=True)):
        if have < want:
            raise ValueError(
                f"Input dimension {i} must have length of at least {want} but got: {have}"
            )
    return x[(..., *(slice(n) for n in sizes))]


def _half(length: int) -> int:
    """Return the number of frequencies of a real signal of this length; the others mirror them."""
    return length // 2 + 1 if length else 0


def _real_transform(rank: int) -> Callable[..., np.ndarray]:
    axes = tuple(range(-rank, 0))

    def kernel(x: np.ndarray, fft_length: np.ndarray) -> np.ndarray:
        lengths = _lengths(x, fft_length, rank)
        signal = _cut(x, lengths)
        if not signal.size:
            return np.zeros((*signal.shape[:-1], _half(lengths[-1])), np.complex64)
        found = _generated_transform(signal, rank, inverse=False)
        if found is not None:
            return np.ascontiguousarray(found[..., : _half(lengths[-1])])
        return np.fft.rfftn(signal, axes=axes).astype(np.complex64, copy=False)

    return kernel


def _inverse_real_transform(rank: int) -> Callable[..., np.ndarray]:
    axes = tuple(range(-rank, 0))

    def kernel(x: np.ndarray, fft_length: np.ndarray) -> np.ndarray:
        lengths = _lengths(x, fft_length, rank)
        check_room((*x.shape[: x.ndim - rank], *lengths), np.float32, "fft_length")
        half = _cut(x, [*lengths[:-1], lengths[-1] // 2 + 1])
        if not half.size or not lengths[-1]:
            return np.zeros((*half.shape[:-1], lengths[-1]), np.float32)
        return np.fft.irfftn(half, s=lengths, axes=axes).astype(np.float32, copy=False)

    return kernel


# Gradients -------------------------------------------------------------------------------------


def _count(b: OpBuilder, x: Any, rank: int, dtype: Any) -> Any:
    """Return the number of elements that one transform of `x` mixes, in `dtype`."""
    return b.cast(b.reduce_prod(b.shape(x)[-rank:]), dtype)


def _forward_gradient(inverse: str, rank: int) -> Any:
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        back = getattr(b, inverse)(grad)
        return b.multiply(back, _count(b, grad, rank, grad.dtype))

    return gradient


def _inverse_gradient(forward: str, rank: int) -> Any:
    @counted(13)
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        ahead = getattr(b, forward)(grad)
        return b.divide(ahead, _count(b, grad, rank, grad.dtype))

    return gradient


def _fit(b: OpBuilder, x: Any, shape: Any) -> Any:
    """Return `x` padded with zeros at the end of each dimension to `shape`, which is no smaller."""
    missing = b.subtract(shape, b.shape(x))
    return b.pad(x, b.stack([b.zeros_like(missing), missing], axis=1))


def _unknown_rank(op: Any, nodes: int) -> int:
    """Count the operations that TensorFlow adds to compute a rank, if it isn't known."""
    return nodes if op.inputs[0].shape.ndims is None else 0


def _real_gradient(inverse: str, rank: int) -> Any:
    """Return the real part of the inverse transform of the half spectrum's gradient, times the
    size.
    """

    @counted(lambda op, grad: (49 if rank == 1 else 107) + _unknown_rank(op, 37))
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        x, length = op.inputs
        batch = b.shape(x)[:-rank]
        whole = _fit(b, grad, b.concat([batch, length], axis=0))
        back = b.real(getattr(b, inverse)(whole))
        signal = b.multiply(back, _count(b, back, rank, back.dtype))
        return _fit(b, signal, b.shape(x)), None

    return gradient


def _inverse_real_gradient(forward: str, rank: int) -> Any:
    """Return the transform of the signal's gradient; mirrored frequencies count twice."""

    @counted(lambda op, grad: 44 + _unknown_rank(op, 27))
    def gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
        x, length = op.inputs
        spectrum = getattr(b, forward)(grad, length)
        last = length[-1]
        place = b.range(b.floordiv(last, 2) + 1)
        alone = b.logical_or(b.equal(place, 0), b.equal(place * 2, last))
        weight = b.where(alone, b.ones_like(place), 2 * b.ones_like(place))
        scale = b.cast(weight, dtypes.float32) / _count(b, grad, rank, dtypes.float32)
        return _fit(b, spectrum * b.cast(scale, dtypes.complex64), b.shape(x)), None

    return gradient


# Ops -------------------------------------------------------------------------------------------


def _real_infer(rank: int, halve: bool) -> Any:
    """The last `rank` dimensions are fft_length; the last one is halved for half spectra."""

    def rule(c: Any, x: TensorShape, length: TensorShape) -> Any:
        infer.with_rank_at_least(x, rank)
        size = infer.with_rank(length, 1).as_list()[0]
        if size not in (None, rank):
            raise ValueError(f"Dimension must be {rank} but is {size}")
        if x.sizes is None:
            return None
        lengths = c.ints(1) or [None] * rank
        last = lengths[-1]
        if halve and last is not None:
            last = _half(last)
        return (*x.sizes[: len(x.sizes) - rank], *lengths[:-1], last)

    return rule


def _complex_op(
    op_type: str, rank: int, transform: Callable[..., Any], gradient: Any, *samples: Sample
) -> Any:
    """Define a transform of complex numbers over the last `rank` dimensions."""
    return define(
        op_type,
        "input: Tcomplex -> output: Tcomplex",
        "Tcomplex: {complexes} = complex64",
        infer=lambda c, x: infer.with_rank_at_least(x, rank),
        kernel=_transform(transform, rank),
        gradient=gradient,
        samples=samples,
    )


def _real_op(op_type: str, rank: int, inverse: str, *samples: Sample) -> Any:
    """Define a transform of real signals to half spectra; `inverse` builds the complex inverse."""
    return define(
        op_type,
        "input: float32, fft_length: int32 -> output: complex64",
        infer=_real_infer(rank, halve=True),
        kernel=_real_transform(rank),
        gradient=_real_gradient(inverse, rank),
        samples=samples,
    )


def _inverse_real_op(op_type: str, rank: int, forward: str, *samples: Sample) -> Any:
    """Define a transform of half spectra to real signals; `forward` builds its inverse."""
    return define(
        op_type,
        "input: complex64, fft_length: int32 -> output: float32",
        infer=_real_infer(rank, halve=False),
        kernel=_inverse_real_transform(rank),
        gradient=_inverse_real_gradient(forward, rank),
        samples=samples,
    )


@export("fft", "signal.fft", "spectral.fft")
@_complex_op(
    "FFT", 1, np.fft.fftn, _forward_gradient("ifft", 1), Sample(r(5)), Sample(r(2, 4)), Sample(r(0))
)
def fft(input, name=None):
    """Return the discrete Fourier transform over the last dimension."""


@export("ifft", "signal.ifft", "spectral.ifft")
@_complex_op(
    "IFFT",
    1,
    np.fft.ifftn,
    _inverse_gradient("fft", 1),
    Sample(r(5)),
    Sample(r(2, 4)),
    Sample(r(0)),
)
def ifft(input, name=None):
    """Return the inverse of tf.fft."""


@export("fft2d", "signal.fft2d", "spectral.fft2d")
@_complex_op(
    "FFT2D", 2, np.fft.fftn, _forward_gradient("ifft2d", 2), Sample(r(3, 4)), Sample(r(2, 4, 3))
)
def fft2d(input, name=None):
    """Return the discrete Fourier transform over the last two dimensions."""


@export("ifft2d", "signal.ifft2d", "spectral.ifft2d")
@_complex_op(
    "IFFT2D", 2, np.fft.ifftn, _inverse_gradient("fft2d", 2), Sample(r(3, 4)), Sample(r(2, 4, 3))
)
def ifft2d(input, name=None):
    """Return the inverse of tf.fft2d."""


@export("fft3d", "signal.fft3d", "spectral.fft3d")
@_complex_op(
    "FFT3D",
    3,
    np.fft.fftn,
    _forward_gradient("ifft3d", 3),
    Sample(r(2, 3, 4)),
    Sample(r(2, 2, 4, 3)),
)
def fft3d(input, name=None):
    """Return the discrete Fourier transform over the last three dimensions."""


@export("ifft3d", "signal.ifft3d", "spectral.ifft3d")
@_complex_op(
    "IFFT3D",
    3,
    np.fft.ifftn,
    _inverse_gradient("fft3d", 3),
    Sample(r(2, 3, 4)),
    Sample(r(2, 2, 4, 3)),
)
def ifft3d(input, name=None):
    """Return the inverse of tf.fft3d."""


@_real_op("RFFT", 1, "ifft", Sample(r(6), [6]), Sample(r(2, 5), [4]), Sample(r(0, 3), [3]))
def rfft_op(input, fft_length, name=None):
    """Return the half spectrum of a real signal."""


@_inverse_real_op(
    "IRFFT", 1, "rfft_op", Sample(r(4), [6]), Sample(r(2, 5), [5]), Sample(r(0, 3), [3])
)
def irfft_op(input, fft_length, name=None):
    """Return the real signal with the given half spectrum."""


@_real_op("RFFT2D", 2, "ifft2d", Sample(r(3, 6), [3, 6]), Sample(r(2, 4, 5), [3, 5]))
def rfft2d_op(input, fft_length, name=None):
    """Return the half spectrum of a real signal in two dimensions."""


@_inverse_real_op("IRFFT2D", 2, "rfft2d_op", Sample(r(3, 4), [3, 6]), Sample(r(2, 4, 3), [4, 5]))
def irfft2d_op(input, fft_length, name=None):
    """Return the real signal in two dimensions with the given half spectrum."""


@_real_op("RFFT3D", 3, "ifft3d", Sample(r(2, 3, 6), [2, 3, 6]), Sample(r(2, 2, 4, 5), [2, 3, 5]))
def rfft3d_op(input, fft_length, name=None):
    """Return the half spectrum of a real signal in three dimensions."""


@_inverse_real_op(
    "IRFFT3D", 3, "rfft3d_op", Sample(r(2, 3, 4), [2, 3, 6]), Sample(r(2, 2, 4, 3), [2, 4, 5])
)
def irfft3d_op(input, fft_length, name=None):
    """Return the real signal in three dimensions with the given half spectrum."""


# Public functions ------------------------------------------------------------------------------


def _whole_length(x: Any, rank: int, is_half: bool) -> Any:
    """Return the fft_length of a signal, or of a half spectrum, whose last dimension is
    then even.
    """
    sizes = x.shape.with_rank_at_least(rank).sizes
    if sizes is not None and None not in sizes[-rank:]:
        lengths = list(sizes[-rank:])
        if is_half:
            lengths[-1] = max(0, 2 * (lengths[-1] - 1))
        return b.constant(lengths, dtypes.int32)
    length = b.shape(x)[-rank:]
    if not is_half:
        return length
    parts = b.unstack(length, rank)
    parts[-1] = b.maximum(0, 2 * (parts[-1] - 1))
    return b.stack(parts)


def _padded(x: Any, rank: int, length: Any, is_half: bool) -> Any:
    """Return `x` padded with zeros at the end of those last dimensions that are shorter than
    `length`.
    """
    known = constant_value(length)
    sizes = x.shape.sizes
    if sizes is not None and None not in sizes[-rank:] and known is not None:
        wanted = known.tolist()
        if is_half:
            wanted[-1] = wanted[-1] // 2 + 1
        missing = [max(0, w - n) for w, n in zip(wanted, sizes[-rank:], strict=True)]
        if not any(missing):
            return x
        return b.pad(x, [[0, 0]] * (len(sizes) - rank) + [[0, m] for m in missing])
    total = b.rank(x)
    found = b.shape(x)[-rank:]
    outer = b.zeros([b.maximum(0, total - rank)], dtypes.int32)
    wanted = length
    if is_half:
        wanted = b.concat([length[:-1], length[-1:] // 2 + 1], 0)
    after = b.concat([outer, b.maximum(0, wanted - found)], 0)
    return b.pad(x, b.stack([b.zeros_like(after), after], axis=1))


def _real_function(rank: int, op: Any, scope: str, is_half: bool) -> Any:
    source = dtypes.complex64 if is_half else dtypes.float32

    def call(input_tensor: Any, fft_length: Any, name: str | None) -> Any:
        with name_scope(name, scope, [input_tensor, fft_length]) as full:
            x = convert_to_tensor(input_tensor, source)
            x.shape.with_rank_at_least(rank)
            if fft_length is None:
                fft_length = _whole_length(x, rank, is_half)
            else:
                fft_length = convert_to_tensor(fft_length, dtypes.int32)
            return op(_padded(x, rank, fft_length, is_half), fft_length, name=full)

    return call


_rfft = _real_function(1, rfft_op, "rfft", is_half=False)
_rfft2d = _real_function(2, rfft2d_op, "rfft2d", is_half=False)
_rfft3d = _real_function(3, rfft3d_op, "rfft3d", is_half=False)
_irfft = _real_function(1, irfft_op, "irfft", is_half=True)
_irfft2d = _real_function(2, irfft2d_op, "irfft2d", is_half=True)
_irfft3d = _real_function(3, irfft3d_op, "irfft3d", is_half=True)


@composed
@export("signal.rfft", "spectral.rfft")
def rfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Return the half spectrum of real signals, padded or cut to `fft_length`."""
    return _rfft(input_tensor, fft_length, name)


@composed
@export("signal.rfft2d", "spectral.rfft2d")
def rfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Return the half spectrum of real signals in two dimensions."""
    return _rfft2d(input_tensor, fft_length, name)


@composed
@export("signal.rfft3d", "spectral.rfft3d")
def rfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Return the half spectrum of real signals in three dimensions."""
    return _rfft3d(input_tensor, fft_length, name)


@composed
@export("signal.irfft", "spectral.irfft")
def irfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Return the real signals of half spectra; their length is even unless `fft_length`
    is given.
    """
    return _irfft(input_tensor, fft_length, name)


@composed
@export("signal.irfft2d", "spectral.irfft2d")
def irfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Return the real signals in two dimensions of half spectra."""
    return _irfft2d(input_tensor, fft_length, name)


@composed
@export("signal.irfft3d", "spectral.irfft3d")
def irfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Return the real signals in three dimensions of half spectra."""
    return _irfft3d(input_tensor, fft_length, name)


def _shifted(x: Any, axes: Any, name: str | None, scope: str, sign: int) -> Any:
    with name_scope(name, scope) as full:
        x = convert_to_tensor(x)
        sizes = x.shape.sizes
        if axes is None:
            axes = b.range(b.rank(x)) if sizes is None else list(range(len(sizes)))
        if isinstance(axes, int):
            axes = [axes]
        if isinstance(axes, list | tuple) and sizes is not None and None not in sizes:
            shift = [sign * (sizes[a] // 2) for a in axes]
        else:
            half = b.gather(b.shape(x), axes) // 2
            shift = half if sign > 0 else -half
        return b.roll(x, shift, axes, name=full)


@composed
@export("signal.fftshift")
def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """Return `x` with the zero frequency moved to the middle of each of `axes` (default: all)."""
    return _shifted(x, axes, name, "fftshift", 1)


@composed
@export("signal.ifftshift")
def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """Return the inverse of tf.signal.fftshift."""
    return _shifted(x, axes, name, "ifftshift", -1)
