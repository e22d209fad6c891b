"""FileWriter: events as TensorFlow 1.15.5 writes them, in the background, never lost silently."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headrace as tf
from headrace._src.core.records import tf_record_iterator
from headrace._src.summary.event_file import EventFile
from headrace._src.summary.event_writer import EventFileWriter

FIXTURE = Path(__file__).parents[2] / "fixtures" / "summaries" / "events.bin"


def files(directory):
    return sorted(Path(directory).glob("events.out.tfevents.*"))


def events(directory):
    return [e for path in files(directory) for e in tf.train.summary_iterator(path)]


def scalar(number, **more):
    return tf.Summary(value=[tf.Summary.Value(tag="a", simple_value=number, **more)])


def numbers(directory):
    return [v.simple_value for e in events(directory) for v in e.summary.value]


def test_same_bytes_as_tensorflow(tmp_path):
    with tf.summary.FileWriter(tmp_path) as writer:
        summary = scalar(1.0, metadata=tf.SummaryMetadata(display_name="shown"))
        writer.add_summary(summary, 1)
        writer.add_summary(summary.SerializeToString(), 2)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 3)
    assert summary.value[0].metadata.display_name == "shown"  # ours is as it was
    (path,) = files(tmp_path)
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+", path.name)
    ours, theirs = ([*tf_record_iterator(p)] for p in (path, FIXTURE))
    for mine, right in zip(ours, theirs, strict=True):
        mine, right = tf.Event.FromString(mine), tf.Event.FromString(right)
        assert mine.wall_time > right.wall_time
        mine.wall_time = right.wall_time
        assert mine.SerializeToString() == right.SerializeToString()


def test_graph_and_metadata_of_runs(tmp_path):
    with tf.Graph().as_default() as graph:
        tf.Variable(1.0, name="v")
        with tf.summary.FileWriter(tmp_path, graph) as writer:
            writer.add_run_metadata(tf.RunMetadata(), "step 1", 1)
            with pytest.raises(ValueError, match="tag was already used"):
                writer.add_run_metadata(tf.RunMetadata(), "step 1", 2)
        version, plain, meta, run = events(tmp_path)
        assert version.file_version == "brain.Event:2"
        nodes = tf.GraphDef.FromString(plain.graph_def)
        assert nodes == graph.as_graph_def(add_shapes=True)
        meta = tf.MetaGraphDef.FromString(meta.meta_graph_def)
        assert meta.graph_def.node[0].name == nodes.node[0].name
        assert "variables" in meta.collection_def
        assert (run.step, run.tagged_run_metadata.tag) == (1, "step 1")


def test_graph_must_be_one(tmp_path):
    writer = tf.summary.FileWriter(tmp_path)
    with pytest.raises(TypeError, match="must be an instance of `Graph`"):
        writer.add_graph("graph")
    with pytest.raises(ValueError, match="but not both"):
        writer.add_graph(tf.Graph(), graph_def=tf.GraphDef())
    with pytest.raises(TypeError, match="must be type MetaGraphDef"):
        writer.add_meta_graph(tf.GraphDef())
    with pytest.raises(TypeError, match=r"session must be a tf\.Session"):
        tf.summary.FileWriter(tmp_path, session=object())


def test_a_writer_of_a_session(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        writer = tf.summary.FileWriter(tmp_path, session=session)
        value = tf.Summary.Value(tag="a", simple_value=1.0)
        writer.add_summary(tf.Summary(value=[value]), 3)
        writer.close()
    (file,) = tmp_path.iterdir()
    assert file.name.endswith(".v2")
    found = [(e.step, e.WhichOneof("what")) for e in tf.train.summary_iterator(str(file))]
    assert found == [(0, "file_version"), (3, "summary")]


def test_use_after_close_warns_and_reopening_makes_another_file(tmp_path):
    writer = tf.summary.FileWriter(tmp_path, filename_suffix=".mine")
    assert len(files(tmp_path)) == 1  # with a suffix, at once
    writer.add_summary(scalar(1.0))
    writer.close()
    writer.close()
    with pytest.warns(UserWarning, match="Attempting to use a closed FileWriter"):
        writer.add_summary(scalar(2.0))
    with pytest.warns(UserWarning, match="closed FileWriter"):
        writer.flush()
    writer.reopen()
    writer.add_summary(scalar(3.0))
    writer.close()
    assert len(files(tmp_path)) == 2  # also within one second
    assert all(p.name.endswith(".mine") for p in files(tmp_path))
    assert numbers(tmp_path) == [1.0, 3.0]


def test_no_file_without_events(tmp_path):
    tf.summary.FileWriter(tmp_path / "made").close()
    assert (tmp_path / "made").is_dir() and not files(tmp_path / "made")


def test_flushed_events_are_there_while_it_is_open(tmp_path):
    writer = tf.summary.FileWriter(str(tmp_path), max_queue=2)
    assert writer.get_logdir() == str(tmp_path)
    for i in range(30):
        writer.add_summary(scalar(i), i)
    writer.flush()
    assert numbers(tmp_path) == list(range(30))
    writer.close()


def test_many_threads(tmp_path):
    writer = tf.summary.FileWriter(tmp_path, max_queue=3)

    def add(start):
        for i in range(20):
            writer.add_summary(scalar(start + i))

    threads = [threading.Thread(target=add, args=(100 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert sorted(numbers(tmp_path)) == [100 * t + i for t in range(4) for i in range(20)]


def test_events_come_by_themselves_after_flush_secs(tmp_path):
    writer = tf.summary.FileWriter(tmp_path, flush_secs=0.01)
    written = threading.Event()
    real = EventFile.flush

    def flush(self):
        real(self)
        if len(numbers(tmp_path)) == 2:
            written.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventFile, "flush", flush)
        writer.add_summary(scalar(1.0))
        writer.add_summary(scalar(2.0))
        assert written.wait(30)
    writer.close()


class FullDisk:
    """A system that takes a byte, then says that the disk is full; until it isn't."""

    def __init__(self, patch):
        self.full = True
        self._write = os.write
        patch.setattr(os, "write", self.write)

    def write(self, descriptor, data):
        if not self.full:
            return self._write(descriptor, data)
        if len(data) % 2:
            return self._write(descriptor, bytes(data[:1]))
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)
    writer = tf.summary.FileWriter(tmp_path)
    writer.add_summary(scalar(1.0))
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"events\.out.*No space left"):
        writer.flush()
    with pytest.raises(tf.errors.ResourceExhaustedError):
        writer.close()
    disk.full = False
    writer.add_summary(scalar(2.0))  # still open
    writer.close()
    assert numbers(tmp_path) == [1.0, 2.0]


def test_the_next_call_says_what_went_wrong_in_the_thread(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)
    writer = EventFileWriter(tmp_path)
    writer.add_event(tf.Event(step=1))
    with writer._changed:
        writer._changed.wait_for(lambda: writer._error is not None)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        writer.add_event(tf.Event(step=2))  # not accepted
    disk.full = False
    writer.add_event(tf.Event(step=3))
    writer.close()
    assert [e.step for e in events(tmp_path)] == [0, 1, 3]


def test_a_file_that_was_removed_is_said_and_another_begun(tmp_path, caplog):
    writer = tf.summary.FileWriter(tmp_path / "logs")
    writer.add_summary(scalar(1.0))
    writer.flush()
    shutil.rmtree(tmp_path / "logs")
    writer.add_summary(scalar(2.0))
    writer.flush()
    assert "was removed while it was written" in caplog.text
    assert numbers(tmp_path / "logs") == [2.0]
    writer.close()


def test_a_notebook_that_removes_its_directory_and_clears_the_cache(tmp_path, caplog):
    # shutil.rmtree(directory), FileWriterCache.clear(), then train again: as in many a course.
    for number in (1.0, 2.0):
        with tf.Graph().as_default():
            writer = tf.summary.FileWriterCache.get(tmp_path / "logs")
        writer.flush()
        writer.add_summary(scalar(number))  # not flushed
        shutil.rmtree(tmp_path / "logs")
        tf.summary.FileWriterCache.clear()
        assert not (tmp_path / "logs").exists()
    assert "was removed: the remaining events are lost" in caplog.text


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tf.errors.AlreadyExistsError, match="file; File exists"):
        tf.summary.FileWriter(tmp_path / "file")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_a_file_of_its_own(tmp_path):
    writer = tf.summary.FileWriter(tmp_path)
    writer.add_summary(scalar(1.0))
    writer.flush()
    writer.add_summary(scalar(2.0))  # the parent's, whether it is written yet or not
    child = os.fork()
    if child == 0:
        try:
            writer.add_summary(scalar(3.0))
            writer.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.close()
    by_file = [
        [v.simple_value for e in tf.train.summary_iterator(p) for v in e.summary.value]
        for p in files(tmp_path)
    ]
    assert sorted(by_file) == [[1.0, 2.0], [3.0]]


def test_a_killed_process_has_lost_nothing_that_was_flushed(tmp_path):
    program = """
import os, signal, sys
import headrace as tf

writer = tf.summary.FileWriter(sys.argv[1], flush_secs=1000)
for i in range(100):
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="a", simple_value=i)]), i)
writer.flush()
writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="a", simple_value=100)]), 100)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment)
    assert done.returncode == -signal.SIGKILL
    assert numbers(tmp_path)[:100] == list(range(100))


def test_a_program_that_ends_without_close_writes_all(tmp_path):
    program = """
import sys
import headrace as tf

writer = tf.summary.FileWriter(sys.argv[1], flush_secs=1000)
for i in range(5):
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="a", simple_value=i)]), i)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=True)
    assert numbers(tmp_path) == list(range(5))


def test_cache(tmp_path):
    with tf.Graph().as_default():
        tf.constant(1.0)
        first = tf.summary.FileWriterCache.get(str(tmp_path))
        assert tf.summary.FileWriterCache.get(str(tmp_path)) is first
    tf.summary.FileWriterCache.clear()
    assert [e.WhichOneof("what") for e in events(tmp_path)] == [
        "file_version",
        "graph_def",
        "meta_graph_def",
    ]
    with tf.Graph().as_default():
        assert tf.summary.FileWriterCache.get(str(tmp_path)) is not first
    tf.summary.FileWriterCache.clear()
