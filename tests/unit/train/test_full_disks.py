"""Savers on full disks: the error is TensorFlow's and names the file; good checkpoints stay."""

import errno
import os

import pytest

import headrace as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("v", initializer=[1.0, 2.0])
        session.run(tf.global_variables_initializer())
        yield session


@pytest.fixture
def full_disk(monkeypatch):
    def refuse(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "write", refuse)


OPTIONS = [{}, {"sharded": True}, {"write_version": 1}, {"asynchronous": True}]
OPTIONS += [{"exact_resume": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_full_disk(session, full_disk, tmp_path, options):
    saver = tf.train.Saver(**options)
    first = saver.save(session, str(tmp_path / "m"), 1, write_meta_graph=False)
    saver.wait()
    before = sorted(tmp_path.iterdir())
    full_disk()
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"m-2.*; No space left on device"):
        saver.save(session, str(tmp_path / "m"), 2, write_meta_graph=False)
        saver.wait()
    after = [path for path in sorted(tmp_path.iterdir()) if path.is_file()]
    assert after == before
    assert tf.train.latest_checkpoint(tmp_path) == first
    saver.restore(session, first)


def test_a_graph_that_cannot_be_written(session, full_disk, tmp_path):
    full_disk()
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"graph.pbtxt; No space left"):
        tf.train.write_graph(session.graph, tmp_path, "graph.pbtxt")
    (tmp_path / "file").write_text("")
    with pytest.raises(tf.errors.AlreadyExistsError, match=r"file; File exists"):
        tf.train.write_graph(session.graph, tmp_path / "file", "graph.pbtxt")


@pytest.mark.parametrize("name", ["m.index", "m.data-00000-of-00001", "m.session"])
def test_a_directory_in_a_files_place(session, tmp_path, name):
    saver = tf.train.Saver(exact_resume=True)
    path = saver.save(session, str(tmp_path / "m"), write_meta_graph=False)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{name}; Is a directory"):
        saver.restore(session, path)


def test_training_goes_on_if_an_old_checkpoint_cannot_be_removed(session, tmp_path, caplog):
    saver = tf.train.Saver(max_to_keep=1)
    saver.save(session, str(tmp_path / "m"), 1, write_meta_graph=False)
    (tmp_path / "m-1.meta").mkdir()
    latest = saver.save(session, str(tmp_path / "m"), 2, write_meta_graph=False)
    assert "an old checkpoint stays: " in caplog.text
    assert tf.train.latest_checkpoint(tmp_path) == latest
