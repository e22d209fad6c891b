"""Composed signal processing: cosine transforms, windows, frames, short-time spectra, mel scales.
Signals are in the last dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.linalg.fft import irfft, rfft

__all__ = [
    "dct",
    "frame",
    "hamming_window",
    "hann_window",
    "idct",
    "inverse_stft",
    "overlap_and_add",
    "stft",
]


# Cosine transforms -----------------------------------------------------------------------------


def _check_dct(type_: int, n: int | None, axis: int, norm: str | None, size: int | None) -> None:
    if axis != -1:
        raise NotImplementedError(f"axis must be -1. Got: {axis}")
    if n is not None and n < 1:
        raise ValueError("n should be a positive integer or None")
    if type_ not in (1, 2, 3):
        raise ValueError("Only Types I, II and III (I)DCT are supported.")
    if type_ == 1:
        if norm == "ortho":
            raise ValueError("Normalization is not supported for the Type-I DCT.")
        if (size if n is None else n) == 1:
            raise ValueError("Type-I DCT requires the dimension to be greater than one.")
    if norm not in (None, "ortho"):
        raise ValueError(f"Unknown normalization. Expected None or 'ortho', got: {norm}")


@composed
@export("signal.dct", "spectral.dct")
def dct(
    input: Any,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the discrete cosine transform I, II or III, of `n` elements if given.

    It is only scaled if `norm` is "ortho".

    type: 1, 2 or 3.
    """
    with name_scope(name, "dct", [input]):
        x = convert_to_tensor(input, dtypes.float32)
        _check_dct(type, n, axis, norm, x.shape.as_list()[-1] if x.shape.rank else None)
        if n is not None:
            x = _resized(x, n)
        size = x.shape.as_list()[-1] if x.shape.rank is not None else None
        if size is None:
            size = b.shape(x)[-1]
        count = b.cast(size, dtypes.float32)
        if type == 1:
            return b.real(rfft(b.concat([x, x[..., -2:0:-1]], -1)))
        if type == 2:
            return _dct2(x, size, count, norm)
        return _dct3(x, size, count, norm)


def _resized(x: Any, size: int) -> Any:
    """Return the first `size` elements of the last dimension, padded with zeros."""
    found = x.shape.as_list()[-1]
    if found is None:
        after = b.maximum(0, size - b.shape(x)[-1])
        return b.pad(x, [*[[0, 0]] * (x.shape.rank - 1), [0, after]])[..., :size]
    if found >= size:
        return x if found == size else x[..., 0:size]
    return b.pad(x, b.constant([[0, 0]] * (x.shape.rank - 1) + [[0, size - found]]))


def _turned(places: Any, count: Any) -> Any:
    """2 e^(i places pi / 2 count)."""
    angle = places * math.pi * 0.5 / count
    return 2.0 * b.exp(b.complex(0.0, angle))


def _weights(first: Any, others: Any, size: Any) -> Any:
    """Return a vector of `first` followed by `others`."""
    return b.pad(b.expand_dims(first, 0), [[0, size - 1]], constant_values=others)


def _dct2(x: Any, size: Any, count: Any, norm: str | None) -> Any:
    scale = _turned(-b.range(count), count)
    result = b.real(rfft(x, fft_length=[2 * size])[..., :size] * scale)
    if norm is None:
        return result
    first = 0.5 * b.rsqrt(count)
    return result * _weights(first, first * b.sqrt(2.0), size)


def _dct3(x: Any, size: Any, count: Any, norm: str | None) -> Any:
    if norm is None:
        x = x * count
    else:
        first = b.sqrt(count)
        x = x * _weights(first, first * b.sqrt(0.5), size)
    scale = _turned(b.range(count), count)
    return irfft(scale * b.complex(x, 0.0), fft_length=[2 * size])[..., :size]


@composed
@export("signal.idct", "spectral.idct")
def idct(
    input: Any,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of tf.signal.dct, up to a factor unless `norm` is "ortho".

    type: 1, 2 or 3, that of the transform to invert.
    """
    if type not in (1, 2, 3):
        raise ValueError("Only Types I, II and III (I)DCT are supported.")
    return dct(input, type={1: 1, 2: 3, 3: 2}[type], n=n, axis=axis, norm=norm, name=name)


# Windows ---------------------------------------------------------------------------------------


def _cosine_window(
    scope: str, name: str | None, length: Any, periodic: Any, dtype: Any, high: float, low: float
) -> Any:
    """Return high - low cos(2 pi i / n), where n is the last index; a periodic window of even
    length ends one element before it.
    """
    kind = as_dtype(dtype)
    if not kind.is_floating:
        raise ValueError(f"dtype must be a floating point type. Found {kind!r}")
    with name_scope(name, scope, [length, periodic]):
        length = convert_to_tensor(length, dtypes.int32, "window_length")
        length.shape.assert_has_rank(0)
        known = constant_value(length)
        if known is not None and known == 1:
            return b.ones([1], dtype=kind)
        periodic = b.cast(convert_to_tensor(periodic, dtypes.bool, "periodic"), dtypes.int32)
        periodic.shape.assert_has_rank(0)
        is_even = 1 - b.floormod(length, 2)
        last = b.cast(length + periodic * is_even - 1, kind)
        places = b.cast(b.range(length), kind)
        angle = b.constant(2 * math.pi, kind) * places / last
        return high - low * b.cos(angle)


@composed
@export("signal.hann_window")
def hann_window(
    window_length: Any,
    periodic: Any = True,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return a Hann window: half a cosine's period, raised to [0, 1].

    periodic: whether the window repeats with period window_length, for spectral analysis, or is
    symmetric.
    """
    return _cosine_window("hann_window", name, window_length, periodic, dtype, 0.5, 0.5)


@composed
@export("signal.hamming_window")
def hamming_window(
    window_length: Any,
    periodic: Any = True,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return a Hamming window: a cosine between 0.08 and 1.

    periodic: whether the window repeats with period window_length, for spectral analysis, or is
    symmetric.
    """
    return _cosine_window("hamming_window", name, window_length, periodic, dtype, 0.54, 0.46)


# Frames ----------------------------------------------------------------------------------------


def _size_of(x: Any, axis: int) -> Any:
    """Return the size of a dimension, as a number if it is known."""
    size = x.shape.as_list()[axis]
    return b.shape(x)[axis] if size is None else size


def _static(value: Any) -> Any:
    """Return a scalar argument as a Python integer if its value is known, else as a tensor."""
    if isinstance(value, int | np.integer):
        return int(value)
    value = convert_to_tensor(value, dtypes.int32)
    known = constant_value(value)
    return value if known is None else int(known)


def _at_least_zero(value: Any) -> Any:
    return max(0, value) if isinstance(value, int) else b.maximum(0, value)


@composed
@export("signal.frame")
def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Return the frames of a signal: dimension `axis` becomes [frames, frame_length].

    frame_step: the distance between the starts of frames. `pad_end` lets frames extend beyond the
    end, which is padded with `pad_value`.
    """
    with name_scope(name, "frame", [signal, frame_length, frame_step, pad_value]):
        signal = convert_to_tensor(signal, name="signal")
        signal.shape.with_rank_at_least(1)
        rank = signal.shape.rank
        if rank is None:
            raise ValueError("the rank of the signal must be known")
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is out of range for a signal of rank {rank}")
        axis %= rank
        length, step, size = _static(frame_length), _static(frame_step), _size_of(signal, axis)
        if pad_end:
            count = -(-size // step)
            missing = _at_least_zero(length + step * (count - 1) - size)
            paddings = [[0, 0]] * rank
            paddings[axis] = [0, missing]
            signal = b.pad(signal, paddings, constant_values=pad_value)
        else:
            count = _at_least_zero(1 + (size - length) // step)
        places = b.expand_dims(b.range(count) * step, 1) + b.expand_dims(b.range(length), 0)
        return b.gather(signal, places, axis=axis)


@composed
@export("signal.overlap_and_add")
def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> Tensor:
    """Return the signal [..., N] that sums frames [..., frames, frame_length], each shifted by
    `frame_step` from the previous one.
    """
    with name_scope(name, "overlap_and_add", [signal, frame_step]):
        signal = convert_to_tensor(signal, name="signal")
        signal.shape.with_rank_at_least(2)
        if signal.shape.rank is None:
            raise ValueError("the rank of the signal must be known")
        step_tensor = convert_to_tensor(frame_step, name="frame_step")
        step_tensor.shape.assert_has_rank(0)
        if not step_tensor.dtype.is_integer:
            raise ValueError(f"frame_step must be an integer. Got {step_tensor.dtype!r}")
        step = _static(frame_step)
        count, length = _size_of(signal, -2), _size_of(signal, -1)
        size = length + step * (count - 1)
        places = b.expand_dims(b.range(count) * step, 1) + b.expand_dims(b.range(length), 0)
        batch = signal.shape[:-2]
        outer = b.shape(signal)[:-2]
        flat = b.reshape(signal, b.stack([-1, count * length]))
        summed = b.unsorted_segment_sum(b.transpose(flat), b.reshape(places, [-1]), size)
        result = b.reshape(b.transpose(summed), b.concat([outer, [size]], 0))
        result.set_shape(batch.concatenate(size if isinstance(size, int) else None))
        return result


# Short-time spectra ----------------------------------------------------------------------------


def _power_of_two(length: Any) -> Any:
    """Return the smallest power of two that is at least `length`."""
    if isinstance(length, int):
        return 2 ** math.ceil(math.log(length) / math.log(2.0))
    logs = b.log(b.cast(length, dtypes.float32)) / math.log(2.0)
    return b.cast(b.pow(2.0, b.ceil(logs)), dtypes.int32)


@composed
@export("signal.stft")
def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the half spectra [..., frames, fft_length // 2 + 1] of the windowed frames of signals.

    fft_length defaults to the smallest power of two that holds a frame. window_fn: a function of
    the frame length and a `dtype`, or None for no window. pad_end: see tf.signal.frame.
    """
    with name_scope(name, "stft", [signals, frame_length, frame_step]):
        signals = convert_to_tensor(signals, name="signals")
        signals.shape.with_rank_at_least(1)
        length = _static(frame_length)
        size = _power_of_two(length) if fft_length is None else _static(fft_length)
        frames = frame(signals, length, frame_step, pad_end=pad_end)
        if window_fn is not None:
            frames = frames * window_fn(length, dtype=frames.dtype)
        return rfft(frames, [size])


@composed
@export("signal.inverse_stft")
def inverse_stft(
    stfts: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    name: str | None = None,
) -> Tensor:
    """Return the signals of short-time spectra. With the window of inverse_stft_window_fn this is
    the inverse of tf.signal.stft, provided that frames overlap enough.

    stfts: [..., frames, fft_length // 2 + 1]. The other arguments are those of tf.signal.stft.
    """
    with name_scope(name, "inverse_stft", [stfts]):
        stfts = convert_to_tensor(stfts, name="stfts")
        stfts.shape.with_rank_at_least(2)
        length = _static(frame_length)
        size = _power_of_two(length) if fft_length is None else _static(fft_length)
        frames = irfft(stfts, [size])
        if isinstance(length, int) and isinstance(size, int):
            missing = length - size
        else:
            missing = b.maximum(0, length - b.shape(frames)[-1])
        frames = frames[..., :length]
        if not isinstance(missing, int) or missing > 0:
            outer = [[0, 0]] * (len(frames.shape) - 1)
            frames = b.pad(frames, [*outer, [0, missing]])
        if window_fn is not None:
            frames = frames * window_fn(length, dtype=frames.dtype)
        return overlap_and_add(frames, frame_step)


@export("signal.inverse_stft_window_fn")
def inverse_stft_window_fn(
    frame_step: Any,
    forward_window_fn: Callable[..., Any] = hann_window,
    name: str | None = None,
) -> Callable[..., Any]:
    """Return a window function for tf.signal.inverse_stft that undoes `forward_window_fn`."""
    with name_scope(name, "inverse_stft_window_fn", [forward_window_fn]):
        step = _static(frame_step)

    def window(frame_length: Any, dtype: Any) -> Any:
        """The forward window divided by the sum of its squares over all overlapping frames."""
        with name_scope(name, "inverse_stft_window_fn", [forward_window_fn]):
            length = _static(frame_length)
            forward = forward_window_fn(length, dtype=dtype)
            overlaps = -(-length // step)
            padded = b.pad(b.square(forward), [[0, overlaps * step - length]])
            by_step = b.reshape(padded, b.stack([overlaps, step]))
            total = b.reduce_sum(by_step, 0, keepdims=True)
            tiled = b.reshape(b.tile(total, b.stack([overlaps, 1])), [-1])
            return forward / tiled[:length]

    return window


# Mel scale -------------------------------------------------------------------------------------

_MEL_BREAK_HERTZ = 700.0
_MEL_HIGH_Q = 1127.0


def _check_mel(bins: int, rate: Any, low: float, high: float, dtype: Any) -> None:
    if bins <= 0:
        raise ValueError(f"num_mel_bins must be positive. Got: {bins}")
    if low < 0.0:
        raise ValueError(f"lower_edge_hertz must be non-negative. Got: {low}")
    if low >= high:
        raise ValueError(f"lower_edge_hertz {low} >= upper_edge_hertz {high}")
    if isinstance(rate, int | float):
        if rate <= 0.0:
            raise ValueError(f"sample_rate must be positive. Got: {rate}")
        if high > rate / 2:
            raise ValueError(
                "upper_edge_hertz must not be larger than the Nyquist frequency (sample_rate / 2). "
                f"Got: {high} for sample_rate: {rate}"
            )
    if not dtype.is_floating:
        raise ValueError(f"dtype must be a floating point type. Got: {dtype!r}")


def _mel(hertz: Any) -> Any:
    return _MEL_HIGH_Q * b.log(1.0 + hertz / _MEL_BREAK_HERTZ)


@composed
@export("signal.linear_to_mel_weight_matrix")
def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: Any = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return the matrix [num_spectrogram_bins, num_mel_bins] that maps linear spectra to the mel
    scale: triangles with peaks and feet evenly spaced in mels.

    sample_rate: of the signal, in hertz. lower_edge_hertz and upper_edge_hertz: the range that the
    mel bins cover.
    """
    kind = as_dtype(dtype)
    with name_scope(name, "linear_to_mel_weight_matrix"):
        rate = sample_rate
        if not isinstance(rate, int | float):
            known = constant_value(convert_to_tensor(rate))
            rate = rate if known is None else known.item()
        _check_mel(num_mel_bins, rate, lower_edge_hertz, upper_edge_hertz, kind)
        nyquist = b.cast(rate, kind) / 2.0
        low, high, zero = (
            convert_to_tensor(v, kind) for v in (lower_edge_hertz, upper_edge_hertz, 0.0)
        )
        # The bin of frequency zero has weight 0.
        hertz = b.linspace(zero, nyquist, num_spectrogram_bins)[1:]
        mels = b.expand_dims(_mel(hertz), 1)
        edges = b.linspace(_mel(low), _mel(high), num_mel_bins + 2)
        left, centre, right = edges[:-2], edges[1:-1], edges[2:]
        rising = (mels - left) / (centre - left)
        falling = (right - mels) / (right - centre)
        weights = b.maximum(zero, b.minimum(rising, falling))
        return b.pad(weights, [[1, 0], [0, 0]])


@composed
@export("signal.mfccs_from_log_mel_spectrograms")
def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Tensor:
    """Return the mel-frequency cepstral coefficients: the cosine transform of log mel spectra."""
    with name_scope(name, "mfccs_from_log_mel_spectrograms", [log_mel_spectrograms]):
        x = convert_to_tensor(log_mel_spectrograms)
        if x.shape.rank is None:
            raise ValueError("the rank of log_mel_spectrograms must be known")
        bins = _size_of(x, -1)
        if isinstance(bins, int) and bins == 0:
            raise ValueError(f"num_mel_bins must be positive. Got: {log_mel_spectrograms}")
        return dct(x, type=2) * b.rsqrt(b.cast(bins, dtypes.float32) * 2.0)
