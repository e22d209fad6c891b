"""LAMB against the paper's algorithm in NumPy; what LARS refuses."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


START = np.sin(np.arange(6.0)).reshape(3, 2)


def lamb(w, gradients, decay, scaled, lr=0.1, beta1=0.9, beta2=0.999, epsilon=1e-6):
    """Algorithm 2 of You et al. 2020, in float64."""
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        step = m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + epsilon) + decay * w
        norms = np.linalg.norm(w), np.linalg.norm(step)
        w = w - lr * (norms[0] / norms[1] if scaled and all(norms) else 1.0) * step
    return w


def trained(gradient, steps, use_resource, name="layer/kernel"):
    w = tf.get_variable(name, initializer=START.astype("f4"), use_resource=use_resource)
    optimizer = tf.contrib.opt.LAMBOptimizer(0.1, 0.01, exclude_from_weight_decay=["bias", "norm$"])
    number = tf.Variable(1.0, trainable=False)
    train = optimizer.apply_gradients([(gradient(number), w)], global_step=number)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train)
        return session.run(w)


def whole(number):
    return tf.constant(np.cos(np.arange(6.0)).reshape(3, 2), "float32") / number


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize(("name", "counts"), [("kernel", True), ("bias", False), ("norm", False)])
def test_lamb_follows_the_paper(name, counts, use_resource):
    gradients = [np.cos(np.arange(6.0)).reshape(3, 2) / t for t in range(1, 21)]
    right = lamb(START, gradients, 0.01 if counts else 0.0, counts)
    ours = trained(whole, 20, use_resource, f"a/{name}")
    np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_resource", [False, True])
def test_lamb_of_rows_is_lamb_of_the_whole(use_resource):
    rows = np.array([[1.0, 2.0], [0.5, -1.0], [0.25, 0.0]])
    dense = np.zeros((3, 2))
    np.add.at(dense, [2, 0, 2], rows)
    right = lamb(START, [dense / t for t in range(1, 6)], 0.01, True)
    ours = trained(
        lambda t: tf.IndexedSlices(tf.constant(rows, "float32") / t, tf.constant([2, 0, 2])),
        5,
        use_resource,
    )
    np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-6)


def test_a_variable_of_zeros_moves():
    w = tf.get_variable("w", initializer=np.zeros(2, "f4"))
    train = tf.contrib.opt.LAMBOptimizer(0.1).apply_gradients([(tf.constant([1.0, -2.0]), w)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(w), [-0.1, 0.1], rtol=1e-4)


@pytest.mark.parametrize("argument", ["momentum", "weight_decay"])
def test_lars_refuses(argument):
    with pytest.raises(ValueError, match=f"{argument} should be positive: -1"):
        tf.contrib.opt.LARSOptimizer(0.1, **{argument: -1})
