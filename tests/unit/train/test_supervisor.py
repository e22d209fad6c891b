"""Supervisors: their threads, and the sources of their defaults. The rest is in recorded traces
(tests/oracle/sequences_sessions.py).
"""

import os
import threading

import pytest

import headrace as tf

LIMIT = 60  # seconds; only a hang takes that long


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def counter():
    step = tf.train.get_or_create_global_step()
    return step, tf.assign_add(step, 1)


class Told:
    """Something to call, and the waiting for the call."""

    def __init__(self):
        self.calls, self._event = [], threading.Event()

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        self._event.set()

    def wait(self):
        assert self._event.wait(LIMIT)
        return self.calls[0]


def test_a_thread_writes_summaries(tmp_path):
    tf.summary.scalar("number", 7.0)
    told = Told()
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
    supervisor.summary_writer.add_summary = told
    with supervisor.managed_session():
        (serialised, step), _ = told.wait()
    assert [value.tag for value in tf.Summary.FromString(serialised).value] == ["number"]
    assert step is None


def test_a_thread_saves(tmp_path):
    counter()
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_summaries_secs=0)
    saved, save = Told(), supervisor.saver.save
    supervisor.saver.save = lambda *args, **kwargs: saved(save(*args, **kwargs))
    with supervisor.managed_session():
        (path,), _ = saved.wait()
    assert path == tf.train.latest_checkpoint(tmp_path) == os.path.join(tmp_path, "model.ckpt-0")


def test_what_is_in_collections_is_taken():
    weight = tf.get_variable("weight", initializer=1.0)
    start = tf.assign(weight, 5.0)
    ready = tf.constant([], tf.string)
    tf.add_to_collection(tf.GraphKeys.INIT_OP, start)
    tf.add_to_collection(tf.GraphKeys.READY_OP, ready)
    supervisor = tf.train.Supervisor()
    assert supervisor.init_op is start and supervisor.ready_op is ready
    assert supervisor.global_step is None and supervisor.summary_writer is None
    with supervisor.managed_session() as session:
        assert session.run(weight) == 5.0


def test_what_is_none_is_not_made(graph):
    counter()
    before = len(graph.get_operations())
    supervisor = tf.train.Supervisor(
        ready_op=None, init_op=None, local_init_op=None, saver=None, summary_op=None
    )
    assert len(graph.get_operations()) == before
    with (
        pytest.raises(RuntimeError, match="no init_op or init_fn or local_init_op was given"),
        supervisor.managed_session(),
    ):
        pytest.fail("there is no session")


def test_a_manager_of_ones_own():
    counter()

    class Manager:
        def prepare_session(self, master, **options):
            session = tf.Session(master)
            session.run(options["init_op"])
            return session

    supervisor = tf.train.Supervisor(session_manager=Manager())
    with supervisor.managed_session() as session:
        assert session.run(supervisor.global_step) == 0


def test_other_graphs_and_the_start(graph):
    other = tf.Graph()
    with other.as_default():
        weight = tf.get_variable("weight", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        start = tf.assign(weight, x)
    started = Told()
    supervisor = tf.train.Supervisor(
        graph=other, init_op=start, init_feed_dict={x: 3.0}, init_fn=started
    )
    assert other.finalized and not graph.finalized
    with supervisor.managed_session() as session:
        assert session.run(weight) == 3.0
    assert isinstance(started.wait()[0][0], tf.Session)


def test_queue_runners_are_started_and_stopped():
    item = tf.train.input_producer([4, 5], num_epochs=1, shuffle=False).dequeue()
    supervisor = tf.train.Supervisor()
    got = []
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            got.append(int(session.run(item)))  # at the end: OutOfRangeError, which stops
    assert got == [4, 5] and supervisor.coord.joined


def test_older_names():
    for old, new in [("PrepareSession", "prepare_or_wait_for_session"), ("Stop", "stop")]:
        assert getattr(tf.train.Supervisor, old) is getattr(tf.train.Supervisor, new)


@pytest.mark.parametrize(("value", "step"), [([123], 123), (123, 123), ([[4]], 4), (1.5, None)])
def test_the_global_step_is_found_by_its_name(tmp_path, value, step):
    tf.Variable(value, name="global_step")
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
    with supervisor.managed_session("") as session:
        if step is None:
            assert supervisor.global_step is None
            return
        assert tf.train.global_step(session, supervisor.global_step) == step
        path = supervisor.saver.save(session, supervisor.save_path, supervisor.global_step)
        assert path.endswith(f"-{step}")


def test_a_global_step_of_several_numbers_has_no_value():
    step = tf.Variable([1, 2], name="steps")
    with tf.Session() as session:
        session.run(step.initializer)
        with pytest.raises(TypeError, match="only size-1 arrays"):
            tf.train.global_step(session, step)
