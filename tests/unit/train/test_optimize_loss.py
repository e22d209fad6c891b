"""tf.contrib.layers.optimize_loss: values as TensorFlow 1.15.5 gives them, and refusals."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def trained(*args, **kwargs):
    """The variable and the step after three steps, and what is summarized."""
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_sum(tf.square(v), name="loss")
    train = tf.contrib.layers.optimize_loss(loss, step, *args, **kwargs)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(train)
        for _ in range(2):
            session.run(train)
        names = [t.op.name for t in tf.get_collection(tf.GraphKeys.SUMMARIES)]
        return first, session.run(v), session.run(step), names


@pytest.mark.parametrize(
    ("arguments", "settings", "right", "steps"),
    [
        ((0.1, "SGD"), {}, [0.512, 1.024], 3),
        ((0.1, "Adam"), {"clip_gradients": 1.0}, [0.7005493, 1.6999049], 3),
        ((0.1, tf.train.GradientDescentOptimizer), {}, [0.512, 1.024], 3),
        ((0.1, tf.train.MomentumOptimizer(0.1, 0.9)), {}, [0.062, 0.124], 3),
        (
            (None, lambda: tf.train.GradientDescentOptimizer(0.2)),
            {"gradient_multipliers": {"v": 0.5}, "increment_global_step": False},
            [0.512, 1.024],
            0,
        ),
        (
            (0.1, lambda rate: tf.train.GradientDescentOptimizer(rate)),
            {"clip_gradients": lambda pairs: [(g * 0.5, v) for g, v in pairs]},
            [0.729, 1.458],
            3,
        ),
        (
            (0.1, "SGD"),
            {"learning_rate_decay_fn": lambda r, s: tf.train.exponential_decay(r, s, 1, 0.5)},
            [0.684, 1.368],
            3,
        ),
    ],
)
def test_as_tensorflow(arguments, settings, right, steps):
    first, value, count, _ = trained(*arguments, **settings)
    assert first == 5.0
    assert count == steps
    np.testing.assert_allclose(value, right, rtol=1e-5)


def test_summaries():
    names = trained(0.1, "SGD", clip_gradients=1.0, name="opt", summaries=["loss", "gradients",
                    "gradient_norm", "global_gradient_norm"])[3]  # fmt: skip
    assert names == [
        "opt/global_norm/gradient_norm",
        "opt/loss",
        "opt/gradients/v_0",
        "opt/gradient_norm/v_0",
        "opt/global_norm/clipped_gradient_norm",
    ]


def test_updates_run_and_noise_is_added():
    count = tf.get_variable("count", initializer=0.0, trainable=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(count, 1.0))
    v = tf.get_variable("v", initializer=[1.0])
    step = tf.train.get_or_create_global_step()
    train = tf.contrib.layers.optimize_loss(
        tf.reduce_sum(v), step, 1.0, "SGD", gradient_noise_scale=0.5
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(count) == 1.0
        assert session.run(v) != 0.0


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((None, "SGD"), {}, "Learning rate is None, but should be specified if optimizer is str"),
        ((0.1, "Nope"), {}, "Optimizer name should be one of .*, you provided Nope"),
        ((0.1, 3), {}, "Unrecognized optimizer: should be string"),
        (("x", "SGD"), {}, "Learning rate should be 0d Tensor or float"),
        ((-1.0, "SGD"), {}, "Invalid learning_rate -1.0"),
        ((0.1, "SGD"), {"summaries": ["no"]}, "Summaries should be one of"),
        ((0.1, "SGD"), {"clip_gradients": "x"}, "Unknown type <class 'str'> for clip_gradients"),
        ((0.1, "SGD"), {"variables": []}, "No variables to optimize"),
    ],
)
def test_refusals(arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        trained(*arguments, **settings)
