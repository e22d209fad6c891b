"""Queue runners: their threads, closing of queues, saving, and messages."""

import logging

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def counting(limit, capacity=3):
    queue = tf.FIFOQueue(capacity, tf.int64, shapes=[()], name="q")
    number = tf.train.limit_epochs(tf.constant(7, tf.int64), limit)
    runner = tf.train.QueueRunner(queue, [queue.enqueue(number)] * 2)
    tf.train.add_queue_runner(runner)
    return queue, runner


def test_runners_fill_the_queue_and_close_it_at_the_end():
    queue, runner = counting(5)
    batch = queue.dequeue_up_to(9)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        assert len(threads) == 3
        assert runner.create_threads(session, coordinator) == []
        assert session.run(batch).tolist() == [7] * 5
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(batch)
        coordinator.request_stop()
        coordinator.join(threads)


def test_a_stop_cancels_an_enqueue_that_waits():
    queue, _ = counting(None, capacity=1)
    with tf.Session() as session:
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        assert session.run(queue.dequeue()) == 7
        coordinator.request_stop()
        coordinator.join(threads)
        assert session.run(queue.is_closed())


def test_an_error_reaches_the_coordinator():
    queue = tf.FIFOQueue(3, tf.float32)
    bad = tf.check_numerics(tf.constant(float("inf")), "bad input")
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(bad)]))
    with tf.Session() as session:
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad input"):
            coordinator.join(threads)


def test_runners_are_saved_with_the_graph():
    counting(3)
    saved = tf.train.export_meta_graph()
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.train.import_meta_graph(saved)
        (runner,) = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        (data,) = saved.collection_def["queue_runners"].bytes_list.value
        assert runner.to_proto().SerializeToString() == data
        session.run(tf.local_variables_initializer())
        threads = runner.create_threads(session, start=True)
        for thread in threads:
            thread.join(60)
        assert session.run("q_Close_1") is None
        assert graph.get_operation_by_name("q").type == "FIFOQueueV2"
        assert runner.exceptions_raised == []


def test_starting_without_runners_is_said(caplog):
    tf.constant(1)
    with tf.Session() as session, caplog.at_level(logging.WARNING):
        assert tf.train.start_queue_runners(session) == []
    assert "no queue runners were defined" in caplog.text
    with pytest.raises(TypeError, match=r"sess must be a `tf.Session`"):
        tf.train.start_queue_runners(3)


def test_wrong_closed_types_are_refused():
    queue = tf.FIFOQueue(3, tf.float32)
    for wrong in ([tf.errors.OutOfRangeError], (KeyError,)):
        with pytest.raises(TypeError, match=r"tuple of tf.error types"):
            tf.train.QueueRunner(queue, [queue.enqueue(1.0)], queue_closed_exception_types=wrong)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_runner_that_starts_again_has_raised_nothing_yet():
    queue = tf.FIFOQueue(10, tf.float32)
    wrong = tf.check_numerics(tf.constant(float("nan")), "x")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(wrong)])
    with tf.Session() as session:
        for _ in range(2):
            for thread in runner.create_threads(session, start=True):
                thread.join()
            assert len(runner.exceptions_raised) == 1


def test_a_monitored_session_has_started_its_runners():
    queue = tf.FIFOQueue(10, tf.float32)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
    for kind in (tf.train.MonitoredSession, tf.train.SingularMonitoredSession):
        with tf.Graph().as_default(), kind() as session:
            assert tf.train.start_queue_runners(session) == []


def test_a_queue_that_was_cut_off_says_why():
    """The error of a producer reaches the readers of its queue, through queues in between."""

    def read():
        raise RuntimeError("no such disk")

    with tf.Graph().as_default(), tf.Session() as session:
        first, second = (tf.FIFOQueue(3, tf.float32, shapes=[[]]) for _ in range(2))
        reading = tf.py_func(read, [], tf.float32)
        tf.train.add_queue_runner(tf.train.QueueRunner(first, [first.enqueue(reading)]))
        tf.train.add_queue_runner(tf.train.QueueRunner(second, [second.enqueue(first.dequeue())]))
        item, more = second.dequeue(), first.enqueue(1.0)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coord)
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run(item)
        lines = str(caught.value).splitlines()
        assert "is closed and has insufficient elements (requested 1, current size 0)" in lines[0]
        assert "  its producer failed: UnknownError: RuntimeError: no such disk" in lines
        assert any(line.startswith("    raised at ") for line in lines)
        assert isinstance(caught.value.__cause__, tf.errors.UnknownError)
        with pytest.raises(tf.errors.UnknownError, match="no such disk"):
            coord.join(threads)  # from here on, both queues are cancelled
        with pytest.raises(tf.errors.CancelledError, match="its producer failed: UnknownError"):
            session.run(more)


def test_a_queue_that_was_closed_in_order_has_no_one_to_blame():
    with tf.Graph().as_default(), tf.Session() as session:
        item = tf.train.input_producer([1.0], num_epochs=1).dequeue()
        session.run(tf.local_variables_initializer())
        threads = tf.train.start_queue_runners(session)
        session.run(item)
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run(item)
        assert "failed" not in str(caught.value)
        for thread in threads:
            thread.join()
