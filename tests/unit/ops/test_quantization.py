"""Quantized values: wrong arguments, and an op that TensorFlow 1.15.5 has no kernel of."""

import numpy as np
import pytest

import headrace as tf


def run(build):
    with tf.Graph().as_default() as graph:
        fetch = build()
        with tf.Session(graph=graph) as session:
            return session.run(fetch)


def test_relu_x():
    """The integers from 0 to 255 stand for -1 to 4: 51 for zero, 153 for two."""
    x = np.array([0, 50, 51, 100, 153, 154, 255], np.uint8)
    found, low, high = run(
        lambda: tf.nn.quantized_relu_x(tf.bitcast(tf.constant(x), tf.quint8), 2.0, -1.0, 4.0)
    )
    assert found.tolist() == [51, 51, 51, 100, 153, 153, 153]
    assert (low, high) == (-1.0, 4.0)


def test_scalars_stay_scalars():
    found = run(lambda: tf.quantize(0.5, 0.0, 1.0, tf.quint8).output)
    assert np.shape(found) == ()
    assert (
        run(lambda: tf.dequantize(tf.quantize(0.5, 0.0, 1.0, tf.qint16).output, 0.0, 1.0)).shape
        == ()
    )


def test_large_numbers_become_the_largest_integer():
    found = run(lambda: tf.quantize([1e9, -1e9, 2.0], -1.0, 2.0, tf.qint32).output)
    assert found.tolist() == [2**31 - 1, -(2**31), 2**31 - 1]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tf.quantize([1.0], 2.0, 1.0, tf.quint8).output, "max_range must be larger than"),
        (
            lambda: tf.quantize([1.0], 0.0, 1.0, tf.quint8, "MIN_FIRST", "HALF_TO_EVEN").output,
            "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is 'MIN_FIRST'",
        ),
        (
            lambda: tf.fake_quant_with_min_max_args([1.0], 2.0, 1.0),
            "min has to be smaller than max, was: 2 >= 1",
        ),
        (
            lambda: tf.fake_quant_with_min_max_vars([1.0], -1.0, 1.0, num_bits=17),
            "num_bits must be between 2 and 16, inclusive, was: 17",
        ),
        (
            lambda: tf.quantization.quantize_and_dequantize([1.0], 1.0, 0.0, range_given=True),
            "Invalid range: input_min 1.0 > input_max 0.0",
        ),
        (
            lambda: tf.quantization.quantize_and_dequantize([1.0], 1.0, 0.0, num_bits=64),
            "num_bits is out of range: 64 with signed_input 1",
        ),
    ],
)
def test_wrong_arguments(build, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(build)
