"""Batches of sequence examples: TensorFlow 1.15.5's values on the same records."""

import pytest

import headrace as tf


def record(n=5, words=(b"a", b"b"), rows=((1.0, 2.0), (3.0, 4.0)), counts=((1,), (2, 3))):
    found = tf.train.SequenceExample()
    if n is not None:
        found.context.feature["n"].int64_list.value.append(n)
    found.context.feature["w"].bytes_list.value.extend(words)
    for row in rows or ():
        found.feature_lists.feature_list["x"].feature.add().float_list.value.extend(row)
    for row in counts:
        found.feature_lists.feature_list["y"].feature.add().int64_list.value.extend(row)
    return found.SerializeToString()


CONTEXT = {"n": tf.FixedLenFeature([], tf.int64), "w": tf.VarLenFeature(tf.string)}
SEQUENCE = {"x": tf.FixedLenSequenceFeature([2], tf.float32), "y": tf.VarLenFeature(tf.int64)}


def parse(records, context=CONTEXT, sequence=SEQUENCE, **options):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.io.parse_sequence_example(records, context, sequence, **options))


def test_a_batch_is_padded_to_its_longest_sequence():
    second = record(7, (), ((5.0, 6.0),), ((), (9,), (8, 7, 6)))
    context, sequence, lengths = parse([record(), second])
    assert context["n"].tolist() == [5, 7]
    assert context["w"].indices.tolist() == [[0, 0], [0, 1]]
    assert context["w"].dense_shape.tolist() == [2, 2]
    assert sequence["x"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    assert lengths["x"].tolist() == [2, 1]
    assert sequence["y"].values.tolist() == [1, 2, 3, 9, 8, 7, 6]
    assert sequence["y"].dense_shape.tolist() == [2, 3, 3]
    assert sequence["y"].indices[:4].tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 0]]


def test_what_a_batch_may_miss():
    context, _, _ = parse([record(), record(None)], {"n": tf.FixedLenFeature([], tf.int64, 3)})
    assert context["n"].tolist() == [5, 3]
    optional = {"x": tf.FixedLenSequenceFeature([2], tf.float32, allow_missing=True)}
    _, sequence, lengths = parse([record(), record(rows=None)], None, optional)
    assert sequence["x"][1].tolist() == [[0, 0], [0, 0]]
    assert lengths["x"].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record(), record(None)], "Name: B, Context feature 'n' is required"),
        ([record(), record(rows=None)], "Feature list 'x' is required"),
        ([record(), record(rows=((1.0,),))], "Number of float values != expected"),
        ([record(), b"zzz"], "Could not parse example input"),
    ],
)
def test_a_bad_record_in_a_batch_is_named(records, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        parse(records, example_names=["A", "B"])


def test_a_batch_needs_features_and_a_vector():
    with pytest.raises(ValueError, match=r"Missing features\."):
        parse([record()], None, None)
    with pytest.raises(ValueError, match="rank 1"):
        parse(record())
