"""Initializers as objects: configurations, distributions and errors; values are the oracle's."""

import numpy as np
import pytest

import headrace as tf

MADE = {
    "zeros": lambda: tf.zeros_initializer(),
    "ones": lambda: tf.ones_initializer(tf.int32),
    "constant": lambda: tf.constant_initializer([1, 2]),
    "uniform": lambda: tf.random_uniform_initializer(-1, 2, seed=3),
    "normal": lambda: tf.random_normal_initializer(1.0, 2.0),
    "truncated": lambda: tf.truncated_normal_initializer(stddev=0.5, seed=1),
    "unit": lambda: tf.uniform_unit_scaling_initializer(2.0),
    "scaling": lambda: tf.variance_scaling_initializer(2.0, "fan_out", "uniform"),
    "glorot_uniform": lambda: tf.glorot_uniform_initializer(seed=2),
    "glorot_normal": lambda: tf.glorot_normal_initializer(),
    "orthogonal": lambda: tf.orthogonal_initializer(2.0, seed=2),
    "identity": lambda: tf.initializers.identity(3.0),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_configuration_round_trip(make):
    made = make()
    again = type(made).from_config(made.get_config())
    assert vars(again) == vars(made) and again.get_config() == made.get_config()


def test_public_names():
    assert tf.initializers.zeros is tf.zeros_initializer
    assert tf.initializers.variance_scaling is tf.variance_scaling_initializer
    assert tf.initializers.he_normal(seed=1).get_config() == {
        "scale": 2.0,
        "mode": "fan_in",
        "distribution": "truncated_normal",
        "seed": 1,
        "dtype": "float32",
    }


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
@pytest.mark.parametrize("distribution", ["normal", "uniform", "untruncated_normal"])
def test_variance_is_scaled(mode, distribution):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        made = tf.variance_scaling_initializer(3.0, mode, distribution)
        value = session.run(made([3, 100, 200], dtype=tf.float64))
    n = {"fan_in": 300, "fan_out": 600, "fan_avg": 450}[mode]
    np.testing.assert_allclose(value.var(), 3 / n, rtol=0.03)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: tf.variance_scaling_initializer(-1.0), ValueError, "`scale` must be positive"),
        (lambda: tf.variance_scaling_initializer(1.0, "x"), ValueError, "Invalid `mode`"),
        (
            lambda: tf.variance_scaling_initializer(distribution="x"),
            ValueError,
            "Invalid `distribution`",
        ),
        (lambda: tf.random_normal_initializer(dtype=tf.int32), ValueError, "floating point"),
        (lambda: tf.constant_initializer(object()), TypeError, "Invalid type for initial value"),
        (
            lambda: tf.constant_initializer([1, 2, 3], verify_shape=True)([2, 2]),
            TypeError,
            r"Expected Tensor's shape: \(2, 2\), got \(3,\)",
        ),
        (lambda: tf.constant_initializer([1, 2, 3])([2]), ValueError, "Too many elements"),
        (lambda: tf.orthogonal_initializer()([5]), ValueError, "at least two-dimensional"),
        (lambda: tf.initializers.identity()([5]), ValueError, "only be used for 2D matrices"),
    ],
)
def test_errors(build, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        build()
