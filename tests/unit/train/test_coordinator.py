"""Threads that stop together."""

import threading

import pytest

import headrace as tf


def worker(coordinator, function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_join_waits_for_threads_that_end_by_themselves():
    coordinator, done = tf.train.Coordinator(), []
    threads = [worker(coordinator, lambda: done.append(1)) for _ in range(3)]
    coordinator.join(threads)
    assert done == [1, 1, 1] and coordinator.joined and not coordinator.should_stop()


def test_the_first_error_stops_all_and_is_raised_where_they_are_joined():
    coordinator = tf.train.Coordinator()

    def fail():
        with coordinator.stop_on_exception():
            raise KeyError("first")

    waiting = worker(coordinator, coordinator.wait_for_stop)
    coordinator.register_thread(waiting)
    failing = worker(coordinator, fail)
    with pytest.raises(KeyError, match="first"):
        coordinator.join([failing])
    assert not waiting.is_alive()
    coordinator.clear_stop()
    assert not coordinator.should_stop() and not coordinator.joined
    coordinator.raise_requested_exception()


def test_the_end_of_the_input_is_no_error():
    coordinator = tf.train.Coordinator()
    coordinator.request_stop(tf.errors.OutOfRangeError(None, None, "the end"))
    coordinator.join([])
    other = tf.train.Coordinator(clean_stop_exception_types=(KeyError,))
    other.request_stop(tf.errors.OutOfRangeError(None, None, "the end"))
    with pytest.raises(tf.errors.OutOfRangeError):
        other.join([])


def test_an_error_after_the_join_is_raised_at_once():
    coordinator = tf.train.Coordinator()
    coordinator.join([])
    with pytest.raises(ValueError, match="late"):
        coordinator.request_stop(ValueError("late"))


def test_threads_that_go_on_are_named():
    coordinator, over = tf.train.Coordinator(), threading.Event()
    thread = threading.Thread(target=over.wait, name="stubborn")
    thread.start()
    coordinator.request_stop()
    with pytest.raises(RuntimeError, match="still running: stubborn"):
        coordinator.join([thread], stop_grace_period_secs=0)
    coordinator.join([thread], stop_grace_period_secs=0, ignore_live_threads=True)
    over.set()
    thread.join()


def test_looper_threads_call_until_the_stop():
    coordinator, calls = tf.train.Coordinator(), []

    def call(limit, step=1):
        calls.append(step)
        if len(calls) == limit:
            coordinator.request_stop()

    looper = tf.train.LooperThread.loop(coordinator, None, call, (3,), {"step": 2})
    coordinator.join()
    assert calls == [2, 2, 2] and not looper.is_alive()


def test_looper_threads_report_errors():
    coordinator = tf.train.Coordinator()

    class Looper(tf.train.LooperThread):
        def run_loop(self):
            raise OSError("disk")

    Looper(coordinator, 0.001).start()
    with pytest.raises(OSError, match="disk"):
        coordinator.join()
