"""Partial runs that fail, that are closed, and what they leave behind."""

import threading

import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def step_containers(session):
    return [name for _, name in session._resources._own if name.startswith("_step_")]


def test_a_partial_run_that_failed_is_gone(session):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    checked = tf.check_numerics(a, "bad")
    product = checked * b
    handle = session.partial_run_setup([checked, product], [a, b])
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad : Tensor had NaN"):
        session.partial_run(handle, checked, {a: np.nan})
    for fetch, feeds in ((product, {b: 1.0}), (checked, {a: 1.0})):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Must run 'setup'.*has failed"):
            session.partial_run(handle, fetch, feeds)
    assert not session._partial
    handle = session.partial_run_setup([checked, product], [a, b])
    assert session.partial_run(handle, [checked, product], {a: 2.0, b: 3.0}) == [2, 6]


def test_a_call_that_is_refused_leaves_the_partial_run_as_it_was(session):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    handle = session.partial_run_setup([a * b], [a, b])
    (fetch,) = session.graph.get_operation_by_name("mul").outputs
    with pytest.raises(tf.errors.InvalidArgumentError, match="fed so far"):
        session.partial_run(handle, fetch, {b: 1.0})
    assert session.partial_run(handle, fetch, {a: 2.0, b: 3.0}) == 6


def test_a_fetch_that_is_dead_ends_the_partial_run(session):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    dead, _ = tf.raw_ops.Switch(data=a, pred=True)
    handle = session.partial_run_setup([dead, b + 1.0], [a, b])
    for message in ("Retval does not have value", "Must run 'setup'"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.partial_run(handle, dead, {a: 1.0})


@pytest.mark.parametrize("fails", [False, True])
def test_the_state_of_a_partial_run_is_dropped_with_it(session, fails):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    array = tf.TensorArray(tf.float32, 2, clear_after_read=False).write(0, a)
    first = array.read(0)
    second = array.write(1, tf.check_numerics(b, "bad")).read(1) + first
    handle = session.partial_run_setup([first, second], [a, b])
    assert session.partial_run(handle, first, {a: 1.0}) == 1
    assert len(step_containers(session)) == 1
    if fails:
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.partial_run(handle, second, {b: np.nan})
    else:
        assert session.partial_run(handle, second, {b: 2.0}) == 3
    assert not step_containers(session)


def test_closing_the_session_cancels_a_blocked_partial_run(session):
    a = tf.placeholder(tf.float32, [])
    begun, outcome = threading.Event(), []
    begin = tf.py_func(begun.set, [], [])
    queue = tf.FIFOQueue(1, tf.float32, [[]])
    with tf.control_dependencies([begin]):
        taken = queue.dequeue()
    product = taken * a
    handle = session.partial_run_setup([taken, product], [a])

    def run():
        try:
            session.partial_run(handle, product, {a: 1.0})
        except tf.errors.OpError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(60)
    session.close()
    thread.join(10)
    (error,) = outcome
    assert isinstance(error, tf.errors.CancelledError)
