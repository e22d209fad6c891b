"""Steps in 16-bit floats, compiled, against the interpreter's."""

import numpy as np
import pytest

import headrace as tf

EPSILON = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}


def run(build, feeds, jit):
    """A program's fetches, and its variables afterwards; `build` gives placeholders and fetches."""
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = (
        tf.OptimizerOptions.ON_1 if jit else tf.OptimizerOptions.OFF
    )
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        inputs, fetches = build()
        session.run(tf.global_variables_initializer())
        results = session.run(fetches, dict(zip(inputs, feeds, strict=True)))
        return results, session.run(tf.global_variables())


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def weights(name, *shape):
    scale = np.sqrt(2 / np.prod(shape[:-1]))
    return tf.get_variable(name, initializer=random(*shape, seed=len(name)) * np.float32(scale))


def network(dtype, hidden=192):
    """A convolution of each kind, a pool with and one without overlap, layers of few rows."""
    x = tf.placeholder(tf.float32, [4, 18, 18, 3])
    y = tf.cast(x, dtype)
    for i, (size, channels, stride, pool) in enumerate(
        [(5, 16, 1, 3), (3, 32, 1, 2), (1, 32, 1, 0)]
    ):
        inputs = int(y.shape[3])
        w = tf.cast(weights("w" * (i + 1), size, size, inputs, channels), dtype)
        b = tf.cast(weights("b" * (i + 1), channels), dtype)
        y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(y, w, [1, stride, stride, 1], "SAME"), b))
        if pool:
            y = tf.nn.max_pool(y, [1, pool, pool, 1], [1, 2, 2, 1], "VALID")
    y = tf.reshape(y, [4, -1])
    for name, outputs in (("hidden", hidden), ("outputs", 10)):
        w = tf.cast(weights(name, int(y.shape[1]), outputs), dtype)
        y = tf.matmul(y, w)
        y = tf.nn.relu(y) if name == "hidden" else y
    loss = tf.reduce_mean(tf.square(tf.cast(y, tf.float32) - 1))
    trained = tf.trainable_variables()
    steps = [tf.assign_sub(v, 0.05 * g) for v, g in zip(trained, tf.gradients(loss, trained))]
    with tf.control_dependencies(steps):
        return [x], [loss, tf.identity(y)]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=str)
@pytest.mark.parametrize("hidden", [192, 2000])  # with 2000, the two gradients are one pass
def test_a_training_step_is_the_interpreter_s(dtype, hidden):
    feeds = [random(4, 18, 18, 3)]
    (loss, y), changed = run(lambda: network(dtype, hidden), feeds, jit=False)
    (loss2, y2), changed2 = run(lambda: network(dtype, hidden), feeds, jit=True)
    assert y2.dtype == y.dtype
    bound = 8 * EPSILON[dtype]
    np.testing.assert_allclose(loss2, loss, rtol=bound)
    for a, b in zip((y2, *changed2), (y, *changed), strict=True):
        a, b = np.float64(a), np.float64(b)
        np.testing.assert_allclose(a, b, atol=bound * np.abs(b).max())
