"""Loops, branches and tensor arrays in regions of XLA devices."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.xla.list_plan import UnknownList
from tests.unit.xla.xla_steps import XlaStep, compare

X = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


def recurrent(x, w, bound=5, infer_shape=True):
    rows = tf.TensorArray(tf.float32, 5).unstack(x)

    def body(i, h, out):
        h = tf.tanh(tf.matmul(h, w) + rows.read(i))
        return i + 1, h, out.write(i, h)

    start = [0, tf.zeros([2, 3]), tf.TensorArray(tf.float32, 5, infer_shape=infer_shape)]
    _, _, out = tf.while_loop(lambda i, *_: i < bound, body, start)
    return out.stack()


def test_a_loop_with_tensor_arrays_and_its_gradient_are_one_function():
    x = tf.placeholder(tf.float32, [5, 2, 3])
    w = tf.get_variable("w", [3, 3], initializer=tf.orthogonal_initializer(seed=1))
    loss = tf.reduce_sum(tf.square(recurrent(x, w)))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    step = compare([loss], [x], [X], [train], steps=2)
    assert step.cluster.has_loops


def test_a_loop_whose_number_of_iterations_is_computed():
    x, n = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, [])
    y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * x), [0, x])[1]
    compare([y], [x, n], [np.float32([1, 2, 3]), np.int32(3)])


def test_branches_give_what_is_taken():
    x, p = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: x * 2, lambda: tf.zeros([3]) - x)
    (dy,) = tf.gradients(y, x)
    for taken in (True, False):
        compare([y, dy], [x, p], [np.float32([1, 2, 3]), np.bool_(taken)])


def test_a_branch_updates_a_variable():
    p = tf.placeholder(tf.bool, [])
    v = tf.get_variable("v", [], initializer=tf.ones_initializer(), use_resource=True)
    new = tf.cond(p, lambda: v.assign_add(2.0), lambda: v.assign_sub(0.5))
    for taken in (True, False):
        compare([new], [p], [np.bool_(taken)])


def test_nested_loops_have_lists_of_lists():
    x = tf.placeholder(tf.float32, [3])

    def inner(y):
        return tf.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, tf.sin(z) * x), [0, y])[1]

    y = tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, inner(y)), [0, x])[1]
    compare([y, *tf.gradients(y, x)], [x], [np.float32([0.2, 0.4, 0.9])])


def test_dynamic_rnn_with_lengths():
    x = tf.placeholder(tf.float32, [2, 5, 3])
    lengths = tf.placeholder(tf.int32, [2])
    cell = tf.nn.rnn_cell.LSTMCell(4, initializer=tf.random_uniform_initializer(-1, 1, seed=2))
    out, state = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32)
    loss = tf.reduce_sum(out) + tf.reduce_sum(state.c)
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    compare([loss], [x, lengths], [X.transpose(1, 0, 2), np.int32([4, 2])], [train], steps=2)


def test_a_list_in_a_loop_without_a_bound_stays_outside():
    x, n = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, [])
    y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, tf.sin(y) * x), [0, x])[1]
    with pytest.raises(UnknownList, match="maximum_iterations"):
        XlaStep([*tf.gradients(y, x)], [x, n])
    y = tf.while_loop(
        lambda i, y: i < n, lambda i, y: [i + 1, tf.sin(y) * x], [0, x], maximum_iterations=9
    )[1]
    compare([*tf.gradients(y, x)], [x, n], [np.float32([0.1, 0.2, 0.3]), np.int32(4)])


def test_a_row_that_was_not_written_is_an_error():
    x = tf.placeholder(tf.float32, [5, 2, 3])
    out = recurrent(x, tf.eye(3), 4, infer_shape=False)
    step = XlaStep([out], [x])
    with pytest.raises(InvalidArgumentError, match="Could not read from TensorArray index 4"):
        step(X)


def test_a_row_that_was_not_written_is_zeros_where_the_others_tell_its_shape():
    x = tf.placeholder(tf.float32, [5, 2, 3])
    compare([recurrent(x, tf.eye(3), 4)], [x], [X])
