"""Saving while training continues."""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.train.saving import saver as saver_module


@pytest.fixture
def training():
    """A variable, an update of it, and a session."""
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=np.zeros(1000, np.float32))
        w = tf.get_variable("w", initializer=np.zeros(1000, np.float32))
        update = tf.group(v.assign_add(tf.ones([1000])), w.assign_add(tf.ones([1000])))
        session.run(tf.global_variables_initializer())
        yield session, update


def test_values_are_those_of_the_call(training, tmp_path, monkeypatch):
    session, update = training
    held, real = threading.Event(), saver_module.write_bundle

    def slow(*args):
        held.wait(30)
        real(*args)

    monkeypatch.setattr(saver_module, "write_bundle", slow)
    saver = tf.train.Saver(asynchronous=True)
    session.run(update)
    path = saver.save(session, str(tmp_path / "m"), 1)
    for _ in range(3):
        session.run(update)  # while the checkpoint is being written
    assert tf.train.latest_checkpoint(str(tmp_path)) is None
    held.set()
    saver.wait()
    assert tf.train.latest_checkpoint(str(tmp_path)) == path
    for name in "vw":
        assert set(tf.train.load_variable(path, name)) == {1.0}


def test_saves_come_one_after_the_other(training, tmp_path):
    session, update = training
    saver = tf.train.Saver(asynchronous=True, max_to_keep=2)
    for step in range(5):
        session.run(update)
        saver.save(session, str(tmp_path / "m"), step, write_meta_graph=False)
    saver.wait()
    assert [p[-1] for p in saver.last_checkpoints] == ["3", "4"]
    assert tf.train.load_variable(str(tmp_path), "v")[0] == 5.0


def test_a_failure_is_told_to_whoever_comes_next(training, tmp_path):
    session, _ = training
    (tmp_path / "file").write_text("")
    saver = tf.train.Saver(asynchronous=True)
    saver.save(session, str(tmp_path / "file" / "m"), write_meta_graph=False)
    with pytest.raises(tf.errors.AlreadyExistsError, match="file; File exists"):
        saver.wait()
    saver.wait()


def test_what_it_is_not_for():
    with tf.Graph().as_default():
        tf.Variable(1.0)
        with pytest.raises(ValueError, match="asynchronous"):
            tf.train.Saver(asynchronous=True, sharded=True)
