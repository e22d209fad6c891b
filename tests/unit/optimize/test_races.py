"""Reads and writes of a step that are unordered."""

import logging

import pytest

import headrace as tf
from headrace._src.optimize.prune import prune
from headrace._src.optimize.races import find_races

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def schedule(use_resource):
    """A variable that is updated by a rate, which another variable decides."""
    step = tf.Variable(0, use_resource=use_resource, name="step")
    w = tf.Variable(5.0, use_resource=use_resource, name="w")
    rate = 1.0 / (1.0 + tf.cast(step, tf.float32))
    update = tf.assign_sub(w, rate * w)
    return step, rate, update


def found(*fetches):
    tensors = [t for t in fetches if isinstance(t, tf.Tensor)]
    operations = [t for t in fetches if isinstance(t, tf.Operation)]
    return [race.variable[1] for race in find_races(prune(tensors, operations, []))]


@KINDS
def test_a_schedule_beside_its_counter(use_resource):
    step, _, update = schedule(use_resource)
    count = tf.assign_add(step, 1)
    assert found(update.op, count.op) == ["step"]


@KINDS
def test_an_order_is_no_race(use_resource):
    step, _, update = schedule(use_resource)
    with tf.control_dependencies([update]):
        count = tf.assign_add(step, 1)
    assert found(count.op) == []


@KINDS
def test_what_is_only_looked_at_is_no_race(use_resource):
    step, rate, _ = schedule(use_resource)
    assert found(rate, tf.assign_add(step, 1).op) == []


@KINDS
def test_the_other_side_of_a_branch_is_no_race(use_resource):
    step = tf.Variable(0.0, use_resource=use_resource)
    w = tf.Variable(5.0, use_resource=use_resource)
    p = tf.placeholder(tf.bool, [])
    rate = tf.cond(p, lambda: tf.constant(1.0), lambda: tf.identity(step))
    count = tf.cond(p, lambda: tf.group(tf.assign_add(step, 1.0)), lambda: tf.no_op())
    assert found(tf.assign_sub(w, rate * 1.0).op, count.op) == []


@KINDS
def test_the_initial_value_of_another_variable_is_no_race(use_resource):
    """As in ExponentialMovingAverage.apply, beside the initialisation of all variables."""
    w = tf.Variable(5.0, use_resource=use_resource)
    twice = tf.Variable(w.initialized_value() * 2.0, use_resource=use_resource)
    assert found(w.initializer, twice.initializer) == []


@KINDS
def test_a_read_beside_the_question_whether_there_is_a_value(use_resource):
    w = tf.Variable(5.0, use_resource=use_resource)
    v = tf.Variable(1.0, use_resource=use_resource)
    there = tf.is_variable_initialized(w)
    changed = tf.cond(there, lambda: tf.constant(1.0), lambda: tf.constant(2.0)) * w
    assert found(tf.assign(v, changed).op, tf.assign_add(w, 1.0).op) == ["Variable"]


@KINDS
def test_before_within_and_after_a_loop_is_no_race(use_resource):
    v = tf.Variable(1.0, use_resource=use_resource)

    def body(i):
        with tf.control_dependencies([tf.assign(v, v * 2.0)]):
            return i + 1

    read = v + 0.0
    with tf.control_dependencies([read]):
        loop = tf.while_loop(lambda i: i < 3, body, [0])
    with tf.control_dependencies([loop]):
        assert found(tf.assign_add(v, v * 1.0).op) == []


def test_one_warning_with_both_lines(caplog):
    step, _, update = schedule(False)
    count = tf.assign_add(step, 1)
    with tf.Session() as session, caplog.at_level(logging.WARNING, "headrace"):
        session.run(tf.global_variables_initializer())
        logging.getLogger("headrace").addHandler(caplog.handler)
        try:
            session.run([update, count])
            session.run([count, update])
        finally:
            logging.getLogger("headrace").removeHandler(caplog.handler)
    (message,) = {r.getMessage() for r in caplog.records}
    assert "variable 'step' is read by 'Cast' and written by 'AssignAdd'" in message
    assert "the read comes first" in message
    assert message.count("test_races.py:") == 2


def test_one_warning_for_all_variables_of_a_step(caplog):
    """A layer's weights are read for the gradients of the layer before it."""
    weights = [tf.Variable(1.0, name=f"w{i}") for i in range(6)]
    loss = tf.constant(1.0)
    for weight in weights:
        loss *= weight
    gradients = tf.gradients(loss, weights)
    train = [tf.assign_sub(w, g) for w, g in zip(weights, gradients, strict=True)]
    with tf.Session() as session, caplog.at_level(logging.WARNING, "headrace"):
        session.run(tf.global_variables_initializer())
        logging.getLogger("headrace").addHandler(caplog.handler)
        try:
            session.run(train)
        finally:
            logging.getLogger("headrace").removeHandler(caplog.handler)
    (message,) = {r.getMessage() for r in caplog.records}
    assert "variable 'w0' is read by 'mul' and written by 'AssignSub'" in message
    assert "The same holds for 'w1', 'w2', 'w3' and 2 more." in message
