"""A task whose share ends with tensors for one other task need not say that it has ended."""

import pytest

import headrace as tf
from headrace._src.graph.partition import Partitions
from headrace._src.partition.covers import covers, joined
from headrace._src.partition.shares import shares
from tests.unit.partition.steps import CPU, parted


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def on(number):
    return tf.device(f"/cpu:{number}")


def covering(fetches=(), targets=()):
    """Return who covers whom, with each device as a task."""
    parts = parted(list(fetches), list(targets))
    assert isinstance(parts, Partitions)
    found = covers(shares(parts, str), str)
    return {CPU.index(task): sorted(map(CPU.index, tasks)) for task, tasks in found.items()}


def updated():
    """Return an update of a variable on the device 0 by what the devices 1 and 2 make of it."""
    with on(0):
        w = tf.get_variable("w", initializer=tf.zeros([2]), use_resource=True)
    made = []
    for number in (1, 2):
        with on(number):
            made.append(tf.square(w + 1.0))
    with on(0):
        return w, tf.assign_sub(w, tf.add_n(made))


def test_workers_that_send_gradients_are_covered():
    assert covering(targets=[updated()[1].op]) == {0: [1, 2]}


def test_a_task_that_returns_a_value_is_not_covered():
    _, update = updated()
    with on(1):
        more = tf.identity(tf.constant(1.0) + tf.reduce_sum(update))
    assert 1 not in covering([more], [update.op]).get(0, [])


def test_a_task_that_does_more_than_send_is_not_covered():
    _, update = updated()
    with on(1):
        count = tf.get_variable("count", initializer=0.0, use_resource=True)
        counts = tf.assign_add(count, 1.0)
    assert covering(targets=[update.op, counts.op]) == {0: [2]}


def test_a_task_that_may_wait_for_a_queue_is_not_covered():
    with on(1):
        queue = tf.FIFOQueue(2, tf.float32, [2])
        element = queue.dequeue()
    with on(0):
        w = tf.get_variable("w", initializer=tf.zeros([2]), use_resource=True)
        update = tf.assign_add(w, element)
    assert covering(targets=[update.op]) == {}


def test_covers_of_covered_tasks_are_joined():
    assert joined({"a": "b", "b": "c", "d": "c"}) == {"c": ("a", "b", "d")}
