"""decode_proto and encode_proto: sources of message types, damage and wrong arguments."""

import pytest
from google.protobuf import descriptor_pb2

import headrace as tf
from tests.oracle.cases_protos import FIELD, FIELDS, TENSOR, point_set


def run(result):
    with tf.Session(graph=result.graph) as session:
        return session.run(result)


def decode(data, *arguments, **options):
    with tf.Graph().as_default():
        return run(tf.io.decode_proto(data, *arguments, **options).sizes)


def test_a_file_describes_messages(tmp_path):
    path = tmp_path / "types.bin"
    path.write_bytes(point_set(True).removeprefix(b"bytes://"))
    with tf.Graph().as_default():
        found = tf.io.decode_proto(
            [b""], "hr.Point", ["word", "x"], [tf.string, tf.int32], str(path)
        )
        with tf.Session() as session:
            assert [v.tolist() for v in session.run(found.values)] == [[[b"none"]], [[-7]]]


def test_enums_have_their_default():
    data = descriptor_pb2.FieldOptions().SerializeToString()
    with tf.Graph().as_default():
        found = tf.io.decode_proto([data], "google.protobuf.FieldOptions", ["ctype"], [tf.int32])
        assert run(found.values[0]).tolist() == [[0]]


def test_messages_within_messages_have_names():
    with tf.Graph().as_default():
        name = "tensorflow.TensorShapeProto.Dim"
        found = tf.io.decode_proto(b"\x08\x02", name, ["size"], [tf.int64])
        assert run(found.values[0]).tolist() == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FIELD, ["nope"], [tf.string]), "Unknown field: nope in message type"),
        ((FIELD, ["name"], [tf.int32]), "Unexpected output type for .*name: string to int32"),
        (("hr.Nothing", ["x"], [tf.int32]), "No descriptor found for message type hr.Nothing"),
        ((FIELD, ["name"], [tf.string], "/no/such/file"), "Source does not represent"),
        ((FIELD, ["name"], [tf.string], b"bytes://\xff"), "Source does not represent"),
        ((FIELD, ["name"], [tf.string], "local://", "json"), "format must be one of binary or"),
        ((FIELD, ["name", "number"], [tf.string]), "must have the same length"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode([FIELDS[0]], *arguments)


@pytest.mark.parametrize("data", [b"\n\x05x", b"\x18", b"\x18" + b"\xff" * 12, b"\x0b" * 200])
def test_damaged_messages(data):
    with pytest.raises(tf.errors.DataLossError, match="Unable to parse binary protobuf"):
        decode([data], FIELD, ["name"], [tf.string])


def test_damaged_text():
    with pytest.raises(tf.errors.DataLossError, match="Unable to parse text protobuf"):
        decode(["nope: 1"], FIELD, ["name"], [tf.string], message_format="text")


@pytest.mark.parametrize(
    ("sizes", "values", "message"),
    [
        ([[3]], [[[1.0, 2.0]]], "larger than value tensor; but saw: 3 > 2 at message 0 field 0"),
        ([[-1]], [[[1.0, 2.0]]], "Size to write"),
        ([[1]], [[[1, 2]]], "Incompatible type for field float_val.  Saw dtype: int32"),
        ([[1, 1]], [[[1.0]]], r"sizes should be batch_size \+ \[len\(field_names\)\]"),
    ],
)
def test_what_cannot_be_encoded(sizes, values, message):
    with tf.Graph().as_default(), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.io.encode_proto(sizes, values, ["float_val"], TENSOR))
