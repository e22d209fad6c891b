"""Optimizers that wrap others: the names that savers use, and the rows that are clipped."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_swapping_saver_stores_averages_under_the_variables_names(tmp_path):
    w = tf.get_variable("w", initializer=[4.0])
    parts = tf.get_variable(
        "p",
        [2],
        initializer=tf.ones_initializer(),
        partitioner=tf.fixed_size_partitioner(2),
    )
    step = tf.train.get_or_create_global_step()
    optimizer = tf.contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), 0.5)
    train = optimizer.minimize(tf.reduce_sum(w) + tf.reduce_sum(parts), step)
    saver = optimizer.swapping_saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        path = saver.save(session, str(tmp_path / "model"))
        assert session.run([w, step]) == [[3.0], 1]
    stored = {name: tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)}
    assert {name: value.tolist() for name, value in stored.items()} == {
        "w": [3.5],
        "w/ExponentialMovingAverage": [3.0],
        "p": [0.5, 0.5],
        "p/ExponentialMovingAverage": [0.0, 0.0],
        "global_step": 1,
    }


def test_swapping_saver_needs_averages_and_variables():
    w = tf.get_variable("w", initializer=[4.0])
    optimizer = tf.contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0))
    with pytest.raises(RuntimeError, match="Must call apply_gradients or minimize before"):
        optimizer.swapping_saver()
    optimizer.minimize(tf.reduce_sum(w))
    with pytest.raises(ValueError, match="w/ExponentialMovingAverage is not part of variables to"):
        optimizer.swapping_saver([w])


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("colocate", [False, True])
def test_only_rows_with_gradients_are_clipped(use_resource, colocate):
    start = np.array([[3.0, 4.0], [6.0, 8.0], [0.0, 0.5]], "f4")
    w = tf.get_variable("w", initializer=start, use_resource=use_resource)
    optimizer = tf.contrib.opt.VariableClippingOptimizer(
        tf.train.MomentumOptimizer(0.0, 0.9), {w: [1]}, 1.0, colocate_clip_ops_with_vars=colocate
    )
    rows = tf.IndexedSlices(tf.zeros([3, 2]), tf.constant([1, 2, 1]))
    train = optimizer.apply_gradients([(rows, w)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(w), [[3, 4], [0.6, 0.8], [0, 0.5]], rtol=1e-6)
    assert optimizer.get_slot(w, "momentum") is not None


def test_axis_zero_clips_all(caplog):
    w = tf.get_variable("w", initializer=np.array([[3.0], [4.0]], "f4"))
    optimizer = tf.contrib.opt.VariableClippingOptimizer(
        tf.train.GradientDescentOptimizer(0.0), {w: [0]}, 1.0
    )
    rows = tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([1]))
    train = optimizer.apply_gradients([(rows, w)])
    assert "axis 0" in caplog.text
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(w), [[0.6], [0.8]], rtol=1e-6)


def test_clip_gradients_by_global_norm():
    a, c = (tf.get_variable(n, initializer=[1.0]) for n in "ac")
    pairs = tf.contrib.opt.clip_gradients_by_global_norm([([3.0], a), ([4.0], c)], 1.0)
    assert [v for _, v in pairs] == [a, c]
    with tf.Session() as session:
        np.testing.assert_allclose(session.run([g for g, _ in pairs]), [[0.6], [0.8]], rtol=1e-6)
