"""Training in mixed precision follows training in float32; variables and checkpoints stay."""

import numpy as np
import pytest

import headrace as tf

experimental = tf.train.experimental


def dense(x, size, number, activation=None):
    initializer = tf.glorot_uniform_initializer(number)
    return tf.layers.dense(x, size, activation, kernel_initializer=initializer)


def perceptron(x):
    return dense(dense(dense(x, 24, 1, tf.nn.relu), 24, 2, tf.tanh), 4, 3)


def conv(x, filters, number):
    initializer = tf.glorot_uniform_initializer(number)
    return tf.layers.conv2d(
        x, filters, 3, padding="same", activation=tf.nn.relu, kernel_initializer=initializer
    )


def convolutional(x):
    h = tf.layers.max_pooling2d(conv(tf.reshape(x, [-1, 6, 6, 1]), 4, 1), 2, 2)
    return dense(tf.layers.flatten(conv(h, 4, 2)), 4, 3)


def train(model, mixed, path=None, steps=50):
    """The losses, and the names and types of what a checkpoint holds."""
    with tf.Graph().as_default():
        x = tf.placeholder("float32", [16, 36])
        labels = tf.placeholder("int64", [16])
        loss = tf.losses.sparse_softmax_cross_entropy(labels, model(x))
        optimizer = tf.train.MomentumOptimizer(0.05, 0.8)
        scale = experimental.FixedLossScale(128.0)
        if mixed:
            optimizer = experimental.enable_mixed_precision_graph_rewrite(optimizer, scale)
        minimize = optimizer.minimize(loss)
        numbers = np.random.RandomState(0)
        rows = numbers.randn(16, 36)
        feeds = {x: rows, labels: (rows @ numbers.randn(36, 4)).argmax(1)}
        losses = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(steps):
                losses.append(session.run([loss, minimize], feeds)[0])
            saved = tf.train.Saver().save(session, str(path / f"mixed_{mixed}"))
        reader = tf.train.NewCheckpointReader(saved)
        return np.array(losses), reader.get_variable_to_dtype_map()


@pytest.mark.parametrize("model", [perceptron, convolutional])
def test_training_follows_float32(model, tmp_path):
    losses, saved = train(model, False, tmp_path)
    mixed, mixed_saved = train(model, True, tmp_path)
    assert losses[-10:].mean() < 0.8 * losses[:10].mean()
    np.testing.assert_allclose(mixed, losses, atol=5e-2)
    assert (mixed != losses).any()  # it isn't just float32
    assert mixed_saved == saved
    assert set(saved.values()) == {tf.float32}


def test_infinite_gradients_change_the_scale_alone():
    with tf.Graph().as_default():
        x = tf.placeholder("float32", [1, 2])
        w = tf.get_variable("w", initializer=np.ones((2, 1), "f4"))
        loss = tf.reduce_sum(tf.matmul(x, w))
        scale = experimental.DynamicLossScale(initial_loss_scale=64.0, increment_period=2)
        optimizer = tf.train.MomentumOptimizer(0.5, 0.9)
        optimizer = experimental.enable_mixed_precision_graph_rewrite(optimizer, scale)
        step = tf.train.get_or_create_global_step()
        minimize = optimizer.minimize(loss, global_step=step)
        slot = optimizer.get_slot(w, "momentum")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for bad in (np.inf, np.nan):
                session.run(minimize, {x: [[bad, 1.0]]})
            assert session.run([w, slot, step, scale()])[0].tolist() == [[1.0], [1.0]]
            assert session.run([step, scale()]) == [0, 16.0]
            assert not session.run(slot).any()
            for _ in range(2):
                session.run(minimize, {x: [[1.0, 0.0]]})
            assert session.run([step, scale()]) == [2, 32.0]
            np.testing.assert_allclose(session.run(w), [[1.0 - 0.5 - 0.95], [1.0]], rtol=1e-6)


def test_disable():
    with tf.Graph().as_default() as graph:
        experimental.enable_mixed_precision_graph_rewrite(tf.train.AdamOptimizer(), 1.0)
        assert graph.mixed_precision
        experimental.disable_mixed_precision_graph_rewrite()
        assert not graph.mixed_precision


def test_what_it_wraps():
    enable = experimental.enable_mixed_precision_graph_rewrite
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError, match=r"must be an instance of a tf\.train\.Optimizer or"):
            enable(3)
        with pytest.raises(ValueError, match="Could not interpret loss scale identifier: nope"):
            enable(tf.train.AdamOptimizer(), "nope")
        assert not graph.mixed_precision
        with pytest.raises(ValueError, match='"opt" must not already be an instance of a Mixed'):
            enable(enable(tf.train.AdamOptimizer()))
