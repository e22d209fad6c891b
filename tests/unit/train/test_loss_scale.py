"""Loss scaling: the numbers of TensorFlow 1.15.5, and gradients that would vanish in 16 bits."""

import numpy as np
import pytest

import headrace as tf

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize("use_resource", [False, True])
def test_dynamic_scale_as_tensorflow(use_resource):
    w = tf.get_variable("w", initializer=[1.0], use_resource=use_resource)
    x = tf.placeholder("float32", [])
    experimental = tf.train.experimental
    scale = experimental.DynamicLossScale(8.0, 2, 2.0)
    optimizer = experimental.MixedPrecisionLossScaleOptimizer(
        tf.train.MomentumOptimizer(0.1, 0.9), scale
    )
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(tf.reduce_sum(w * x), global_step=step)
    recorded = [  # gradient, then w, step, scale and good steps after it
        (1, 0.9, 1, 8, 1),
        (1, 0.71, 2, 16, 0),
        (INF, 0.71, 2, 8, 0),
        (1, 0.439, 3, 8, 1),
        (NAN, 0.439, 3, 4, 0),
        (1, 0.0951, 4, 4, 1),
        (1, -0.31441, 5, 8, 0),
        (1, -0.782969, 6, 8, 1),
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for gradient, *right in recorded:
            session.run(train, {x: gradient})
            found = session.run([w, step, *scale._variables()])
            assert np.array([found[0][0], *found[1:]]) == pytest.approx(right, rel=1e-5)
    assert optimizer.get_slot(w, "momentum").op.name == "w/Momentum"
    assert optimizer.get_slot_names() == ["momentum"]
    names = [v.op.name for v in optimizer.variables()]
    assert names == ["w/Momentum", "current_loss_scale", "good_steps"]


def gradient_in_half(optimizer):
    """The gradient of a float32 weight through a product of two small halves."""
    w = tf.get_variable("w", initializer=[1.0])
    small = tf.constant(1e-4, "float16")
    loss = tf.reduce_sum(tf.cast(w, "float16") * small * small)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(optimizer.compute_gradients(loss)[0][0])


def test_small_gradients_survive():
    plain = tf.train.GradientDescentOptimizer(0.1)
    scaled = tf.train.experimental.MixedPrecisionLossScaleOptimizer(plain, 2**12)
    assert gradient_in_half(plain) == 0
    with tf.Graph().as_default():
        assert gradient_in_half(scaled) == pytest.approx([1e-8], rel=1e-2)


def test_rows_are_unscaled_too():
    table = tf.get_variable("t", initializer=np.ones((3, 2), "f4"))
    optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
        tf.train.GradientDescentOptimizer(0.5), "dynamic"
    )
    train = optimizer.minimize(tf.reduce_sum(tf.gather(table, [1, 1])))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(table).tolist() == [[1, 1], [0, 0], [1, 1]]


def test_wrong_arguments():
    experimental = tf.train.experimental
    for make, message in (
        (lambda: experimental.FixedLossScale(0.5), "must be at least 1"),
        (lambda: experimental.FixedLossScale("a"), "must be a Python int or float"),
        (lambda: experimental.MixedPrecisionLossScaleOptimizer(3, 2), "instance of Optimizer"),
        (
            lambda: experimental.MixedPrecisionLossScaleOptimizer(tf.train.AdamOptimizer(), "foo"),
            "Could not interpret loss scale",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_configurations_come_back():
    for scale in (
        tf.train.experimental.FixedLossScale(3),
        tf.train.experimental.DynamicLossScale(4, 5, 6),
    ):
        assert type(scale).from_config(scale.get_config()).get_config() == scale.get_config()
