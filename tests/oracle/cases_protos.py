"""Protocol buffers in a step."""

import numpy as np

from tests.oracle.case import case

FIELD = "google.protobuf.FieldDescriptorProto"
TENSOR = "tensorflow.TensorProto"
TEXT = ['name: "x" number: 3 type: TYPE_BOOL', "number: -4 label: LABEL_REPEATED"]
FIELDS = [b"\n\x01x\x18\x03", b"\n\x02yy:\x01q\x18" + b"\xff" * 9 + b"\x01"]


def decoded(tf, *arguments, **options):
    found = tf.io.decode_proto(*arguments, **options)
    return [found.sizes] + list(found.values)


@case
def singular(tf):
    names = ["default_value", "name", "number", "extendee"]
    return decoded(tf, FIELDS, FIELD, names, [tf.string, tf.string, tf.int32, tf.string])


@case
def of_text(tf):
    return decoded(
        tf, TEXT, FIELD, ["number", "name"], [tf.int64, tf.string], message_format="text"
    )


@case
def last_one_wins(tf):
    return decoded(tf, [FIELDS[1] * 2 + b"\n\x01z"], FIELD, ["name"], [tf.string], sanitize=True)


# The default of an enum is left out here: TensorFlow gives a piece of an address.
VALUES = {
    "float_val": np.array([[[1.5, -2, 3]], [[0, 4, 5]]], np.float32),
    "double_val": np.array([[[1e300]], [[-2]]], np.float64),
    "int_val": np.array([[[1, -5]], [[7, 300]]], np.int32),
    "int64_val": np.array([[[-1, 1 << 60]], [[4, 5]]], np.int64),
    "uint32_val": np.array([[[4000000000]], [[4]]], np.uint32),
    "uint64_val": np.array([[[1 << 63]], [[4]]], np.uint64),
    "bool_val": np.array([[[True, False]], [[False, True]]]),
    "string_val": np.array([[[b"a", b"bc"]], [[b"", b"\0"]]], object),
    "dtype": np.array([[[3]], [[-4]]], np.int32),
    "tensor_content": np.array([[[b"content"]], [[b""]]], object),
    "tensor_shape": np.array([[[b"\x12\x02\x08\x02"]], [[b""]]], object),
}
SIZES = [[[3, 1, 2, 2, 1, 1, 2, 2, 1, 1, 1]], [[1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0]]]


@case
def all_types(tf):
    names = sorted(VALUES)
    order = [list(VALUES).index(n) for n in names]
    values = [tf.constant(VALUES[n]) for n in names]
    sizes = np.array(SIZES, np.int32)[:, :, order]
    data = tf.io.encode_proto(sizes, values, names, TENSOR)
    types = [v.dtype for v in values]
    return [data] + decoded(tf, data, TENSOR, names, types)


@case
def nested(tf):
    data = tf.io.encode_proto([[1]], [[[b"\x12\x02\x08\x02"]]], ["tensor_shape"], TENSOR)
    (shape,) = tf.io.decode_proto(data, TENSOR, ["tensor_shape"], [tf.string]).values
    return decoded(tf, shape, "tensorflow.TensorShapeProto", ["dim"], [tf.string])


@case
def wider(tf):
    data = tf.io.encode_proto([[2, 1]], [[[1.5, 2]], [[7]]], ["float_val", "int_val"], TENSOR)
    return decoded(tf, data, TENSOR, ["float_val", "int_val"], [tf.float64, tf.int64])


def point_set(packed):
    """The description of a message `hr.Point` in proto2, with defaults."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="point.proto", package="hr", syntax="proto2")
    message = file.message_type.add(name="Point")
    message.field.add(name="x", number=1, label=1, type=17, default_value="-7")
    message.field.add(name="word", number=2, label=1, type=9, default_value="none")
    many = message.field.add(name="many", number=3, label=3, type=18)
    many.options.packed = packed
    message.field.add(name="fixed", number=4, label=1, type=16)
    message.field.add(name="short", number=5, label=3, type=7)
    return b"bytes://" + files.SerializeToString()


@case
def described_by_bytes(tf):
    results = []
    names = ["x", "word", "many", "fixed", "short"]
    types = [tf.int32, tf.string, tf.int64, tf.int64, tf.uint32]
    for packed in (False, True):
        source = point_set(packed)
        data = tf.io.encode_proto(
            [[1, 0, 3, 1, 2], [0, 1, 0, 0, 0]],
            [
                tf.constant([[-5], [0]]),
                tf.constant([["a"], ["b"]]),
                tf.constant([[-1, 1 << 50, -(1 << 62)], [0, 0, 0]], tf.int64),
                tf.constant([[-3], [0]], tf.int64),
                tf.constant([[7, 8], [0, 0]], tf.uint32),
            ],
            names,
            "hr.Point",
            descriptor_source=source,
        )
        results += [data]
        results += decoded(tf, data, "hr.Point", names, types, descriptor_source=source)
    return results
