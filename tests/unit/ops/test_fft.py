"""Fourier transforms: gradients where TensorFlow's fail, inverses, precision, errors."""

import numpy as np
import pytest

import headrace as tf

rng = np.random.default_rng(1)
SIGNAL = rng.uniform(-1, 1, (3, 6)).astype(np.float32)


def half(x):
    return x.astype(np.complex64)[:, :4] * (1 + 0.5j)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: tf.signal.rfft(x, [4]), SIGNAL),
        (lambda x: tf.signal.rfft(x, [5]), SIGNAL),
        (lambda x: tf.signal.rfft2d(x, [2, 5]), SIGNAL),
        (lambda x: tf.signal.rfft3d(x[None]), SIGNAL),
        (lambda x: tf.signal.irfft(x, [4]), half(SIGNAL)),
        (lambda x: tf.signal.irfft(x, [5]), half(SIGNAL)),
        (lambda x: tf.signal.irfft2d(x, [2, 3]), half(SIGNAL)),
        (lambda x: tf.signal.irfft3d(x[None]), half(SIGNAL)),
    ],
)
def test_gradient_of_linear_maps(function, x):
    """A transform F is linear, so the gradient of Re<w, F x> is F^H w: <F^H w, d> = Re<w, F d>."""
    direction = rng.uniform(-1, 1, x.shape).astype(x.dtype)
    if x.dtype.kind == "c":
        direction = direction * (1 - 0.3j)
    with tf.Graph().as_default(), tf.Session() as session:
        p = tf.placeholder(tf.as_dtype(x.dtype), x.shape)
        y = function(p)
        w = rng.uniform(-1, 1, y.shape.as_list())
        weights = tf.cast(w * (1 + 0.7j) if y.dtype.is_complex else w, y.dtype)
        total = tf.reduce_sum(tf.real(tf.conj(weights) * y))
        gradient = session.run(tf.gradients(total, p)[0], {p: x})
        along = session.run(total, {p: direction})
    found = np.sum(np.real(np.conj(gradient) * direction))
    np.testing.assert_allclose(found, along, rtol=1e-4, atol=1e-4)


def test_single_precision_stays_single():
    with tf.Graph().as_default(), tf.Session() as session:
        z = session.run(tf.fft(half(SIGNAL)))
        assert z.dtype == np.complex64
        wide = session.run(tf.fft(half(SIGNAL).astype(np.complex128)))
    np.testing.assert_allclose(wide, np.fft.fft(half(SIGNAL).astype(np.complex128)))


def test_stft_and_its_inverse():
    x = rng.uniform(-1, 1, 64).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        z = tf.signal.stft(x, 16, 4)
        again = tf.signal.inverse_stft(
            z, 16, 4, window_fn=tf.signal.inverse_stft_window_fn(4, tf.signal.hann_window)
        )
        found = session.run(again)
    np.testing.assert_allclose(found[12:-12], x[12:-12], atol=1e-5)


def test_bad_lengths():
    with tf.Graph().as_default(), tf.Session() as session:
        length = tf.placeholder(tf.int32)
        y = tf.signal.rfft(SIGNAL, length)
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be >= 0"):
            session.run(y, {length: [-1]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="paddings must be"):
            session.run(y, {length: [2, 2]})
        with pytest.raises(ValueError, match="rank"):
            tf.signal.rfft(1.0)
        with pytest.raises(ValueError, match="at least rank 2"):
            tf.fft2d([1j, 2j])


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: tf.signal.dct([1.0], axis=0), NotImplementedError, "axis must be -1"),
        (lambda: tf.signal.dct([1.0], type=4), ValueError, "Only Types I, II and III"),
        (lambda: tf.signal.dct([1.0], type=1), ValueError, "greater than one"),
        (lambda: tf.signal.dct([1.0], norm="foo"), ValueError, "Unknown normalization"),
        (lambda: tf.signal.dct([1.0], n=0), ValueError, "positive integer"),
        (lambda: tf.signal.hann_window(4, dtype=tf.int32), ValueError, "floating point"),
        (lambda: tf.signal.frame(1.0, 2, 1), ValueError, "rank"),
        (lambda: tf.signal.overlap_and_add([1.0], 2), ValueError, "rank"),
        (lambda: tf.signal.overlap_and_add([[1.0]], 2.0), ValueError, "must be an integer"),
        (
            lambda: tf.signal.linear_to_mel_weight_matrix(upper_edge_hertz=5000.0),
            ValueError,
            "Nyquist",
        ),
    ],
)
def test_bad_arguments(build, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        build()
