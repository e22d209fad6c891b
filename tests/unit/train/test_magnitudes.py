"""Summaries of the magnitudes of parameters, gradients, activations and updates."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def values(serialized):
    return {v.tag: v for v in tf.Summary.FromString(serialized).value}


def numbers(found, tag):
    names = ("norm", "mean_abs", "max_abs", "zeros")
    return [found[f"{tag}/{n}"].simple_value for n in names]


@pytest.mark.parametrize("use_resource", [False, True])
def test_all_that_a_step_has(use_resource):
    w = tf.get_variable("layer/w", initializer=[[3.0, -4.0]], use_resource=use_resource)
    h = tf.nn.relu(tf.matmul([[2.0]], w), name="h")
    optimizer = tf.train.GradientDescentOptimizer(0.5)
    grads_and_vars = optimizer.compute_gradients(tf.reduce_sum(h))
    made = tf.train.summarize_magnitudes(grads_and_vars, [h])
    assert made == tf.get_collection(tf.GraphKeys.SUMMARIES)
    train, updates = tf.train.apply_and_summarize(optimizer, grads_and_vars)
    assert len(tf.get_collection(tf.GraphKeys.SUMMARIES)) == len(made)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):  # to evaluate changes nothing
            found = values(session.run(tf.summary.merge_all()))
        assert numbers(found, "parameter/layer/w") == [5.0, 3.5, 4.0, 0.0]
        assert numbers(found, "gradient/layer/w") == [2.0, 1.0, 2.0, 0.5]
        assert numbers(found, "activation/h") == [6.0, 3.0, 6.0, 0.5]
        assert found["parameter/layer/w"].histo.num == 2
        _, serialized = session.run([train, updates])
        found = values(serialized)
        assert numbers(found, "update/layer/w") == [1.0, 0.5, 1.0, 0.5]
        assert found["update/layer/w/ratio"].simple_value == pytest.approx(0.2)
        assert session.run(w).tolist() == [[2.0, -4.0]]
        session.run(updates)  # is to take the step
        assert session.run(w).tolist() == [[1.0, -4.0]]


def test_slices_narrow_and_complex_numbers():
    w = tf.get_variable("w", [4, 2], initializer=tf.zeros_initializer())
    unused = tf.get_variable("unused", [1])
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    loss = tf.reduce_sum(tf.gather(w, [1, 1]))
    pairs = optimizer.compute_gradients(loss)
    half = tf.constant([1.0, 0.0], tf.bfloat16, name="half")
    turned = tf.constant([3 + 4j], tf.complex64, name="turned")
    tf.train.summarize_magnitudes(pairs, [half, turned], [unused], histograms=False)
    _, updates = tf.train.apply_and_summarize(optimizer, pairs, histograms=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = values(session.run(tf.summary.merge_all()))
        assert numbers(found, "gradient/w") == [2.0, 1.0, 1.0, 0.0]  # of the two rows in use
        assert numbers(found, "activation/half") == [1.0, 0.5, 1.0, 0.5]
        assert numbers(found, "activation/turned") == [5.0, 5.0, 5.0, 0.0]
        assert "parameter/unused/norm" in found and "gradient/unused/norm" not in found
        assert not any(v.HasField("histo") for v in found.values())
        changed = values(session.run(updates))
        assert changed["update/w/ratio"].simple_value == 0.0  # of nothing
        assert np.isclose(changed["update/w/norm"].simple_value, 8**0.5)
