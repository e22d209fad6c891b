"""Frames, dead tensors and waiting kernels, on graphs made of the primitives alone."""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import errors
from headrace._src.devices.pending import Pending
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, define
from headrace._src.runtime import step, waits

WAITING: list[Pending] = []


def _wait(x):
    WAITING.append(Pending("a test", WAITING.remove))
    return WAITING[-1]


@define(
    "TestWait",
    "x: T -> y: T",
    "T: type",
    infer=infer.same_as(0),
    kernel=_wait,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def waiting(x, name=None):
    """Wait until a test completes it."""


@pytest.fixture(autouse=True)
def _fresh():
    tf.reset_default_graph()
    WAITING.clear()


def count_up(start, limit, name="loop", parallel=10, body=lambda i: i + 1):
    """while i < limit: i = body(i)"""
    start, limit = tf.convert_to_tensor(start), tf.convert_to_tensor(limit)
    with tf.control_dependencies(None):
        enter = b.enter_op(start, name, parallel_iterations=parallel)
        bound = b.enter_op(limit, name, is_constant=True, parallel_iterations=parallel)
        merge = b.merge_op([enter, enter])
        goes_on = b.loop_cond_op(tf.less(merge.output, bound))
        leave, stay = b.switch_op(merge.output, goes_on)
        with tf.control_dependencies([stay]):
            following = b.next_iteration_op(body(tf.identity(stay)))
        merge.output.op._update_input(1, following)
        return b.exit_op(leave)


@pytest.mark.parametrize("parallel", [1, 2, 10])
@pytest.mark.parametrize("limit", [0, 1, 2, 25])
def test_a_loop(limit, parallel):
    result = count_up(0, limit, parallel=parallel)
    with tf.Session() as session:
        assert session.run(result) == limit


def test_a_loop_in_a_loop():
    outer = count_up(0, 10, "outer", body=lambda i: count_up(i, i + 3, "inner"))
    with tf.Session() as session:
        assert session.run(outer) == 12


@pytest.mark.parametrize("parallel", [1, 3, 10])
def test_a_loop_that_counts_ahead_of_what_comes_late(parallel):
    late = count_up(0, 40, "earlier")

    def body(i, total):
        return i + 1, total + i

    _, total = tf.while_loop(lambda i, _: i < 25, body, [0, late], parallel_iterations=parallel)
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1  # on the primitives
    with tf.Session(config=config) as session:
        assert session.run(total) == 40 + sum(range(25))


def test_a_branch_that_is_not_taken_does_not_run():
    x = tf.placeholder(tf.float32, [])
    no, yes = b.switch_op(x, x > 0.0)
    with tf.control_dependencies([tf.identity(yes)]):
        refused = tf.Assert(False, ["never"])
    with tf.control_dependencies([refused]):
        wrong = tf.identity(yes)
    merged = b.merge_op([no * 2.0, wrong])
    with tf.Session() as session:
        value, index = session.run(merged, {x: -3.0})
        assert (value, index) == (-6.0, 0)
        with pytest.raises(errors.InvalidArgumentError, match="never"):
            session.run(merged, {x: 3.0})


def test_a_loop_in_a_dead_branch_ends_dead():
    x = tf.placeholder(tf.int32, [])
    no, yes = b.switch_op(x, x > 0)
    merged = b.merge_op([no - 1, count_up(yes, 9)])
    with tf.Session() as session:
        assert session.run(merged.output, {x: 2}) == 9
        assert session.run(merged.output, {x: -2}) == -3


def test_a_dead_tensor_cannot_be_fetched():
    no, _ = b.switch_op(1.0, True)
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="dead"):
        session.run(no)


def test_a_trigger_runs_whatever_died():
    no, yes = b.switch_op(1.0, tf.placeholder_with_default(True, []))
    with tf.control_dependencies([tf.identity(no), tf.identity(yes)]):
        trigger = b.control_trigger()
    with tf.control_dependencies([trigger]):
        after = tf.constant(5.0) + 0.0
    with tf.Session() as session:
        assert session.run(after) == 5.0


def test_inputs_of_different_frames_are_refused():
    inside = b.enter_op(1.0, "loop")
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="frames"):
        session.run(b.exit_op(inside + b.enter_op(1.0, "other")))


def test_what_waits_holds_no_thread():
    sums = tf.add_n([waiting(float(i)) + 1.0 for i in range(300)])
    before = threading.active_count()

    def run(session, results):
        results.append(session.run(sums))

    with tf.Session() as session:
        results = []
        thread = threading.Thread(target=run, args=(session, results))
        thread.start()
        while len(WAITING) < 300:
            assert thread.is_alive()
        assert threading.active_count() <= before + 1
        for i, pending in enumerate(list(WAITING)):
            assert pending.claim()
            pending.complete(np.float32(i))
        thread.join()
        assert results == [sum(range(300)) + 300]


def test_closing_the_session_cancels_what_waits():
    y, failed = waiting(1.0), []
    session = tf.Session()

    def run():
        try:
            session.run(y)
        except errors.CancelledError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not WAITING:
        assert thread.is_alive()
    session.close()
    thread.join()
    assert len(failed) == 1 and not WAITING


def test_a_deadline_ends_what_waits_and_what_loops():
    forever = count_up(0, 10, body=lambda i: tf.identity(i))
    waits = waiting(1.0)
    with tf.Session() as session:
        for endless in (forever, waits):
            with pytest.raises(errors.DeadlineExceededError):
                session.run(endless, options=tf.RunOptions(timeout_in_ms=50))
        assert session.run(tf.constant(2.0) * 3.0) == 6.0
    assert not WAITING


def test_a_deadline_that_passes_while_nothing_runs(monkeypatch):
    class Late(threading.Timer):
        def start(self):
            self.function()

        def cancel(self):
            self.finished.set()

    monkeypatch.setattr(step, "Timer", Late)
    with tf.Session() as session:
        options = tf.RunOptions(timeout_in_ms=50)
        assert session.run(tf.constant(1.0), options=options) == 1.0  # there was nothing to stop


def test_an_error_cancels_what_waits():
    x = tf.placeholder(tf.float32, [])
    bad = tf.check_numerics(x, "bad")
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="bad"):
        session.run([waiting(1.0), bad], {x: np.nan})
    assert not WAITING


def test_a_long_wait_is_reported(caplog):
    y = waiting(1.0)
    tf.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, "a runner")
    waits.report_quiet([("an element", y.op)], 5)
    (record,) = caplog.records
    assert "for an element" in record.message and "test_frames.py" in record.message
    assert "start_queue_runners" in record.message
