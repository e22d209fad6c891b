"""The driver of a step in partitions: which thread runs what, and what is left at the end."""

import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices import workers
from headrace._src.devices.pending import Pending
from headrace._src.graph.definition import definitions
from headrace._src.runtime import ShapesChanged
from headrace._src.runtime.partitions import PartitionedStep, _Run
from tests.unit.session.devices import executable, in_thread, on, round_trip, session


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def test_plain_partitions_run_in_their_fixed_order_and_others_count():
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(x)
    queue = tf.FIFOQueue(2, tf.float32, [2])
    value = np.zeros(2, np.float32)
    with session() as s:
        plain = executable(s, [y], {x: value})
        assert plain._lines is not None
        (blocked,) = [executable(s, [y, queue.dequeue()], {x: value})]
        assert blocked._lines is None


def test_a_step_that_goes_back_and_forth_never_changes_threads(monkeypatch):
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(round_trip(round_trip(x)))
    with session() as s:
        wanted = s.run(y, {x: [0.5, 1.0]})
        monkeypatch.setattr(workers, "start", lambda call: pytest.fail("a thread was started"))
        assert s.run(y, {x: [0.5, 1.0]}).tolist() == wanted.tolist()


def test_a_thread_joins_when_something_long_begins_while_another_partition_is_ready(monkeypatch):
    started, start = [], workers.start
    monkeypatch.setattr(workers, "start", lambda call: (started.append(call), start(call)))
    x = tf.placeholder(tf.float32, [4, 4])
    with on(1):
        y = tf.matmul(x, x)
    with on(2):
        z = tf.matmul(x, x)
    with session() as s:
        for _ in range(3):
            found = s.run([y, z], {x: np.eye(4)})
            assert np.array_equal(found[0], np.eye(4)) and np.array_equal(found[1], np.eye(4))
    assert started


def test_an_error_of_a_thread_that_joined_is_the_steps(monkeypatch):
    x = tf.placeholder(tf.float32, [None, 4])
    w = tf.placeholder(tf.float32, [None, 4])
    with on(1):
        y = tf.matmul(x, x, transpose_b=True)
    with on(2):
        z = tf.matmul(w, w, name="wrong")
    with session() as s:
        for _ in range(5):
            with pytest.raises(tf.errors.InvalidArgumentError, match="wrong"):
                s.run([y, z], {x: np.ones((3, 4)), w: np.ones((3, 4))})
        assert s.run(y, {x: np.ones((1, 4))}) == 4


class Blocked(_Run):
    """A run that is blocked until it is woken `count` times."""

    def __init__(self, count=1):
        self.count = count
        self.advanced = 0

    def advance(self):
        self.advanced += 1
        return self.advanced > self.count


def driver(s, runs):
    x = tf.placeholder(tf.float32, [2])
    made = executable(s, [round_trip(x)], {x: np.zeros(2, np.float32)})
    step = PartitionedStep(made)
    step._runs = list(runs)
    step._left = len(runs)
    step.ready.extend(runs)
    for run in runs:
        run.queued = True
    return step


def test_a_run_that_is_woken_while_it_runs_runs_again():
    with session() as s:
        run = Blocked()
        step = driver(s, [run])
        advance = run.advance

        def advance_and_wake():
            step.wake(run)
            step.wake(run)
            return advance()

        run.advance = advance_and_wake
        step._work()
        assert run.over and run.advanced == 2


def test_a_run_is_queued_once_and_never_after_its_end():
    with session() as s:
        run = Blocked(0)
        step = driver(s, [run])
        step.wake(run)
        assert list(step.ready) == [run]
        step._work()
        step.wake(run)
        assert not step.ready


def test_a_sleeping_step_is_woken_from_another_thread():
    with session() as s:
        runs = [Blocked(), Blocked()]
        step = driver(s, runs)
        done = in_thread(step._work)
        until = time.monotonic() + 20
        while step.sleeper() is None and time.monotonic() < until:
            time.sleep(0.001)
        assert step.sleeper() is not None
        for run in runs:
            step.wake(run)
        done()
        assert all(run.over for run in runs) and step.sleeper() is None


def test_a_step_with_a_thread_at_work_does_not_count_as_asleep():
    go = threading.Event()
    with on(0):
        slow = tf.py_func(lambda: (go.wait(20), np.float32(1))[1], [], tf.float32)
    with on(1):
        other = tf.py_func(lambda: np.float32(2), [], tf.float32)
    with session() as s:
        result = in_thread(s.run, [slow, other])
        until = time.monotonic() + 20
        while time.monotonic() < until:
            steps = list(s._resources._steps)
            if steps and steps[0].waiting() and steps[0]._sleeper is not None:
                break
            time.sleep(0.001)
        assert steps[0].sleeper() is None
        go.set()
        assert result() == [1.0, 2.0]


def test_a_cancelled_step_raises_the_error_also_where_it_waits_for_another_partition(monkeypatch):
    """A partition of a fixed order that is woken without a value does not use it."""
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(x)
    value = np.zeros(2, np.float32)
    with session() as s:
        made = executable(s, [y], {x: value})
        step = PartitionedStep(made)
        step._runs = runs = made.runs(step, [value])
        waiting = next(run for run in runs if run._line.code[0][2] is not None)
        assert waiting.advance() is False and isinstance(waiting._blocked, Pending)
        ((what, _),) = waiting.waiting()
        assert what.startswith("tensor 'there/to_CPU_0'")
        assert waiting.advance() is False  # nothing has come
        step.cancel(tf.errors.AbortedError(None, None, "enough"))
        with pytest.raises(tf.errors.AbortedError, match="enough"):
            waiting.advance()


@pytest.mark.parametrize("counts", [False, True])
def test_shapes_are_looked_at_before_anything_begins(counts):
    with on(0):
        count = tf.Variable(0.0)
        counted = count.assign_add(1.0)
    with on(1):
        v = tf.Variable(np.zeros(2, np.float32))
        grow = tf.assign(v, np.zeros(5, np.float32), validate_shape=False)
    with on(2):
        y = v.read_value() * 2.0
    fetches = [counted, y]
    if counts:
        with on(0):
            queue = tf.FIFOQueue(9, tf.float32, [])
        fetches.append(queue.size())
    with session() as s:
        s.run(tf.global_variables_initializer())
        made = executable(s, fetches)
        made.run([])
        s.run(grow.op)
        with pytest.raises(ShapesChanged):
            made.run([])
        assert s.run(count) == 1.0
        assert s.run(fetches)[1].shape == (5,)
        assert s.run(count) == 2.0


def test_a_variable_that_changes_shape_later_does_not_begin_the_step_again():
    with on(0):
        count = tf.Variable(0.0)
        queue = tf.FIFOQueue(9, tf.float32, [])
        counted = count.assign_add(1.0)
        with tf.control_dependencies([counted]):
            element = queue.dequeue()
    with on(1):
        v = tf.Variable(np.zeros(2, np.float32))
        grow = tf.assign(v, np.zeros(5, np.float32), validate_shape=False)
        with tf.control_dependencies([tf.identity(element)]):
            y = v.read_value() * 2.0
    put = queue.enqueue(1.0)
    with session() as s:
        s.run(tf.global_variables_initializer())
        result = in_thread(s.run, y)
        until = time.monotonic() + 20
        while time.monotonic() < until and not any(
            step.sleeper() for step in list(s._resources._steps)
        ):
            time.sleep(0.001)
        s.run(grow.op)
        s.run(put)
        with suppress(tf.errors.OpError):  # native code may refuse the new shape
            result()
        assert s.run(count) == 1.0 and s.run(queue.size()) == 0


@pytest.mark.parametrize("fails", [False, True])
def test_what_lives_as_long_as_the_step_is_dropped(fails):
    x = tf.placeholder(tf.float32, [None])
    with on(1):
        array = tf.TensorArray(tf.float32, 2).write(0, x)
    with on(2):
        y = tf.reshape(array.read(0), [2], name="two")
    with session(allow_soft_placement=True) as s:
        if fails:
            with pytest.raises(tf.errors.InvalidArgumentError):
                s.run(y, {x: [1.0]})
        else:
            s.run(y, {x: [1.0, 2.0]})
        left = [key for key, found in s._resources._own.items() if "_step" in key[1] and found]
        assert not left and not s._resources._steps


def test_sends_and_receives_are_no_public_ops():
    assert not {"_Transfer", "_SendControl"} & set(definitions())
