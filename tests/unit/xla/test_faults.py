"""Errors that XLA cannot raise: the ops' own kernels report them; variables keep their values."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from tests.unit.xla.xla_steps import XlaStep, compare, variable_value


def step_on_rows(size):
    ids = tf.placeholder(tf.int32, [3])
    table = tf.get_variable("table", [size, 4], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    return loss, ids, table, train


@pytest.mark.parametrize("large", [1, 1 << 30])
def test_an_index_out_of_range(large, monkeypatch):
    # With and without a look at the indices first.
    monkeypatch.setattr("headrace._src.xla.compiled._LARGE", large)
    loss, ids, table, train = step_on_rows(6)
    step = XlaStep([loss], [ids], [train])
    state = step.variable(variable_value(step, table))
    state.assign(np.ones([6, 4], np.float32))
    with pytest.raises(InvalidArgumentError, match="not in"):
        step(np.int32([1, 6, 2]))
    assert (state.read() == 1).all()
    assert step(np.int32([1, 5, 1]))[0] == 12
    np.testing.assert_allclose(state.read()[:, 0], [1, 0, 1, 1, 1, 0.5])


def test_memory_is_reused_where_faults_may_be():
    loss, ids, table, train = step_on_rows(6)
    step = XlaStep([loss], [ids], [train])
    state = step.variable(variable_value(step, table))
    state.assign(np.ones([6, 4], np.float32))
    old = state.on_device()
    step(np.int32([0, 1, 2]))
    new = state.on_device()
    with pytest.raises(InvalidArgumentError, match="not in"):
        step(np.int32([0, 6, 2]))
    assert old.is_deleted() and new.is_deleted()
    np.testing.assert_allclose(state.read()[:, 0], [0.5, 0.5, 0.5, 1, 1, 1])


def test_a_fault_leaves_a_variable_without_value():
    ids = tf.placeholder(tf.int32, [2])
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    given = tf.gather(tf.constant([1.0, 2.0, 3.0]), ids)
    step = XlaStep([], [ids], [tf.assign(v, given).op, tf.assign_add(w, given).op])
    empty, full = (step.variable(variable_value(step, x)) for x in (v, w))
    full.assign(np.float32([1, 1]))
    with pytest.raises(InvalidArgumentError, match="not in"):
        step(np.int32([0, 3]))
    assert not empty.is_initialized and full.read().tolist() == [1, 1]
    step(np.int32([0, 2]))
    assert empty.read().tolist() == [1, 3] and full.read().tolist() == [2, 4]


def test_an_integer_divided_by_zero():
    x = tf.placeholder(tf.int32, [2])
    step = XlaStep([tf.constant([7, 8]) // x], [x])
    with pytest.raises(InvalidArgumentError, match="ivision by zero"):
        step(np.int32([2, 0]))
    assert step(np.int32([2, 3]))[0].tolist() == [3, 2]


def test_an_assertion():
    x = tf.placeholder(tf.float32, [2])
    with tf.control_dependencies([tf.assert_positive(x, message="so it is")]):
        y = tf.sqrt(x)
    step = XlaStep([y], [x])
    with pytest.raises(InvalidArgumentError, match="so it is"):
        step(np.float32([1, -1]))
    assert step(np.float32([1, 4]))[0].tolist() == [1, 2]


def test_rows_that_occur_twice_are_changed_one_after_the_other():
    ids = tf.placeholder(tf.int32, [4])
    v = tf.get_variable("v", [5, 2], initializer=tf.ones_initializer(), use_resource=True)
    m = tf.get_variable("m", [5, 2], initializer=tf.zeros_initializer(), use_resource=True)
    g = tf.placeholder(tf.float32, [4, 2])
    update = tf.raw_ops.ResourceSparseApplyMomentum(
        var=v.handle, accum=m.handle, lr=0.1, grad=g, indices=ids, momentum=0.9
    )
    given = np.arange(8, dtype=np.float32).reshape(4, 2)
    for rows in ([0, 3, 0, 0], [4, 2, 1, 0]):
        compare([], [ids, g], [np.int32(rows), given], [update])
