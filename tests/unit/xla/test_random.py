"""Random numbers on XLA devices are those of the CPU."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.random import philox as reference
from tests.unit.xla.xla_steps import XlaStep

STREAM = reference.Stream(0x0123456789ABCDEF, (1 << 64) - 3)  # its counter carries


def in_jax(name, *arguments):
    """Call a function of the generator in JAX; it is imported here, since JAX may be absent."""
    from headrace._src.xla.jax_arrays import wide
    from headrace._src.xla.kernels import philox

    with wide():
        return np.asarray(getattr(philox, name)(*arguments))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated"])
def test_numbers_of_a_stream(distribution, dtype):
    wanted = reference.draw(distribution, STREAM, [1001], dtype)
    found = in_jax("draw", distribution, STREAM.words(), 1001, np.dtype(dtype), None)
    np.testing.assert_allclose(found, wanted, 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_of_a_stream(dtype):
    wanted = reference.draw("integer", STREAM, [77], dtype, (-5, 12))
    found = in_jax("draw", "integer", STREAM.words(), 77, np.dtype(dtype), (-5, 12))
    assert np.array_equal(found, wanted)


def test_a_stateless_stream():
    found = in_jax("stateless_stream", np.int32([3, -4]))
    assert np.array_equal(found, reference.stateless_stream([3, -4]).words())


def test_each_step_goes_on_where_the_last_one_ended():
    x = tf.nn.dropout(tf.ones([4, 5]), rate=0.5, seed=3) + tf.random_normal([4, 5], seed=4)
    step = XlaStep([x])
    with tf.Session() as session:
        for _ in range(3):
            np.testing.assert_allclose(step()[0], session.run(x), 1e-6, 1e-6)


def test_a_generator_in_a_loop():
    def body(i, total):
        return i + 1, total + tf.random_uniform([3], seed=5)

    total = tf.while_loop(lambda i, _: i < 4, body, [0, tf.zeros([3])])[1]
    step = XlaStep([total])
    with tf.Session() as session:
        for _ in range(2):
            np.testing.assert_allclose(step()[0], session.run(total), 1e-6)
