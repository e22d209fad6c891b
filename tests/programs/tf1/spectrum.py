"""Fit a signal in the frequency domain: complex tensors, FFT, running sums."""

import numpy as np


def run(tf):
    tf.set_random_seed(71)
    rng = np.random.RandomState(23)
    n = 32
    signal = np.sin(2 * np.pi * 3 * np.arange(n) / n) + 0.5 * rng.randn(n)
    target = tf.fft(tf.constant(signal, tf.complex64))
    wave = tf.Variable(tf.random_normal([n], stddev=0.1))
    decay = tf.Variable(0.3)
    smooth = tf.cumsum(wave) * tf.exp(-decay * tf.linspace(0.0, 1.0, n))
    spectrum = tf.fft(tf.complex(smooth, tf.zeros_like(smooth)))
    real = tf.spectral.rfft(smooth)
    error = tf.real((spectrum - target) * tf.conj(spectrum - target)) / n
    loss = tf.reduce_sum(error) + 0.01 * tf.reduce_sum(tf.square(tf.abs(real)))
    phase = tf.reduce_sum(tf.cos(tf.angle(spectrum[1:4])))
    back = tf.real(tf.ifft(spectrum)) - smooth
    window = tf.reverse(smooth, [0]) * tf.cumprod(tf.fill([n], 0.9), exclusive=True)
    energy = tf.reduce_logsumexp(window)
    gradients = tf.tuple(tf.gradients(loss + energy, [wave, decay]))
    train = [v.assign_sub(2e-3 * g) for v, g in zip([wave, decay], gradients)]
    close = tf.reduce_max(tf.abs(back)) < 1e-5
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(15):
            yield session.run([loss, phase, energy, decay, close])
            session.run(train)
