"""Steps that wait for queues: for each other, for the end of a session, for a deadline."""

import threading

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def in_thread(function):
    """Run `function` in a thread; returns the thread and what it will have raised or returned."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_a_step_waits_for_another():
    queue = tf.FIFOQueue(2, tf.float32, shapes=[()])
    x = tf.placeholder(tf.float32, [])
    enqueue, dequeue = queue.enqueue(x), queue.dequeue_many(3)
    with tf.Session() as session:
        thread, outcome = in_thread(lambda: session.run(dequeue))
        for value in (1, 2, 3):
            session.run(enqueue, {x: value})
        thread.join(60)
        assert outcome[0].tolist() == [1, 2, 3]


def test_what_ran_before_a_wait_is_kept_and_not_run_again():
    queue = tf.FIFOQueue(1, tf.float32, shapes=[()])  # so that some op has to wait in any order
    x = tf.placeholder(tf.float32, [])
    total = tf.Variable(0.0)
    added = tf.assign_add(total, x) + 0.0
    first = queue.enqueue(added)
    with tf.control_dependencies([first]):
        second = queue.enqueue(added * 2)
    with tf.control_dependencies([added]):
        moved = queue.dequeue_many(2) + added
    with tf.Session() as session:
        session.run(total.initializer)
        assert session.run([moved, second], {x: 3.0})[0].tolist() == [6, 9]
        assert session.run([second, moved], {x: 1.0})[1].tolist() == [8, 12]
        assert session.run(total) == 4


def test_thousands_of_dequeues_wait_in_one_step():
    queue = tf.FIFOQueue(-1, tf.int32, shapes=[()])
    dequeues = [queue.dequeue() for _ in range(3_000)]
    before = set(threading.enumerate())
    with tf.Session() as session:
        enqueue = queue.enqueue_many([tf.range(3_000)])
        got = session.run([*dequeues, enqueue])
        assert not set(threading.enumerate()) - before
        assert sorted(got[:-1]) == list(range(3_000))
        assert session.run(queue.size()) == 0


def test_closing_the_session_cancels_what_waits():
    queue = tf.FIFOQueue(2, tf.float32, shapes=[()])
    session = tf.Session()
    dequeue, size = queue.dequeue(), queue.size()
    session.run(size)
    thread, outcome = in_thread(lambda: session.run(dequeue))
    session.close()
    thread.join(60)
    assert isinstance(outcome[0], tf.errors.CancelledError | RuntimeError)


@pytest.mark.parametrize("container", ["", "kept"])
def test_a_deadline_leaves_the_queue_as_it_was(container):
    with tf.container(container):
        queue = tf.FIFOQueue(9, tf.int32, shapes=[()], shared_name="q")
    options = tf.RunOptions(timeout_in_ms=20)
    fill, size, three = queue.enqueue_many([[1, 2]]), queue.size(), queue.dequeue_many(3)
    with tf.Session() as session:
        session.run(fill)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(three, options=options)
        assert session.run(size) == 2
        session.run(fill)
        assert session.run(three).tolist() == [1, 2, 1]
        assert session.run(size) == 1
    tf.Session.reset("", [container] if container else None)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("jit", [-1, 1])
def test_what_is_enqueued_was_read_before_what_is_dequeued_is_assigned(resource, jit):
    """The assignment comes first in the program, which must not make the step wait for itself."""
    queue = tf.FIFOQueue(1, tf.float32, shapes=[()])
    variable = tf.get_variable("variable", initializer=5.0, use_resource=resource)
    other = tf.get_variable("other", initializer=1.0, use_resource=resource)
    before = tf.assign_add(variable, 1.0)
    moved = tf.assign(variable, queue.dequeue() + 1.0)
    added = tf.assign_add(other, moved)
    enqueued = queue.enqueue(variable.read_value() + 1.0 + other.read_value() * 0.0)
    config = tf.ConfigProto(operation_timeout_in_ms=20_000)
    config.graph_options.optimizer_options.global_jit_level = jit
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        session.run([before, moved, added, enqueued])
        assert session.run([variable, other]) == [8.0, 9.0]
        session.run([moved, enqueued])
        assert session.run(variable) == 10.0


def test_a_failed_step_forgets_its_dequeues():
    queue = tf.FIFOQueue(9, tf.int32, shapes=[()])
    wrong = tf.Assert(tf.constant(False), ["wrong"])
    dequeue, enqueue = queue.dequeue(), queue.enqueue(7)
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="wrong"):
            session.run([dequeue, wrong])
        session.run(enqueue)
        assert session.run(dequeue) == 7


def test_what_was_fed_may_change_afterwards():
    queue = tf.FIFOQueue(9, tf.float32, shapes=[[2]])
    x = tf.placeholder(tf.float32)
    one, many, dequeue = queue.enqueue(x), queue.enqueue_many(x), queue.dequeue()
    with tf.Session() as session:
        fed = np.array([1, 2], np.float32)
        session.run(one, {x: fed})
        session.run(many, {x: fed[None]})
        fed[:] = 0
        assert session.run(dequeue).tolist() == [1, 2]
        assert session.run(dequeue).tolist() == [1, 2]


def test_many_producers_and_consumers():
    queue = tf.FIFOQueue(5, tf.int32, shapes=[()])
    x = tf.placeholder(tf.int32)
    enqueue, dequeue, close = queue.enqueue(x), queue.dequeue(), queue.close()
    taken = []

    def produce(k):
        for n in range(50):
            session.run(enqueue, {x: 50 * k + n})

    def consume():
        while True:
            try:
                taken.append(int(session.run(dequeue)))
            except tf.errors.OutOfRangeError:
                return

    with tf.Session() as session:
        producers = [in_thread(lambda k=k: produce(k)) for k in range(8)]
        consumers = [in_thread(consume) for _ in range(8)]
        for thread, outcome in producers:
            thread.join(60)
            assert outcome == [None]
        session.run(close)
        for thread, outcome in consumers:
            thread.join(60)
            assert outcome == [None]
    assert sorted(taken) == list(range(400))


def test_queues_of_two_sessions_are_two_queues_unless_shared():
    own = tf.FIFOQueue(9, tf.int32)
    with tf.container("common"):
        shared = tf.FIFOQueue(9, tf.int32, shared_name="q")
    enqueue = tf.group(own.enqueue(1), shared.enqueue(1))
    sizes = [own.size(), shared.size()]
    with tf.Session() as first, tf.Session() as second:
        first.run(enqueue)
        assert second.run(sizes) == [0, 1]
    tf.Session.reset("", ["common"])


def test_a_queue_op_refuses_another_handle():
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected a handle of a Queue"):
        variable = tf.Variable(1.0, use_resource=True)
        with tf.Session() as session:
            session.run(variable.initializer)
            session.run(tf.raw_ops.QueueSizeV2(handle=variable.handle))


def test_compiled_regions_do_not_wait_for_what_waits_for_them():
    first = tf.FIFOQueue(5, tf.float32, shapes=[[3]])
    second = tf.FIFOQueue(5, tf.float32, shapes=[[3]])
    start = first.enqueue(tf.ones([3]))
    middle = tf.tanh(first.dequeue()) * 2.0 + 1.0
    hand_over = second.enqueue(middle)
    end = tf.tanh(second.dequeue()) * 3.0 + middle
    with tf.Session() as session:
        runs = [session.run([end, start, hand_over])[0] for _ in range(4)]
    for run in runs[1:]:
        np.testing.assert_allclose(run, runs[0], rtol=1e-6)
