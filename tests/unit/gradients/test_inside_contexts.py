"""Gradients that are taken inside a branch or a loop, of what is outside or made there."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def test_inside_a_branch():
    x, p = tf.constant(3.0), tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.gradients(x * x * x, x)[0], lambda: tf.gradients(x * x, x)[0])
    with tf.Session() as session:
        assert session.run(y, {p: True}) == 27
        assert session.run(y, {p: False}) == 6


def test_inside_a_loop_and_a_branch_of_it():
    x = tf.constant(3.0)

    def body(i, y):
        along_x = tf.cond(i > 0, lambda: tf.gradients(x * x * y, x)[0], lambda: y + 1.0)
        return i + 1, along_x + tf.gradients(y * y * x, y)[0]

    result = tf.while_loop(lambda i, y: i < 3, body, [0, 1.0])[1]
    y = 1.0
    for i in range(3):
        y = (2 * 3.0 * y if i else y + 1.0) + 2 * y * 3.0
    with tf.Session() as session:
        assert session.run(result) == y


def test_hessian_of_unknown_size():
    x = tf.placeholder(tf.float32, [None])
    hessian = tf.hessians(tf.reduce_sum(x**3) * tf.reduce_sum(x), x)[0]
    value = np.float32([1, 2, 3])
    squares = 3 * value**2
    expected = squares[:, None] + squares[None] + np.diag(6 * value * value.sum())
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(hessian, {x: value}), expected)
