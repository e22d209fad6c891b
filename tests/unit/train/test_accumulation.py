"""Several micro-batches with accumulation equal one batch without."""

import numpy as np
import pytest

import headrace as tf

BATCHES = np.linspace(-1, 2, 12).reshape(6, 2).astype("float32")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def trained(optimizer, batches, use_resource):
    """The values and the global step after training on some batches."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=[0.5, -0.5], use_resource=use_resource)
    table = tf.get_variable("t", initializer=np.ones((3, 2), "f4"), use_resource=use_resource)
    x = tf.placeholder("float32", [None, 2])
    rows = tf.gather(table, [0, 2, 2])
    loss = tf.reduce_mean(tf.square(x * w)) + tf.reduce_sum(rows) * tf.reduce_mean(x)
    train = optimizer.minimize(loss, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch in batches:
            session.run(train, {x: batch})
        return session.run([w, table, step])


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("make", [lambda: tf.train.AdamOptimizer(0.1), lambda: _momentum()])
def test_as_one_batch(make, use_resource):
    whole = trained(make(), [BATCHES] * 2, use_resource)
    with tf.Graph().as_default():
        wrapped = tf.contrib.opt.AccumulatingOptimizer(make(), 3)
        parts = trained(wrapped, [*BATCHES.reshape(3, 2, 2)] * 2, use_resource)
    assert parts[2] == whole[2] == 2
    for found, right in zip(parts[:2], whole[:2], strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)


def _momentum():
    return tf.train.MomentumOptimizer(0.1, 0.9)


def test_nothing_moves_before_the_last_micro_batch():
    optimizer = tf.contrib.opt.AccumulatingOptimizer(_momentum(), 3)
    w, table, step = trained(optimizer, [BATCHES] * 2, False)
    assert w.tolist() == [0.5, -0.5] and (table == 1).all() and step == 0
    names = [v.op.name for v in optimizer.variables()]
    assert names == ["micro_step", "t/Accumulated", "t/Momentum", "w/Accumulated", "w/Momentum"]


def test_wrong_arguments():
    with pytest.raises(ValueError, match="steps must be positive"):
        tf.contrib.opt.AccumulatingOptimizer(_momentum(), 0)
    with pytest.raises(TypeError, match=r"not a tf\.train\.Optimizer"):
        tf.contrib.opt.AccumulatingOptimizer("Adam", 2)
    with pytest.raises(ValueError, match="No gradients provided"):
        tf.contrib.opt.AccumulatingOptimizer(_momentum(), 2).apply_gradients([])
