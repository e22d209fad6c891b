"""Complex numbers: their parts, and zeros that algebra recognises."""

import numpy as np
import pytest

import headrace as tf


def run(fetches, feeds=None, jit=-1):
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = jit
    with tf.Session(config=config) as session:
        return session.run(fetches, feeds)


@pytest.mark.parametrize("jit", [-1, 1])
@pytest.mark.parametrize("shape", [[], [2]])
@pytest.mark.parametrize("zero", [0j, complex(-0.0, -0.0), complex(-0.0, 0.0), complex(0.0, -0.0)])
def test_a_complex_zero_can_be_added_and_subtracted(shape, zero, jit):
    x = tf.placeholder(tf.complex64, shape)
    value = np.full(shape, complex(-0.0, -0.0), np.complex64)
    constant = np.array(zero, np.complex64)
    results = run([x + constant, constant + x, x - constant, constant - x], {x: value}, jit)
    expected = [value + constant, constant + value, value - constant, constant - value]
    for found, right in zip(results, expected, strict=True):
        for part in (np.real, np.imag):
            np.testing.assert_array_equal(np.signbit(part(found)), np.signbit(part(right)))


def test_parts_of_python_numbers():
    found = run([tf.real(1.0), tf.imag(1j), tf.math.real(1 + 2j), tf.angle([1j]), tf.conj(1.0)])
    assert [np.asarray(f).tolist() for f in found] == [1, 1, 1, [np.pi / 2], 1]
    assert tf.real(np.float32(2)).dtype == tf.float32
    assert tf.real(1j).dtype == tf.float64
    assert tf.real(1).dtype == tf.int32
