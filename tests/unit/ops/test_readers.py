"""Readers, against what TensorFlow 1.15.5 gave for the same files, and how they wait."""

import threading
import zlib

import pytest

import headrace as tf
from headrace._src.core import errors
from headrace._src.devices.pending import Pending
from headrace._src.devices.queues import FIFOQueueState
from headrace._src.devices.readers import Reader

FILES = {
    "t1": b"a\nb\r\nc",
    "t2": b"",
    "t3": b"x\n\ny\n",
    "f1": b"HHaaabbbcccF",
    "f2": b"HHaaabF",
    "g1": b"Habcdefg",
    "z1": zlib.compress(b"HHaaabbbcccF"),
}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    for name, options in (("r1", None), ("r2", "GZIP")):
        with tf.python_io.TFRecordWriter(name, options) as writer:
            for record in (b"one", b"two", b""):
                writer.write(record)
    damaged = bytearray((tmp_path / "r1").read_bytes())
    damaged[-5] ^= 1
    (tmp_path / "bad").write_bytes(damaged)
    with tf.Graph().as_default():
        yield


def read(reader, names, up_to=None):
    """All that a reader gives, then how it ends, records produced and files completed."""
    queue = tf.FIFOQueue(10, tf.string, [[]])
    found = []
    with tf.Session() as session:
        for name in names:
            session.run(queue.enqueue(name))
        session.run(queue.close())
        next_one = reader.read(queue) if up_to is None else reader.read_up_to(queue, up_to)
        try:
            while len(found) < 20:
                key, value = session.run(next_one)
                found.append((key, value) if up_to is None else [key.tolist(), value.tolist()])
        except errors.OpError as error:
            ended = error
        counts = [reader.num_records_produced(), reader.num_work_units_completed()]
        return found, ended, session.run(counts)


@pytest.mark.parametrize(
    ("make", "names", "expected", "counts"),
    [
        (tf.TextLineReader, "t1 t2 t3", "t1:1=a t1:2=b t1:3=c t3:1=x t3:2= t3:3=y", [6, 3]),
        (lambda: tf.TextLineReader(1), "t1 t2 t3", "t1:2=b t1:3=c t3:2= t3:3=y", [4, 3]),
        (tf.TFRecordReader, "r1", "r1:0=one r1:19=two r1:38=", [3, 1]),
        (
            lambda: tf.TFRecordReader(options=tf.python_io.TFRecordOptions("GZIP")),
            "r2",
            "r2:0=one r2:19=two r2:38=",
            [3, 1],
        ),
        (
            lambda: tf.FixedLengthRecordReader(3, 2, 1),
            "f2 f1",
            "f2:0=aaa f1:0=aaa f1:1=bbb f1:2=ccc",
            [4, 2],
        ),
        (
            lambda: tf.FixedLengthRecordReader(3, 1, 0, 2),
            "g1",
            "g1:0=abc g1:1=cde g1:2=efg",
            [3, 1],
        ),
        (
            lambda: tf.FixedLengthRecordReader(3, 2, 1, encoding="ZLIB"),
            "z1",
            "z1:0=aaa z1:1=bbb z1:2=ccc",
            [3, 1],
        ),
        (tf.WholeFileReader, "t2 f2", "t2= f2=HHaaabF", [2, 2]),
        (tf.IdentityReader, "no such", "no=no such=such", [2, 2]),
    ],
)
def test_records(make, names, expected, counts):
    found, ended, counted = read(make(), names.split())
    assert [f"{k.decode()}={v.decode()}" for k, v in found] == expected.split(" ")
    assert isinstance(ended, errors.OutOfRangeError) and "is closed and has insuff" in ended.message
    assert counted == counts


def test_several_at_once_are_of_one_file():
    found, _, counts = read(tf.TextLineReader(), ["t1", "t2", "t3"], up_to=2)
    values = [[b"a", b"b"], [b"c"], [b"x", b""], [b"y"]]
    assert [value for _, value in found] == values
    assert found[2][0] == [b"t3:1", b"t3:2"]
    assert counts == [6, 3]


@pytest.mark.parametrize(
    ("make", "names", "kind", "message", "given"),
    [
        (tf.TFRecordReader, ["bad"], errors.DataLossError, "corrupted record at 38", 2),
        (tf.TextLineReader, ["no"], errors.NotFoundError, "no; No such file or directory", 0),
        (tf.WholeFileReader, ["."], errors.FailedPreconditionError, ".; Is a directory", 0),
        (
            lambda: tf.FixedLengthRecordReader(3, 2, 1),
            ["t2"],
            errors.OutOfRangeError,
            "reached end of file",
            0,
        ),
    ],
)
def test_files_that_cannot_be_read(make, names, kind, message, given):
    found, ended, counts = read(make(), names)
    assert type(ended) is kind and ended.message == message
    assert len(found) == given and counts == [given, 0]


def test_what_was_read_before_a_damage_is_given_first():
    found, ended, _ = read(tf.TFRecordReader(), ["bad"], up_to=10)
    assert found == [[[b"bad:0", b"bad:19"], [b"one", b"two"]]]
    assert isinstance(ended, errors.DataLossError)


def test_sizes_and_queues_are_checked():
    with tf.Session() as session:
        queue = tf.FIFOQueue(3, tf.string, [[]])
        for sizes, message in (
            ((-3,), "record_bytes must be >= 0 not -3"),
            ((3, -2), "header_bytes must be >= 0 not -2"),
            ((0,), "record_bytes must be > 0"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=message):
                session.run(tf.FixedLengthRecordReader(*sizes).read(queue))
        for types, message in (
            ([tf.int32], "Expected queue with single string component"),
            ([tf.string, tf.string], "Expected single component queue"),
        ):
            wrong = tf.FIFOQueue(3, types, [[]] * len(types))
            with pytest.raises(errors.InvalidArgumentError, match=message):
                session.run(tf.TextLineReader().read(wrong))


def test_state_of_whole_files():
    reader, queue = tf.IdentityReader(), tf.FIFOQueue(10, tf.string, [[]])
    assert reader.supports_serialize
    with tf.Session() as session:
        session.run(queue.enqueue_many([["a", "b", "c"]]))
        session.run(reader.read(queue))
        state = session.run(reader.serialize_state())
        assert state == b'\x08\x01\x10\x01\x18\x01"\x01a'  # TensorFlow's
        session.run(reader.read(queue))
        session.run(reader.restore_state(state))
        assert session.run(reader.num_records_produced()) == 1
        assert session.run(reader.read(queue))[0] == b"c"
        session.run(reader.reset())
        assert session.run(reader.num_work_units_completed()) == 0
        with pytest.raises(errors.InvalidArgumentError, match="Could not parse state for Identity"):
            session.run(reader.restore_state(b"junk"))
        with pytest.raises(errors.InvalidArgumentError, match="Inconsistent work started"):
            session.run(reader.restore_state(b"\x08\x05\x10\x01\x18\x02"))
        with pytest.raises(errors.UnimplementedError, match="Reader SerializeState"):
            session.run(tf.TextLineReader().serialize_state())


def test_a_reset_reader_begins_with_the_next_file():
    reader, queue = tf.TextLineReader(), tf.FIFOQueue(10, tf.string, [[]])
    with tf.Session() as session:
        session.run(queue.enqueue_many([["t1", "t3"]]))
        assert session.run(reader.read(queue))[0] == b"t1:1"
        session.run(reader.reset())
        assert session.run(reader.read(queue))[0] == b"t3:1"


def test_a_read_waits_for_a_name():
    reader, queue = tf.TextLineReader(), tf.FIFOQueue(10, tf.string, [[]])
    name, got = tf.placeholder(tf.string), []
    with tf.Session() as session:
        line = reader.read(queue)[1]
        thread = threading.Thread(target=lambda: got.append(session.run(line)))
        thread.start()
        session.run(queue.enqueue(name), {name: "t1"})
        thread.join(10)
    assert got == [b"a"]


# -- The state itself ------------------------------------------------------------------------------


def words(name):
    return ((f"{name}:{i}".encode(), c.encode()) for i, c in enumerate("xyz"))


@pytest.fixture
def reader():
    return Reader("r", "TextLineReader", words)


@pytest.fixture
def queue():
    return FIFOQueueState("q", (tf.string,), (tf.TensorShape([]),), 10)


def values(records):
    return [value for _, value in records]


def test_readers_wait_in_line_and_a_cancelled_one_loses_nothing(reader, queue):
    first, second = (reader.read(queue, 1, values) for _ in range(2))
    assert isinstance(first, Pending) and isinstance(second, Pending)
    assert first.cancel(errors.CancelledError(None, None, "stop"))
    queue.enqueue((b"file",))
    assert second.result() == [b"x"]
    assert reader.read(queue, 5, values) == [b"y", b"z"]


def test_a_reader_goes_on_in_another_process(reader, queue):
    queue.enqueue((b"file",))
    reader.read(queue, 2, values)
    twin = Reader("r", "TextLineReader", words)
    twin.resume(reader.saved())
    assert twin.read(queue, 5, values) == [b"z"]
    assert (twin.started, twin.finished, twin.produced) == (1, 0, 3)


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_read_that_is_cancelled_while_it_reads_counts_for_nothing(queue, is_whole):
    reads = []

    def records(name):
        for record in list(words(name))[: 1 if is_whole else 3]:
            while reads:
                reads.pop().cancel(errors.CancelledError(None, None, "stop"))
            yield record

    reader = Reader("r", "Reader", records, is_whole)
    reads.append(reader.read(queue, 1, values))
    queue.enqueue((b"file",))
    assert (reader.started, reader.finished, reader.produced) == (1, 0, 0)
    twins = [Reader("r", "Reader", records, is_whole) for _ in range(2)]
    twins[0].resume(reader.saved())
    if is_whole:
        twins[1].restore(reader.serialize())
    else:
        twins[1].resume(twins[0].saved())
    for each in (reader, *twins):
        assert each.read(queue, 1, values) == [b"x"]
        assert (each.started, each.finished, each.produced) == (1, int(is_whole), 1)
    queue.enqueue((b"other",))
    expected = [b"x"] if is_whole else [b"y", b"z"]
    assert reader.read(queue, 3, values) == expected
    assert reader.produced == 1 + len(expected)
