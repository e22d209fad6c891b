"""A step that is cancelled puts back what it has taken, unless something has used it."""

import threading
import time

import numpy as np
import pytest

import headrace as tf
from tests.unit.session.devices import blocked_step, in_thread, on, session


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def cancelled(s, fetches):
    """Run a step, and cancel it when nothing of it can go on."""
    result = in_thread(s.run, fetches, None, tf.RunOptions(timeout_in_ms=600_000))
    blocked_step(s).cancel(tf.errors.DeadlineExceededError(None, None, "late"))
    with pytest.raises(tf.errors.DeadlineExceededError, match="late"):
        result()


def closed_in_the_middle(s, fetches, condition):
    """Close the session of a step in another thread once a condition holds."""
    failed = []

    def run():
        try:
            s.run(fetches)
        except tf.errors.CancelledError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
    s._resources.close(tf.errors.CancelledError(None, None, "closed"))
    thread.join(30)
    assert len(failed) == 1


QUEUES = {
    "fifo": lambda: tf.FIFOQueue(9, tf.int32, []),
    "padding": lambda: tf.PaddingFIFOQueue(9, tf.int32, [[]]),
    "shuffle": lambda: tf.RandomShuffleQueue(9, 0, tf.int32, [[]], seed=1),
}


@pytest.mark.parametrize("make", QUEUES.values(), ids=QUEUES)
@pytest.mark.parametrize("devices", [1, 3])
def test_elements_return_to_their_queue_in_order(make, devices):
    with on(0):
        queue = make()
        first, more = queue.dequeue(), queue.dequeue_many(2)
    with on(devices - 1):
        other = tf.FIFOQueue(9, tf.int32, [])
        last = other.dequeue()
    with tf.control_dependencies([first]):
        both = tf.identity(more)
    with session() as s:
        s.run(queue.enqueue_many([[1, 2, 3, 4]]))
        cancelled(s, [first, both, last])
        assert s.run(queue.size()) == 4
        left = [int(s.run(queue.dequeue())) for _ in range(4)]
        assert sorted(left) == [1, 2, 3, 4]
        if make is not QUEUES["shuffle"]:
            assert left == [1, 2, 3, 4]


def test_equal_priorities_keep_their_order():
    queue = tf.PriorityQueue(9, [tf.int32], [[]])
    other = tf.FIFOQueue(9, tf.int32, [])
    taken = queue.dequeue_many(2)
    with session() as s:
        s.run(queue.enqueue_many([np.int64([5, 5, 5]), [1, 2, 3]]))
        cancelled(s, [*taken, other.dequeue()])
        assert s.run(queue.dequeue_many(3)[1]).tolist() == [1, 2, 3]


def test_a_blocked_enqueue_gives_back_what_it_was_made_of():
    source, full = tf.FIFOQueue(9, tf.int32, []), tf.FIFOQueue(1, tf.int32, [])
    move = full.enqueue(source.dequeue() * 10)
    with session() as s:
        s.run([source.enqueue_many([[1, 2]]), full.enqueue(0)])
        cancelled(s, move)
        assert s.run([source.size(), full.size()]) == [2, 1]
        s.run(full.dequeue())
        s.run(move)
        assert s.run(full.dequeue()) == 10


def test_closing_the_session_gives_back_too():
    with tf.container("shared"):
        queue = tf.FIFOQueue(9, tf.int32, [], shared_name="q")
    other = tf.FIFOQueue(9, tf.int32, [])
    element, size, put = queue.dequeue(), queue.size(), queue.enqueue(7)
    s = session()
    s.run(put)
    watch = session()
    closed_in_the_middle(s, [element, other.dequeue()], lambda: watch.run(size) == 0)
    assert watch.run(size) == 1
    tf.Session.reset("", ["shared"])


def test_an_element_that_was_written_does_not_return():
    queue, other = tf.FIFOQueue(9, tf.int32, []), tf.FIFOQueue(9, tf.int32, [])
    v = tf.Variable(0)
    written = v.assign(queue.dequeue())
    with tf.control_dependencies([written]):
        last = other.dequeue()
    with session() as s:
        s.run([v.initializer, queue.enqueue_many([[7, 8]])])
        cancelled(s, last)
        assert s.run([v, queue.size()]) == [7, 1]


def test_a_part_of_an_enqueue_is_a_use():
    source, small = tf.FIFOQueue(9, tf.int32, [[2]]), tf.FIFOQueue(1, tf.int32, [])
    move = small.enqueue_many([source.dequeue()])
    with session() as s:
        s.run(source.enqueue([[1, 2]]))
        cancelled(s, move)
        assert s.run([source.size(), small.size()]) == [0, 1]


def test_a_failing_step_keeps_its_element():
    """Otherwise an element that fails a step would fail all later ones."""
    queue, other = tf.FIFOQueue(9, tf.float32, []), tf.FIFOQueue(9, tf.float32, [])
    bad = tf.check_numerics(queue.dequeue(), "bad")
    with session() as s:
        s.run(queue.enqueue_many([[np.nan, 1.0]]))
        with pytest.raises(tf.errors.InvalidArgumentError):
            s.run([bad, other.dequeue()])
        assert s.run(queue.dequeue()) == 1


def test_a_loop_gives_back_what_its_iterations_have_taken():
    queue = tf.FIFOQueue(9, tf.int32, [])
    total = tf.while_loop(lambda _: True, lambda n: n + queue.dequeue(), [0])
    with session() as s:
        s.run(queue.enqueue_many([[1, 2, 3]]))
        cancelled(s, total)
        assert [int(s.run(queue.dequeue())) for _ in range(3)] == [1, 2, 3]


def test_returned_elements_wake_those_who_wait():
    queue, other = tf.FIFOQueue(1, tf.int32, []), tf.FIFOQueue(9, tf.int32, [])
    element = queue.dequeue()
    both = [queue.dequeue(), other.dequeue()]
    with session() as s:
        s.run(queue.enqueue(7))
        first = in_thread(s.run, both)
        step = blocked_step(s)  # has the element
        waits = in_thread(s.run, element)
        while not any(e.sleeper() for e in list(s._resources._steps) if e is not step):
            time.sleep(0.001)
        step.cancel(tf.errors.CancelledError(None, None, "enough"))
        with pytest.raises(tf.errors.CancelledError, match="enough"):
            first()
        assert waits() == 7


def test_what_python_code_takes_in_the_middle_is_its_own():
    queue, other = tf.FIFOQueue(9, tf.int32, []), tf.FIFOQueue(9, tf.int32, [])
    element = queue.dequeue()
    inner = session()
    seen = []
    taken = tf.py_func(lambda: seen.append(inner.run(element)) or np.int32(1), [], tf.int32)
    with inner, session() as s:
        inner.run(queue.enqueue_many([[7, 8]]))
        cancelled(s, [taken, other.dequeue(), other.dequeue()])
        assert seen == [7] and inner.run(queue.size()) == 1
