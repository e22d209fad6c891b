"""Fourier transforms and signal processing, beside TensorFlow."""

import numpy as np

from tests.oracle.case import case


def signal(*shape, **kwargs):
    rng = np.random.RandomState(kwargs.get("seed", 0))
    return rng.uniform(-2, 2, shape).astype(np.float32)


def spectrum(*shape):
    return (signal(*shape) + 1j * signal(*shape, seed=1)).astype(np.complex64)


@case
def complex_transforms(tf):
    x = spectrum(2, 3, 4)
    return (
        [tf.fft(x), tf.ifft(x), tf.fft2d(x), tf.ifft2d(x), tf.fft3d(x), tf.ifft3d(x)],
        [tf.signal.fft(x, name="f"), tf.spectral.ifft(x.astype(np.complex128))],
        tf.signal.fft3d(spectrum(2, 3, 4, 5)),
    )


@case
def real_transforms(tf):
    x = signal(2, 3, 6)
    return (
        [tf.signal.rfft(x), tf.signal.rfft(x, [4]), tf.signal.rfft(x, [9], name="r")],
        [tf.signal.rfft2d(x), tf.spectral.rfft2d(x, [4, 5]), tf.signal.rfft3d(x)],
    )


@case
def inverse_real_transforms(tf):
    x = spectrum(2, 3, 4)
    return (
        [tf.signal.irfft(x), tf.signal.irfft(x, [5]), tf.signal.irfft(x, [11], name="i")],
        [tf.signal.irfft2d(x), tf.spectral.irfft2d(x, [4, 5]), tf.signal.irfft3d(x)],
    )


@case
def transforms_of_unknown_shapes(tf):
    x = tf.placeholder_with_default(signal(2, 6), None)
    z = tf.placeholder_with_default(spectrum(2, 4), [None, None])
    length = tf.placeholder_with_default([8], [1])
    return (
        tf.signal.rfft(x),
        tf.signal.rfft(x, length),
        tf.signal.irfft(z),
        tf.signal.irfft(z, length),
        tf.signal.irfft2d(z),
    )


@case(graph=False, rtol=1e-4, atol=1e-4)
def gradients(tf):
    z = tf.constant(spectrum(2, 3, 4))
    x = tf.constant(signal(2, 3, 6))
    weights = signal(2, 3, 4, seed=7)
    found = []
    for f in (tf.fft, tf.ifft, tf.fft2d, tf.ifft2d, tf.fft3d, tf.ifft3d):
        y = f(z)
        found.append(tf.gradients(tf.real(y) * weights + tf.imag(y) ** 2, z))
    for length in ([6], [9]):  # TensorFlow's gradient fails where the signal is cut
        y = tf.signal.rfft(x, length)
        found.append(tf.gradients(tf.real(y) ** 2 + tf.imag(y), x))
    for length in ([6], [7], [9]):
        found.append(tf.gradients(tf.signal.irfft(z, length) ** 2, z))
    for length in ([3, 6], [4, 7]):
        y = tf.signal.rfft2d(x, length)
        found.append(tf.gradients(tf.real(y) ** 2 + tf.imag(y), x))
        found.append(tf.gradients(tf.signal.irfft2d(z, length) ** 2, z))
    return found


@case
def shifts(tf):
    x = signal(3, 5)
    return (
        tf.signal.fftshift(x),
        tf.signal.ifftshift(x, axes=[1]),
        tf.signal.fftshift(x, axes=(0,), name="s"),
        tf.signal.ifftshift(x[0]),
    )


@case
def cosine_transforms(tf):
    x = tf.constant(signal(2, 5))
    return (
        [tf.signal.dct(x), tf.signal.dct(x, norm="ortho"), tf.signal.dct(x, type=1)],
        [tf.signal.dct(x, type=3), tf.signal.dct(x, 3, norm="ortho", name="d")],
        [tf.signal.idct(x), tf.signal.idct(x, 3, norm="ortho"), tf.spectral.idct(x, 1)],
        [tf.signal.dct(x, n=3), tf.signal.dct(x, n=7), tf.spectral.dct(x, type=3, n=7)],
    )


@case(graph=False)
def cosine_transforms_of_unknown_sizes(tf):
    x = tf.placeholder_with_default(signal(2, 5), [None, None])
    return tf.signal.dct(x), tf.signal.idct(x, norm="ortho")


@case
def windows(tf):
    return (
        [tf.signal.hann_window(5), tf.signal.hann_window(6), tf.signal.hann_window(1)],
        [tf.signal.hamming_window(4, periodic=False), tf.signal.hamming_window(4, name="h")],
        tf.signal.hann_window(tf.constant(5), dtype=tf.float64),
    )


@case(graph=False)
def frames(tf):
    x = signal(2, 11)
    y = tf.placeholder_with_default(x, [None, None])
    return (
        tf.signal.frame(x, 4, 3),
        tf.signal.frame(x, 4, 3, pad_end=True, pad_value=7.0),
        tf.signal.frame(x, 2, 1, axis=0),
        tf.signal.frame(x, 20, 3),
        tf.signal.frame(x, 20, 3, pad_end=True),
        tf.signal.frame(y, 4, tf.constant(3)),
        tf.signal.frame(y, 4, 3, pad_end=True),
    )


@case(graph=False)
def overlapping(tf):
    x = tf.constant(signal(2, 5, 4))
    y = tf.placeholder_with_default(signal(5, 4), [None, None])
    found = tf.signal.overlap_and_add(x, 2)
    return (
        found,
        tf.signal.overlap_and_add(x, 3),
        tf.signal.overlap_and_add(x, 4),
        tf.signal.overlap_and_add(x, 6),
        tf.signal.overlap_and_add(y, 1),
        tf.gradients(found**2, x),
    )


@case(graph=False, rtol=1e-4, atol=1e-5)
def short_time_spectra(tf):
    x = tf.constant(signal(2, 60))
    z = tf.signal.stft(x, 16, 8)
    window = tf.signal.inverse_stft_window_fn(8)
    return (
        z,
        tf.signal.stft(x, 10, 4, fft_length=24, window_fn=None, pad_end=True),
        tf.signal.stft(x, 10, 4, window_fn=tf.signal.hamming_window),
        tf.signal.inverse_stft(z, 16, 8),
        tf.signal.inverse_stft(z, 16, 8, window_fn=window),
        tf.signal.inverse_stft(z, 12, 5, fft_length=16, window_fn=None),
        tf.signal.inverse_stft(z, 20, 5, fft_length=16),
        window(16, dtype=tf.float32),
        tf.signal.inverse_stft_window_fn(5)(13, dtype=tf.float32),
        tf.gradients(tf.abs(z), x),
    )


@case(graph=False, rtol=1e-4, atol=1e-5)
def mel_scale(tf):
    weights = tf.signal.linear_to_mel_weight_matrix(10, 65, 16000, 80.0, 7600.0)
    spectra = np.abs(signal(3, 65)) + 0.1
    logs = tf.log(tf.matmul(spectra, weights) + 1e-6)
    return (
        weights,
        tf.signal.linear_to_mel_weight_matrix(sample_rate=tf.constant(8000), dtype=tf.float64),
        tf.signal.mfccs_from_log_mel_spectrograms(logs),
    )
