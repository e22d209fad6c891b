"""Sequence examples: values and messages of TensorFlow 1.15.5 on the same record."""

import pytest

import headrace as tf

Fixed, Any, Steps = tf.FixedLenFeature, tf.VarLenFeature, tf.FixedLenSequenceFeature


def record():
    made = tf.train.SequenceExample()
    made.context.feature["n"].int64_list.value.append(5)
    made.context.feature["w"].bytes_list.value.extend([b"a", b"b"])
    lists = made.feature_lists.feature_list
    for row in ([1.0, 2.0], [3.0, 4.0]):
        lists["x"].feature.add().float_list.value.extend(row)
    for row in ([1], [2, 3], []):
        lists["y"].feature.add().int64_list.value.extend(row)
    for row in (b"p", b"q"):
        lists["s"].feature.add().bytes_list.value.append(row)
    return made.SerializeToString()


def parse(context=None, sequences=None, text=None, **arguments):
    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.parse_single_sequence_example(
            record() if text is None else text, context, sequences, **arguments
        )
        return session.run(found)


def test_features_that_are_there_once():
    context, sequences = parse({"n": Fixed([], tf.int64), "w": Any(tf.string)})
    assert context["n"] == 5 and sequences == {}
    assert context["w"].values.tolist() == [b"a", b"b"]
    assert context["w"].indices.tolist() == [[0], [1]] and context["w"].dense_shape.tolist() == [2]


def test_features_of_steps():
    _, found = parse(
        sequences={"x": Steps([2], tf.float32), "y": Any(tf.int64), "s": Steps([], tf.string)}
    )
    assert found["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]] and found["s"].tolist() == [b"p", b"q"]
    assert found["y"].indices.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert found["y"].values.tolist() == [1, 2, 3] and found["y"].dense_shape.tolist() == [3, 2]


def test_what_is_missing():
    context, found = parse(
        {"none": Fixed([], tf.int64, 7), "any": Any(tf.int64)},
        {"no": Steps([2], tf.float32, allow_missing=True), "not": Any(tf.float32)},
    )
    assert context["none"] == 7 and context["any"].dense_shape.tolist() == [0]
    assert found["no"].shape == (0, 2) and found["not"].dense_shape.tolist() == [0, 0]


def test_shapes_are_known_before_the_step():
    with tf.Graph().as_default():
        context, found = tf.parse_single_sequence_example(
            tf.placeholder(tf.string, []),
            {"n": Fixed([1], tf.int64)},
            {"x": Steps([2], tf.float32)},
        )
    assert context["n"].shape.as_list() == [1] and found["x"].shape.as_list() == [None, 2]


@pytest.mark.parametrize(
    ("context", "sequences", "message"),
    [
        ({"z": Fixed([], tf.int64)}, None, "Name: me, Context feature 'z' is required but could"),
        (None, {"z": Steps([], tf.int64)}, "Name: me, Feature list 'z' is required but could not"),
        ({"n": Fixed([], tf.float32)}, None, "Context feature: n.  Data types don't match. Expec"),
        (None, {"x": Steps([2], tf.int64)}, "Feature list: x, Index: 0.  Data types don't match"),
        (None, {"y": Any(tf.string)}, "Feature List: y, Index: 0.  Data types don't match."),
        (
            {"n": Fixed([2], tf.int64)},
            None,
            "Key: n, Index: 0.  Number of int64 values != expected.  values size: 1 but output "
            "shape: [2]",
        ),
        (
            None,
            {"y": Steps([1], tf.int64)},
            "Key: y, Index: 1.  Number of int64 values != expected.  values size: 2 but output "
            "shape: [1]",
        ),
    ],
)
def test_what_does_not_fit(context, sequences, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        parse(context, sequences, example_name="me")
    assert message in caught.value.message


def test_mistakes():
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example input"):
        parse({"n": Any(tf.int64)}, text=b"junk")
    for context, sequences, message in (
        (None, None, "Missing features."),
        ({"n": Steps([], tf.int64)}, None, "Unsupported FixedLenSequenceFeature"),
        (None, {"x": Fixed([2], tf.float32)}, "Unsupported FixedLenFeature"),
        (None, {"x": Steps([2], tf.float32, True, 1.0)}, "feature_list_dense_defaults"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(context, sequences)
