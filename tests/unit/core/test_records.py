"""Files of records: equal to TensorFlow 1.15.5's, and never silently less than what was written."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as tf
from headrace._src.core.checksum import masked
from headrace._src.core.records import frame

FIXTURES = Path(__file__).parents[2] / "fixtures" / "summaries"
RECORDS = [b"hello", b"", b"world" * 100, bytes(range(256))]
KINDS = ["", "GZIP", "ZLIB"]


def written(path, records, options=None):
    with tf.io.TFRecordWriter(path, options) as writer:
        for record in records:
            writer.write(record)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_reads_tensorflows(kind):
    path = FIXTURES / f"{kind.lower() or 'plain'}.records"
    assert list(tf.python_io.tf_record_iterator(path, kind)) == RECORDS


def test_writes_tensorflows_bytes(tmp_path):
    path = written(tmp_path / "r", RECORDS)
    assert path.read_bytes() == (FIXTURES / "plain.records").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_of_more_than_a_block(tmp_path, kind):
    records = [os.urandom(n) for n in (300_000, 1, 700_001)]
    path = written(tmp_path / "r", records, kind)
    assert list(tf.io.tf_record_iterator(path, kind)) == records


def test_options_reach_zlib(tmp_path):
    kinds = tf.io.TFRecordCompressionType
    fast = tf.io.TFRecordOptions(kinds.ZLIB, compression_level=0, input_buffer_size=100)
    best = tf.io.TFRecordOptions("ZLIB", compression_level=9, output_buffer_size=1, mem_level=9)
    sizes = []
    for i, options in enumerate([fast, best]):
        path = written(tmp_path / str(i), RECORDS, options)
        sizes.append(path.stat().st_size)
        assert list(tf.io.tf_record_iterator(path, options)) == RECORDS
    assert sizes[0] > (FIXTURES / "plain.records").stat().st_size > sizes[1]


@pytest.mark.parametrize("kind", KINDS)
def test_flushed_records_can_be_read(tmp_path, kind):
    writer = tf.io.TFRecordWriter(tmp_path / "r", kind)
    writer.write(b"first")
    writer.flush()
    found = tf.io.tf_record_iterator(tmp_path / "r", kind)
    assert next(found) == b"first"
    writer.close()


def test_a_writer_that_is_forgotten_is_closed(tmp_path):
    tf.io.TFRecordWriter(tmp_path / "r", "GZIP").write(b"only")
    assert list(tf.io.tf_record_iterator(tmp_path / "r", "GZIP")) == [b"only"]


def test_joined_compressed_files_are_one(tmp_path):
    one = written(tmp_path / "one", [b"a", b"b"], "GZIP").read_bytes()
    (tmp_path / "two").write_bytes(one + one)
    assert list(tf.io.tf_record_iterator(tmp_path / "two", "GZIP")) == [b"a", b"b"] * 2


def test_where_the_loss_is(tmp_path):
    path, data = tmp_path / "r", frame(b"hello") + frame(b"world")

    def read(damaged):
        path.write_bytes(damaged)
        found = []
        with pytest.raises(tf.errors.DataLossError) as error:
            found.extend(tf.io.tf_record_iterator(path))
        return str(error.value)

    assert read(data[:-1]) == "truncated record at 21"
    assert read(data[:25]) == "truncated record at 21"
    assert read(b"\0" + data[1:]) == "corrupted record at 0"
    assert read(data[:14] + b"L" + data[15:]) == "corrupted record at 12"
    # A length with a right checksum, for which there isn't memory enough.
    length = struct.pack("<Q", 2**62)
    assert read(length + struct.pack("<I", masked(length))) == "truncated record at 0"


@given(
    records=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    place=st.floats(0, 1, exclude_max=True),
    flip=st.integers(0, 255),
)
def test_damage_is_never_silent(tmp_path_factory, records, kind, place, flip):
    """One byte changed, or (flip 0) the file cut there: a prefix of the records, then an error.

    Compressed files may change and still hold the same records: a gzip header says when and where
    the file was made, and a stream has several ways to encode the same bytes.
    """
    path = written(tmp_path_factory.mktemp("r") / "r", records, kind)
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
    if flip:
        data[at] ^= flip
    else:
        del data[at:]
    path.write_bytes(data)
    found = []
    try:
        for record in tf.io.tf_record_iterator(path, kind):
            found.append(record)
    except tf.errors.DataLossError:
        assert found == records[: len(found)]
    else:
        cut_at_a_record = found == records[: len(found)] and not flip
        assert found == records or cut_at_a_record
        if flip:
            assert kind
        elif kind:
            assert at == 0


def test_misuse(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="none; No such file or directory"):
        list(tf.io.tf_record_iterator(tmp_path / "none"))
    with pytest.raises(tf.errors.FailedPreconditionError, match="Is a directory"):
        tf.io.TFRecordWriter(tmp_path)
    with pytest.raises(ValueError, match='Not a valid compression_type: "LZ"'):
        tf.io.TFRecordOptions("LZ")
    with pytest.raises(ValueError, match="zlib refuses these TFRecordOptions"):
        tf.io.TFRecordWriter(tmp_path / "x", tf.io.TFRecordOptions("GZIP", compression_level=77))
    writer = tf.io.TFRecordWriter(tmp_path / "x")
    with pytest.raises(TypeError, match="expected bytes, str found"):
        writer.write("text")
    writer.close()
    writer.close()
    with pytest.raises(tf.errors.FailedPreconditionError, match="previously closed"):
        writer.write(b"late")
