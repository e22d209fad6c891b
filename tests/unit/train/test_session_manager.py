"""Session managers: what takes time. The rest is in recorded traces
(tests/oracle/sequences_sessions.py).
"""

import os
from types import SimpleNamespace

import pytest

import headrace as tf
from headrace._src.train.sessions import session_manager


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_the_local_initialisation_has_its_run_options():
    forever = tf.FIFOQueue(1, [tf.float32]).dequeue()
    options = tf.RunOptions(timeout_in_ms=1)
    manager = tf.train.SessionManager(local_init_op=forever.op, local_init_run_options=options)
    with pytest.raises(tf.errors.DeadlineExceededError):
        manager.prepare_session("")


def sleeping(monkeypatch, during):
    """Let sleeps take no time, but something happen; returns how long they were."""
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        during(len(slept))

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: 1000.0 + sum(slept))
    monkeypatch.setattr(session_manager, "time", clock)
    return slept


def test_a_checkpoint_that_comes_late(tmp_path, monkeypatch):
    weight = tf.get_variable("weight", initializer=1.0)
    saver = tf.train.Saver()

    def save(times):
        if times == 2:
            with tf.Session() as session:
                weight.load(9.0, session)
                saver.save(session, os.path.join(tmp_path, "model"), write_meta_graph=False)

    slept = sleeping(monkeypatch, save)
    manager = tf.train.SessionManager(recovery_wait_secs=5)
    session = manager.prepare_session(
        "", weight.initializer, saver, str(tmp_path), wait_for_checkpoint=True
    )
    assert session.run(weight) == 9.0 and slept == [5, 5]


def test_waiting_ends_when_the_next_look_would_be_too_late(monkeypatch):
    tf.get_variable("weight", initializer=1.0)
    missing = tf.report_uninitialized_variables()
    slept = sleeping(monkeypatch, lambda times: None)
    manager = tf.train.SessionManager(ready_op=missing, recovery_wait_secs=10)
    with pytest.raises(tf.errors.DeadlineExceededError, match="after waiting 25 secs"):
        manager.wait_for_session("", max_wait_secs=25)
    assert 15 < sum(slept) < 25 and slept == sorted(slept) and max(slept) <= 10


def test_a_worker_says_whom_it_waits_for(monkeypatch, caplog):
    tf.get_variable("weight", initializer=1.0)
    missing = tf.report_uninitialized_variables()
    sleeping(monkeypatch, lambda times: None)
    manager = tf.train.SessionManager(ready_op=missing)
    reason = "has not initialised the model: Variables not initialized: weight"
    with pytest.raises(tf.errors.DeadlineExceededError, match=reason):
        manager.wait_for_session("", max_wait_secs=100)
    told = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "waiting for the chief for 2 s" in told[0] and "not initialized: weight" in told[0]
    assert 2 <= len(told) <= 4


def test_a_worker_sees_what_the_chief_has_initialised(monkeypatch):
    with tf.container("test_session_manager"):
        weight = tf.get_variable("weight", initializer=4.0)
    missing = tf.report_uninitialized_variables()
    chief = tf.Session()
    sleeping(monkeypatch, lambda times: chief.run(weight.initializer))
    manager = tf.train.SessionManager(ready_op=missing)
    try:
        session = manager.wait_for_session("", max_wait_secs=None)
        assert session.run(weight) == 4.0
    finally:
        tf.Session.reset("", ["test_session_manager"])


def test_errors_that_are_no_missing_values_are_raised():
    tf.get_variable("weight", initializer=1.0)
    failing = tf.FIFOQueue(1, [tf.string], shared_name="closed")
    with tf.control_dependencies([failing.close()]):
        names = tf.reshape(failing.dequeue(), [-1])
    manager = tf.train.SessionManager(ready_op=names)
    with pytest.raises(tf.errors.OutOfRangeError):
        manager.prepare_session("", init_op=tf.global_variables_initializer())


def test_a_chief_that_restores_removes_the_parts_of_saves_that_died(tmp_path):
    tf.get_variable("weight", initializer=1.0)
    saver = tf.train.Saver(sharded=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, str(tmp_path / "model"), 3)
    parts = tmp_path / f"model-4_temp_{'0' * 32}"
    parts.mkdir()
    (parts / "part-00000-of-00002.index").touch()
    manager = tf.train.SessionManager()
    session, restored = manager.recover_session("", saver, str(tmp_path))
    session.close()
    assert restored and not parts.exists()
