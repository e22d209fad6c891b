"""A deadline's error names the ops that were running or waiting, and the lines that made them."""

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import session
from tests.unit.session.devices import late, until_cancelled


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def endless(**more):
    return tf.while_loop(lambda i: i < 1.0, lambda i: i * 0.5, [0.0], name="endless", **more)


def through_a_queue():
    """A loop that can't be raised."""
    queue = tf.FIFOQueue(1, tf.float32, [[]])

    def body(i):
        with tf.control_dependencies([queue.enqueue(i)]):
            return queue.dequeue() * 0.5

    return tf.while_loop(lambda i: i < 1.0, body, [0.0], name="endless")


def waiting():
    return tf.FIFOQueue(1, tf.float32, [[]], name="empty").dequeue(name="endless")


def python():
    return tf.py_func(lambda: until_cancelled() or np.float32(1), [], tf.float32, name="endless")


@pytest.mark.parametrize("make", [endless, through_a_queue, waiting, python])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("of_session", [False, True])
def test_the_error_says_where(make, jit, of_session):
    result = make()
    fetches = [result, tf.constant(1.0) + 1.0]

    def run(timeout):
        config = tf.ConfigProto(operation_timeout_in_ms=timeout if of_session else 0)
        config.graph_options.optimizer_options.global_jit_level = 1 if jit else -1
        options = None if of_session else tf.RunOptions(timeout_in_ms=timeout)
        with tf.Session(config=config) as session:
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(fetches, options=options)
            session.run(fetches, options=options)  # once more

    error = late(run, lambda error: error.op is not None and error.op.type != "FIFOQueueV2")
    assert "endless" in error.op.name
    assert "test_deadlines.py" in str(error) and "deadline passed while" in str(error)


def test_a_wait_says_for_what():
    result = waiting()
    with session(False) as run:
        error = late(lambda t: run.run(result, options=tf.RunOptions(timeout_in_ms=t)))
    assert "waited for an element of FIFOQueue" in str(error)


def test_a_step_that_ends_in_time():
    x = tf.placeholder(tf.float32, [])
    with session(False) as run:
        assert run.run(x * 2.0, {x: 3.0}, options=tf.RunOptions(timeout_in_ms=60_000)) == 6.0
