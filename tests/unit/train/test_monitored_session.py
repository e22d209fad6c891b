"""Monitored sessions: what the recorded traces (tests/oracle/sequences_monitored.py) don't show."""

import threading
import time
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

import headrace as tf
from headrace._src.train.sessions import session_manager
from headrace._src.train.sessions.hooks import stopping

Pair = namedtuple("Pair", "step doubled")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def counter():
    step = tf.train.get_or_create_global_step()
    return step, tf.assign_add(step, 1)


class Asking(tf.train.SessionRunHook):
    """Asks for something at each run, and keeps what it gets; not hashable."""

    __hash__ = None

    def __init__(self, fetches):
        self.fetches, self.got = fetches, []

    def before_run(self, context):
        return tf.train.SessionRunArgs(self.fetches)

    def after_run(self, context, values):
        self.got.append(values.results)


def test_fetches_keep_their_nesting():
    step, advance = counter()
    doubled = 2 * advance
    nested, named = Asking({"a": [doubled]}), Asking(Pair(advance, doubled))
    with tf.train.MonitoredSession(hooks=[nested, named]) as session:
        assert session.run(advance) == 1
        assert session.run([advance, doubled]) == [2, 4]
        assert session.run((advance,)) == (3,)
        assert session.run(Pair(advance, doubled)) == Pair(4, 8)
        assert session.run({"x": (advance, [doubled])}) == {"x": (5, [10])}
        assert session.run([]) == []
        assert session.run(step.name) == 7
    assert nested.got == [{"a": [2 * n]} for n in range(1, 8)]
    assert named.got == [Pair(n, 2 * n) for n in range(1, 8)]


def test_what_was_fetched_by_nobody_is_none():
    _, advance = counter()
    seen = Asking(None)
    with tf.train.MonitoredSession(hooks=[seen]) as session:
        session.run(advance)
    assert seen.got == [None]


def test_a_closed_session_says_so():
    _, advance = counter()
    session = tf.train.MonitoredSession()
    session.close()
    assert session.should_stop() and session.graph is None
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(advance)
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run_step_fn(lambda step_context: None)


def test_step_functions_are_functions():
    counter()
    with tf.train.MonitoredSession() as session, pytest.raises(TypeError, match="callable"):
        session.run_step_fn(3)


def test_a_target_that_is_no_address_is_refused():
    counter()
    with pytest.raises(tf.errors.InvalidArgumentError, match="an address is host:port"):
        tf.train.MonitoredTrainingSession(master="grpc://other")


def test_a_step_function_sees_the_new_session_after_a_loss():
    step, _ = counter()
    sessions = []

    def losing(step_context):
        sessions.append(step_context.session)
        if len(sessions) == 1:
            raise tf.errors.UnavailableError(None, None, "gone")
        return step_context.session.run(step)

    with tf.train.MonitoredSession() as session:
        assert session.run_step_fn(losing) == 0
    assert sessions[0] is not sessions[1]


def test_a_session_whose_hooks_fail_is_closed():
    queue = tf.train.input_producer([1, 2], shuffle=False)
    queue.dequeue()
    seen = []

    class Failing(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            seen.extend([session, coord])
            raise ValueError("not like this")

    with pytest.raises(ValueError, match="not like this"):
        tf.train.MonitoredSession(hooks=[Failing()])
    session, coord = seen
    coord.join(stop_grace_period_secs=30)  # the threads of the queue have ended
    with pytest.raises(RuntimeError, match="closed"):
        session.run(tf.get_default_graph().get_operations()[0])


def test_a_plain_run_takes_the_fast_way(monkeypatch):
    """Hooks that want no options don't slow a step down."""
    _, advance = counter()
    with tf.train.MonitoredSession(hooks=[Asking(advance)]) as session:
        raw = session._tf_sess()
        monkeypatch.setattr(raw, "_run_watched", lambda *args: pytest.fail("watched"))
        assert session.run(advance) == 1


# -- Chief and worker ------------------------------------------------------------------------------


def shared_model():
    """A model whose variables sessions of this process share, and what advances its step."""
    with tf.container("test_monitored_session"):
        weight = tf.get_variable("weight", initializer=3.0)
        _, advance = counter()
    return weight, advance


@pytest.fixture
def shared():
    yield
    tf.Session.reset("", ["test_monitored_session"])


def test_a_worker_waits_for_the_chief(shared, monkeypatch):
    waiting, started = threading.Event(), threading.Event()
    got = []

    def wait(seconds):
        waiting.set()
        assert started.wait(60)

    clock = SimpleNamespace(sleep=wait, monotonic=time.monotonic)
    monkeypatch.setattr(session_manager, "time", clock)

    def work():
        with tf.Graph().as_default():
            weight, _ = shared_model()
            with tf.train.MonitoredTrainingSession(is_chief=False, max_wait_secs=60) as session:
                got.append(session.run(weight))

    worker = threading.Thread(target=work)
    worker.start()
    assert waiting.wait(60) and not got
    _, advance = shared_model()
    with tf.train.MonitoredTrainingSession() as session:
        session.run(advance)
        started.set()
        worker.join(60)
    assert got == [3.0]


def test_a_worker_begins_at_its_step(shared, monkeypatch):
    """GlobalStepWaiterHook: the chief's steps let the worker's first run go on."""
    monkeypatch.setattr(stopping, "_GLANCE", 0.001)
    _, advance = shared_model()
    got = []

    def work(graph):
        with graph.as_default():
            _, advance = shared_model()
            hook = tf.train.GlobalStepWaiterHook(3)
            session = tf.train.MonitoredTrainingSession(is_chief=False, hooks=[hook])
            with session:
                got.append(session.run(advance))

    with tf.train.MonitoredTrainingSession() as session:
        worker = threading.Thread(target=work, args=(tf.Graph(),))
        worker.start()
        for _ in range(3):
            assert not got
            session.run(advance)
        worker.join(60)
    assert got == [4]


# -- Stopping and going on -------------------------------------------------------------------------


def random_walk(directory, last_step, **options):
    """Train on shuffled data of several epochs, with noise; returns the weight."""
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        queue = tf.train.range_input_producer(4, num_epochs=5, seed=7)
        noisy = tf.cast(queue.dequeue(), tf.float64) + tf.random_normal([], dtype=tf.float64)
        weight = tf.get_variable("weight", initializer=np.float64(0))
        step = tf.train.get_or_create_global_step()
        with tf.control_dependencies([weight.assign(weight * 3 + noisy)]):
            advance = tf.assign_add(step, 1)
        last = tf.train.FinalOpsHook(weight)
        session = tf.train.MonitoredTrainingSession(
            checkpoint_dir=directory,
            config=config,
            scaffold=tf.train.Scaffold(saver=tf.train.Saver(exact_resume=True, **options)),
            hooks=[tf.train.StopAtStepHook(last_step=last_step), last],
            save_checkpoint_steps=100,
        )
        with session:
            while not session.should_stop():
                session.run(advance)
        return last.final_ops_values


@pytest.mark.parametrize("asynchronous", [False, True])
def test_going_on_exactly(tmp_path, asynchronous):
    whole = random_walk(str(tmp_path / "whole"), 9)
    pieces = str(tmp_path / "pieces")
    for last_step in (2, 5, 9):
        walked = random_walk(pieces, last_step, asynchronous=asynchronous)
        assert tf.train.latest_checkpoint(pieces).endswith(f"-{last_step}")
    assert walked == whole


def test_threads_that_do_not_end_get_their_time_and_no_more():
    counter()
    over = threading.Event()

    class Stubborn(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            thread = threading.Thread(target=over.wait, daemon=True)
            coord.register_thread(thread)
            thread.start()

    tf.train.MonitoredSession(hooks=[Stubborn()], stop_grace_period_secs=0.01).close()
    over.set()


def test_the_options_of_the_caller_stay_as_they_are():
    _, advance = counter()

    class Tracing(tf.train.SessionRunHook):
        def before_run(self, context):
            level = tf.RunOptions.FULL_TRACE
            return tf.train.SessionRunArgs(None, options=tf.RunOptions(trace_level=level))

    mine, metadata = tf.RunOptions(timeout_in_ms=60_000), tf.RunMetadata()
    with tf.train.MonitoredSession(hooks=[Tracing()]) as session:
        session.run(advance, options=mine, run_metadata=metadata)
    assert mine == tf.RunOptions(timeout_in_ms=60_000)
    assert metadata.step_stats.dev_stats
