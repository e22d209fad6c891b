"""Native loops of 16-bit floats: products in float32, what is carried and saved in 16 bits."""

import pytest

import headrace as tf
from tests.unit.compile.steps import uniform
from tests.unit.compile.test_native_loops import assert_one_call, loop


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_and_their_gradients(dtype):
    """Few and small numbers, so that interpreted and compiled sums round alike."""
    w = tf.get_variable("w", initializer=(uniform(8, 8) * 4).round() / 4)
    x = tf.cast(tf.constant((uniform(4, 8, seed=1) * 4).round() / 4), dtype)
    found = loop(2, lambda i, y: tf.nn.relu(tf.matmul(y, tf.cast(w, dtype))), x)
    assert_one_call([tf.cast(found, "float32"), *tf.gradients(found, [x, w])])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_elementwise(dtype):
    x = tf.get_variable("x", initializer=uniform(33))
    found = loop(4, lambda i, y: tf.tanh(y) * tf.cast(x, dtype) + y, tf.cast(x, dtype))
    assert_one_call([found])


def test_a_recurrent_network():
    x = tf.placeholder("bfloat16", [3, 4, 8])
    cell = tf.nn.rnn_cell.BasicRNNCell(8, tf.nn.relu, dtype="bfloat16")
    outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype="bfloat16")
    slopes = tf.gradients(tf.reduce_sum(outputs), tf.trainable_variables())
    assert_one_call([outputs, *slopes], {x: (uniform(3, 4, 8) * 4).round() / 4})
