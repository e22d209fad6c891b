"""Python functions as ops: values, and errors that cross back."""

import threading
import time
import traceback

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def fails(x):
    raise ValueError(f"no {x}")


@pytest.mark.parametrize("build", [tf.py_func, tf.py_function, tf.numpy_function])
def test_errors_have_both_tracebacks(build):
    y = build(fails, [tf.constant(3)], tf.float32)  # here it is made
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: no 3") as caught:
        run(y)
    assert "# here it is made" in str(caught.value)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert "raise ValueError" in "".join(traceback.format_exception(cause))
    assert caught.value.op is y.op


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TypeError, tf.errors.InvalidArgumentError),
        (StopIteration, tf.errors.OutOfRangeError),
        (MemoryError, tf.errors.ResourceExhaustedError),
        (NotImplementedError, tf.errors.UnimplementedError),
        (ZeroDivisionError, tf.errors.UnknownError),
    ],
)
def test_kinds_of_errors(raised, expected):
    def function():
        raise raised("why")

    with pytest.raises(expected, match=f"{raised.__name__}: why"):
        run(tf.py_function(function, [], tf.float32))


@pytest.mark.parametrize(
    ("result", "types", "error", "message"),
    [
        (
            None,
            [tf.float32],
            tf.errors.InvalidArgumentError,
            "returns 0 values, but expects to see 1",
        ),
        (1.5, [], tf.errors.InvalidArgumentError, "returns 1 values, but expects to see 0"),
        ({"a": 1}, tf.float32, tf.errors.InternalError, "Unsupported object type dict"),
        (10**30, tf.int64, tf.errors.InternalError, "Unsupported object type int"),
    ],
)
def test_what_is_no_result(result, types, error, message):
    with pytest.raises(error, match=message):
        run(tf.py_func(lambda: result, [], types))


def test_gradients():
    x = tf.constant(2.0)
    assert tf.gradients(tf.py_func(lambda v: v, [x], tf.float32), x) == [None]

    @tf.custom_gradient
    def doubled(v):
        return tf.py_func(lambda a: a * 2, [v], tf.float32), lambda dy: dy * 2.0

    assert run(tf.gradients(doubled(x), x)) == [2]


class Meeting:
    """Functions that return once as many of them run as shall meet; -1 if the others don't come."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count)

    def __call__(self, *arguments):
        try:
            self.barrier.wait(10)
        except threading.BrokenBarrierError:
            return np.int64(-1)
        return np.int64(1)


BUILDERS = {
    "py_func": lambda f, *inputs: tf.py_func(f, inputs, tf.int64),
    "stateless": lambda f, *inputs: tf.py_func(f, inputs, tf.int64, stateful=False),
    "numpy_function": lambda f, *inputs: tf.numpy_function(f, inputs, tf.int64),
    "py_function": lambda f, *inputs: tf.py_function(f, inputs, tf.int64),
}


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("kind", BUILDERS)
def test_functions_of_a_step_may_wait_for_each_other(kind, count):
    meeting = Meeting(count)
    x = tf.placeholder(tf.int64, [])
    found = [BUILDERS[kind](meeting, x) + 1 for _ in range(count)]
    with tf.Session() as session:
        for _ in range(3):
            assert session.run(found, {x: 7}) == [2] * count
        # Steps with a deadline, or that are traced, count what each op waits for.
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, timeout_in_ms=20_000)
        metadata = tf.RunMetadata()
        assert session.run(found, {x: 7}, options, metadata) == [2] * count


def test_a_function_waits_for_what_follows_another_one():
    done = threading.Event()
    x = tf.placeholder(tf.int64, [])
    waiting = tf.py_func(lambda v: np.int64(done.wait(10)), [x], tf.int64)
    first = tf.py_func(lambda v: v + 1, [x], tf.int64)

    def finish(v):
        done.set()
        return v

    last = tf.py_func(finish, [tf.square(first)], tf.int64)
    with tf.Session() as session:
        for _ in range(3):
            done.clear()
            assert session.run([waiting, last], {x: 2}) == [1, 9]


def test_a_function_waits_for_an_element_that_its_step_adds():
    queue = tf.FIFOQueue(1, tf.int64, [[]])
    add, take = queue.enqueue(np.int64(5)), queue.dequeue()
    with tf.Session() as session:
        y = tf.py_func(lambda: session.run(take), [], tf.int64)
        for _ in range(3):
            assert session.run([y, add])[0] == 5


@pytest.mark.parametrize("taken", [True, False])
def test_functions_in_a_branch_and_beside_it_meet(taken):
    meeting = Meeting(3)
    on = tf.placeholder(tf.bool, [])

    def branch():
        return tf.py_func(meeting, [], tf.int64) + tf.py_func(meeting, [], tf.int64)

    y = tf.cond(
        on, branch if taken else lambda: np.int64(0), lambda: np.int64(0) if taken else branch()
    )
    beside = tf.py_func(meeting, [], tf.int64)
    with tf.Session() as session:
        for _ in range(3):
            assert session.run([y, beside], {on: taken}) == [2, 1]


def test_functions_in_a_loop_meet():
    meeting = Meeting(2)

    def body(i, total):
        found = [tf.py_func(meeting, [i], tf.int64) for _ in range(2)]
        for t in found:
            t.set_shape([])
        return i + 1, total + found[0] + found[1]

    _, total = tf.while_loop(lambda i, _: i < 3, body, [0, np.int64(0)])
    assert run(total) == 6


def test_a_step_ends_when_all_its_functions_have():
    ended = []

    def slow():
        time.sleep(0.1)
        ended.append(1)
        return np.int64(0)

    def fail():
        raise ValueError("no")

    found = [tf.py_func(slow, [], tf.int64), tf.py_func(fail, [], tf.int64)]
    for fetches in (found, found[::-1]):
        ended.clear()
        with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: no"):
            run(fetches)
        assert ended == [1]


def test_errors_of_functions_that_took_long():
    def slow():
        time.sleep(0.05)
        raise KeyError("late")

    meeting = Meeting(2)
    found = [tf.py_func(slow, [], tf.int64), *(tf.py_func(meeting, [], tf.int64) for _ in "ab")]
    with pytest.raises(tf.errors.UnknownError, match="KeyError: 'late'") as caught:
        run(found)
    assert caught.value.op is found[0].op


def test_a_stateless_function_of_constants_is_called_once():
    calls = []

    def count(*arguments):
        calls.append(arguments)
        return np.int64(len(calls))

    free = tf.py_func(count, [], tf.int64, stateful=False)
    of_constants = tf.py_func(count, [tf.constant(2) * 3], tf.int64, stateful=False)
    x = tf.placeholder(tf.int64, [])
    of_fed = tf.py_func(count, [x], tf.int64, stateful=False)
    stateful = tf.py_func(count, [], tf.int64)
    with tf.Session() as session:
        assert [session.run(free) for _ in range(4)] == [1] * 4
        assert [session.run(of_constants) for _ in range(4)] == [2] * 4
        assert [session.run(of_fed, {x: 0}) for _ in range(2)] == [3, 4]
        assert [session.run(stateful) for _ in range(2)] == [5, 6]
    with tf.Session() as session:
        assert session.run(free) == 7


@pytest.mark.parametrize("stateful", [True, False])
def test_functions_without_outputs(stateful):
    """As in TensorFlow, a stateful one is an operation, and a stateless one an empty list."""
    called = []
    y = tf.py_func(lambda x: called.append(x), [tf.constant(1)], [], stateful=stateful)
    with tf.Session() as session:
        if stateful:
            assert isinstance(y, tf.Operation)
            assert session.run(y) is None
            assert called == [1]
        else:
            assert y == []
            assert session.run(y) == []
