"""Adam's relatives: which rows change, and which variables decay."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def changed_rows(optimizer, use_resource):
    """The rows of a table that change in a second step, whose gradient is of row 1 alone."""
    table = tf.get_variable("table", initializer=np.ones((3, 2), "f4"), use_resource=use_resource)
    train = [optimizer.minimize(tf.reduce_sum(tf.gather(table, [i]))) for i in (0, 1)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train[0])
        before = session.run(table)
        session.run(train[1])
        return np.flatnonzero((session.run(table) != before).any(1)).tolist()


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize(
    ("kind", "rows"),
    [("AdaMax", [1]), ("LazyAdam", [1]), ("Nadam", [1]), ("Adam", [0, 1])],
)
def test_rows_that_change(kind, rows, use_resource):
    room = tf.train if kind == "Adam" else tf.contrib.opt
    assert changed_rows(getattr(room, f"{kind}Optimizer")(0.1), use_resource) == rows


def test_decay_var_list():
    a, c = (tf.get_variable(n, initializer=[4.0]) for n in "ac")
    descent = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)
    train = descent(0.25, learning_rate=1.0).minimize(
        tf.reduce_sum(a + c), decay_var_list=[a], var_list=[a, c]
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run([a, c]) == [[2.0], [3.0]]


@pytest.mark.parametrize("use_resource", [False, True])
def test_weight_decay_may_be_a_schedule(use_resource):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=[8.0], use_resource=use_resource)
    decay = tf.train.piecewise_constant(step, [0], [0.5, 0.25])
    optimizer = tf.contrib.opt.MomentumWOptimizer(lambda: decay, 0.0, 0.9)
    train = optimizer.minimize(tf.reduce_sum(w), global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for right in (4.0, 3.0):
            session.run(train)
            assert session.run(w) == [right]
