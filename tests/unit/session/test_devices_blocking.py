"""Steps on several devices that block, fail or are stopped: errors are those of one device, no
thread is left, and the session stays usable.
"""

import re
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from headrace.python.client import timeline

import headrace as tf
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import _Received
from headrace._src.ops.base.transfers import is_recv
from tests.unit.session.devices import (
    blocked_step,
    in_thread,
    late,
    on,
    session,
    until_cancelled,
    working,
)


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture(autouse=True)
def no_thread_left():
    yield
    until = time.monotonic() + 10
    while working() and time.monotonic() < until:
        time.sleep(0.01)
    assert not working(), [t.name for t in threading.enumerate()]


@contextmanager
def pressing_ctrl_c(s):
    """Press Ctrl-C while a step of the session runs, and again after 10 seconds: Python ignores one
    that it sees in a weak reference's callback.
    """
    over = threading.Event()

    def interrupt(*_):
        if not over.is_set():
            raise KeyboardInterrupt

    def press():
        while not (s._resources._steps or over.is_set()):
            time.sleep(0.001)
        while not over.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            over.wait(10)

    before = signal.signal(signal.SIGINT, interrupt)
    pressed = in_thread(press)
    try:
        yield
    finally:
        over.set()
        pressed()
        signal.signal(signal.SIGINT, before)


# -- Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fixed", "counted", "traced", "deadline"])
def test_the_error_of_a_partition_is_its_kernels(kind):
    x = tf.placeholder(tf.float32, [None])
    with on(0):
        count = tf.Variable(0.0)
        counted = count.assign_add(1.0)
    with on(1):
        bad = tf.reshape(tf.tanh(x), [2, 2], name="bad")
    with on(2):
        with tf.control_dependencies([bad]):
            after = count.assign_add(100.0)
        z = tf.reduce_sum(bad)
        if kind == "counted":
            z = tf.py_func(lambda a: a, [z], tf.float32)
    fetches = [z, counted, after]
    options = tf.RunOptions(timeout_in_ms=60_000) if kind == "deadline" else None
    metadata = None
    if kind == "traced":
        options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with session() as s:
        s.run(count.initializer)
        for size in (3, 4, 3, 5):
            if size == 4:
                assert np.isfinite(s.run(fetches, {x: [0.5] * 4}, options, metadata)[0])
                s.run(count.initializer)
                continue
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                s.run(fetches, {x: [0.5] * size}, options, metadata)
            assert caught.value.op is bad.op
            assert "test_devices_blocking.py" in str(caught.value)
            assert s.run(count) < 100.0
            s.run(count.initializer)


def test_a_failure_while_another_partition_is_blocked():
    queue = tf.FIFOQueue(3, tf.float32, [])
    x = tf.placeholder(tf.float32, [None])
    with on(1):
        bad = tf.reshape(x, [2, 2], name="bad")
    with on(2):
        element = queue.dequeue()
    with session() as s:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            s.run([bad, element], {x: [1.0]})
        assert caught.value.op is bad.op
        s.run(queue.enqueue(5.0))
        assert s.run(element) == 5.0
        assert s.run(queue.size()) == 0


def test_a_failure_in_a_loop_of_several_devices():
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with on(1):
            b = tf.check_numerics(a / (3.0 - a), "too far", name="check")
        with on(2):
            return i + 1, tf.identity(b) * 0.0 + a + 1.0

    _, y = tf.while_loop(lambda i, _: i < 10, body, [0, x])
    with session() as s:
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError, match="too far"):
                s.run(y, {x: 0.0})
        assert s.run(y, {x: 100.5}) == 110.5


# -- Queues ----------------------------------------------------------------------------------------


def test_an_enqueue_and_a_dequeue_on_different_devices_in_one_step():
    with on(0):
        queue = tf.FIFOQueue(1, tf.float32, [])
        x = tf.placeholder(tf.float32, [])
    with on(1):
        value = x * 2.0
    with on(2):
        element = queue.dequeue() + 1.0
    put = queue.enqueue(value)
    with session(allow_soft_placement=True) as s:
        for i in range(5):
            assert s.run([element, put], {x: i})[0] == 2 * i + 1


def test_threads_pass_elements_between_devices():
    with on(0):
        queue = tf.FIFOQueue(2, tf.float32, [])
        x = tf.placeholder(tf.float32, [])
    with on(1):
        put = queue.enqueue(tf.tanh(x) * 0.0 + x)
    with on(2):
        element = queue.dequeue() * 1.0
    with session(allow_soft_placement=True) as s:
        producers = [
            in_thread(lambda k=k: [s.run(put, {x: 10 * k + i}) for i in range(10)])
            for k in range(3)
        ]
        consumers = [in_thread(lambda: [s.run(element) for _ in range(10)]) for _ in range(3)]
        taken = [v for consumer in consumers for v in consumer()]
        for producer in producers:
            producer()
    assert sorted(taken) == list(range(30))


def test_a_blocked_partition_ends_when_the_session_is_closed():
    queue = tf.FIFOQueue(2, tf.float32, [])
    with on(1):
        element = queue.dequeue()
    with on(2):
        y = element + 1.0
    s = session()
    result = in_thread(s.run, y)
    blocked_step(s)
    s.close()
    with pytest.raises(tf.errors.CancelledError, match="the session was closed"):
        result()


def test_a_step_that_is_cancelled_once_it_has_an_element_ends_well(monkeypatch):
    """The element was taken from the queue for it, and would be lost."""
    queue = tf.FIFOQueue(3, tf.int32, [])
    with on(1):
        element = queue.dequeue()
    with on(2):
        y = element + 0
    put = queue.enqueue(7)
    with session() as s:
        result = in_thread(s.run, y)
        step = blocked_step(s)
        complete = Pending.complete

        def cancel_first(pending, value):
            if not isinstance(pending, _Received):
                step.cancel(tf.errors.CancelledError(None, None, "too late"))
                time.sleep(0.05)  # let the step see that
            complete(pending, value)

        monkeypatch.setattr(Pending, "complete", cancel_first)
        s.run(put)
        assert result() == 7


def test_a_step_that_is_cancelled_while_it_waits_takes_no_element():
    queue = tf.FIFOQueue(3, tf.int32, [])
    with on(1):
        element = queue.dequeue()
    with on(2):
        y = element + 0
    with session() as s:
        for _ in range(3):
            result = in_thread(s.run, y)
            blocked_step(s).cancel(tf.errors.CancelledError(None, None, "enough"))
            with pytest.raises(tf.errors.CancelledError, match="enough"):
                result()
        s.run(queue.enqueue(7))
        assert s.run(y) == 7


# -- Deadlines and interrupts ----------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "session"])
def test_a_deadline_names_what_was_waited_for(by):
    queue = tf.FIFOQueue(2, tf.float32, [], name="empty_queue")
    with on(1):
        element = queue.dequeue(name="take")
    with on(2):
        y = element + 1.0
    put = queue.enqueue(1.0)

    def run(timeout):
        options = tf.RunOptions(timeout_in_ms=timeout) if by == "run" else None
        with session(operation_timeout_in_ms=timeout if by == "session" else 0) as s:
            with pytest.raises(tf.errors.DeadlineExceededError) as caught:
                s.run(y, options=options)
            for each in (put, y) if caught.value.op is not None else ():  # the session is usable
                s.run(each)
            s.run(y, options=options)

    error = late(run)
    assert "empty_queue" in str(error) and error.op is element.op


def test_a_deadline_names_what_ran():
    with on(1):
        slow = tf.py_func(lambda: until_cancelled() or np.float32(1), [], tf.float32, name="slow")
    with on(2):
        y = slow + 1.0
    with session() as s:
        assert "slow" in str(late(lambda t: s.run(y, options=tf.RunOptions(timeout_in_ms=t))))


def test_a_deadline_stops_a_loop_and_names_it():
    with on(1):
        _, a = tf.while_loop(lambda i, _: i < 10**9, lambda i, a: (i + 1, a * 0.5), [0, 1.0])
    with on(2):
        y = a + 1.0
    with session() as s:
        error = late(lambda t: s.run(y, options=tf.RunOptions(timeout_in_ms=t)))
    assert re.search(r"passed while .* 'while.*' ran", str(error))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("blocked", ["queue", "loop"])
def test_ctrl_c_ends_a_blocked_step(blocked):
    queue = tf.FIFOQueue(2, tf.float32, [])
    with on(1):
        if blocked == "queue":
            element = queue.dequeue()
        else:
            _, element = tf.while_loop(
                lambda i, _: i < 10**9, lambda i, a: (i + 1, a * 0.5), [0, 1.0]
            )
    with on(2):
        y = element + 1.0
    with on(0):
        z = tf.constant(1.0) + 1.0
    with session() as s:
        s.run(z)
        with pytest.raises(KeyboardInterrupt), pressing_ctrl_c(s):
            s.run([y, z])
        s.run(queue.enqueue(1.0))
        assert s.run(z) == 2.0 and s.run(queue.size()) == 1


def test_closing_stops_a_loop_on_another_device():
    with on(1):
        _, a = tf.while_loop(lambda i, _: i < 10**9, lambda i, a: (i + 1, a * 0.5), [0, 1.0])
    with on(2):
        y = a + 1.0
    with on(0):
        w = tf.placeholder(tf.float32, [300, 300])
        z = tf.matmul(w, w)
    s = session()
    result = in_thread(s.run, [y, z], {w: np.ones((300, 300))})
    while not s._resources._steps:
        time.sleep(0.001)
    time.sleep(0.1)
    s.close()
    with pytest.raises(tf.errors.CancelledError, match="the session was closed"):
        result()


# -- Python functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("fed", [False, True])
def test_python_functions_on_several_devices_wait_for_each_other(eager, fed):
    met = threading.Barrier(3)

    def meet(a):
        met.wait(20)
        return a

    results = []
    x = tf.placeholder_with_default(1.0, [])
    for i in range(3):
        with on(i):
            given = x + float(i)
            function = tf.py_function if eager else tf.py_func
            results.append(function(meet, [given], tf.float32))
    with on(1):
        total = tf.add_n(results)
    with session() as s:
        for _ in range(2):
            assert s.run(total, {x: 2.0} if fed else None) == (9.0 if fed else 6.0)


def test_a_python_function_waits_for_an_operation_of_another_device():
    ready = threading.Event()
    with on(0):
        queue = tf.FIFOQueue(2, tf.float32, [])

        def wait():
            assert ready.wait(20)
            return np.float32(1)

        first = tf.py_func(wait, [], tf.float32)
    with on(1):
        second = tf.py_func(lambda: (ready.set(), np.float32(2))[1], [], tf.float32)
    with session() as s:
        assert s.run([first, second, queue.size()]) == [1.0, 2.0, 0]


def test_a_blocked_step_says_what_it_waits_for():
    queue = tf.FIFOQueue(2, tf.float32, [], name="never_filled")
    with on(1):
        element = queue.dequeue(name="take")
    with on(2):
        y = element + 1.0
    s = session()
    result = in_thread(s.run, y)
    (first, op), (second, recv) = blocked_step(s).waiting()
    assert "never_filled" in first and op.name == "take"
    assert second.startswith("tensor 'take") and is_recv(recv)
    s.close()
    with pytest.raises(tf.errors.CancelledError):
        result()


# -- Traces ----------------------------------------------------------------------------------------


def test_a_trace_shows_each_device_with_its_sends_and_receives():
    with on(1):
        x = tf.placeholder(tf.float32, [3])
        a = tf.tanh(x, name="a")
    with on(2):
        b = tf.square(a, name="b")
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    with session() as s:
        s.run(b, {x: [1, 2, 3]}, options, metadata)
    shown = {
        d.device.rsplit(":", 1)[-1]: [n.timeline_label for n in d.node_stats]
        for d in metadata.step_stats.dev_stats
    }
    assert any("_Send" in label for label in shown["1"])
    assert any("_Recv" in label for label in shown["2"])
    assert any("Tanh" in label for label in shown["1"])
    trace = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
    assert "CPU:1" in trace and "CPU:2" in trace and "_Recv" in trace
