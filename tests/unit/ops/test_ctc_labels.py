"""CTC's loss of dense labels, and the different labels of a row; the numbers are TensorFlow's."""

import numpy as np
import pytest

import headrace as tf

LABELS = [[1, 2, 2, 0], [3, 1, 0, 0]]


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def logits(*shape):
    return tf.constant(np.random.RandomState(0).randn(*shape).astype(np.float32))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [9.083898, 5.7524276]),
        ({"logits_time_major": False}, [9.449357, 5.0838037]),
        ({"blank_index": -1}, [8.078214, 4.7995195]),
        ({"blank_index": 2}, [9.899777, 4.302406]),
    ],
)
def test_loss_of_dense_labels(options, wanted):
    shape = (6, 2, 5) if options.get("logits_time_major", True) else (2, 6, 5)
    unique = tf.nn.ctc_unique_labels(LABELS)
    loss = tf.nn.ctc_loss_v2(LABELS, logits(*shape), [3, 2], [6, 5], unique=unique, **options)
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(loss), wanted, rtol=1e-5)


def test_loss_of_sparse_labels_and_its_gradient():
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1, 2, 3], [2, 2])
    given = logits(6, 2, 5)
    loss = tf.nn.ctc_loss_v2(labels, given, None, [6, 5], blank_index=2)
    (gradient,) = tf.gradients(loss, given)
    with tf.Session() as session:
        found, slope = session.run([loss, gradient])
    np.testing.assert_allclose(found, [8.433559, 5.0240912], rtol=1e-5)
    np.testing.assert_allclose(slope.sum(2), 0, atol=1e-5)
    with pytest.raises(ValueError, match="blank_index must be given"):
        tf.nn.ctc_loss_v2(labels, given, None, [6, 5])


def test_unique_labels():
    rows = tf.placeholder(tf.int32, [None, None])
    found, places = tf.nn.ctc_unique_labels(rows)
    with tf.Session() as session:
        unique, where = session.run([found, places], {rows: LABELS})
    assert unique.tolist() == [[1, 2, 0, 0], [3, 1, 0, 0]]
    assert where.tolist() == [[0, 1, 1, 2], [0, 1, 2, 2]]
    assert (unique.dtype, where.dtype) == (np.int64, np.int32)
