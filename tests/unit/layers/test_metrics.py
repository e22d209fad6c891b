"""Metrics: values over several batches, and what they refuse."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def over(batches, build):
    """The updates of batches of (labels, predictions), and the value after them."""
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    value, update = build(x, y)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        updates = [session.run(update, {x: labels, y: p}) for labels, p in batches]
        return updates, session.run(value)


BATCHES = [([1, 0, 1], [0.9, 0.2, 0.4]), ([0], [0.7]), ([1, 1], [0.6, 0.1])]
LABELS = np.concatenate([b[0] for b in BATCHES])
PREDICTIONS = np.concatenate([b[1] for b in BATCHES])
SAID = PREDICTIONS > 0.5


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x, y: tf.metrics.mean(y), PREDICTIONS.mean()),
        (lambda x, y: tf.metrics.accuracy(x, tf.round(y)), (LABELS == SAID).mean()),
        (
            lambda x, y: tf.metrics.root_mean_squared_error(x, y),
            np.sqrt(((LABELS - PREDICTIONS) ** 2).mean()),
        ),
        (lambda x, y: tf.metrics.precision(x, y > 0.5), 2 / 3),
        (lambda x, y: tf.metrics.recall(x, y > 0.5), 2 / 4),
        (lambda x, y: tf.metrics.true_negatives(x, y > 0.5), 1),
        (lambda x, y: tf.metrics.false_positives_at_thresholds(x, y, [0.1, 0.5]), [2, 1]),
        (lambda x, y: tf.metrics.auc(x, y), 4 / 8),
    ],
)
def test_value_counts_all_batches(build, expected):
    updates, value = over(BATCHES, build)
    np.testing.assert_allclose(updates[-1], expected, rtol=1e-4)
    np.testing.assert_array_equal(value, updates[-1])


def test_mean_iou_leaves_out_classes_that_never_came():
    iou, update = tf.metrics.mean_iou([0, 1, 1, 0], [0, 1, 0, 0], num_classes=3)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(iou) == 0
        np.testing.assert_array_equal(session.run(update), [[2, 0, 0], [1, 1, 0], [0, 0, 0]])
        assert session.run(iou) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_predictions_must_be_probabilities():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be in \[0, 1\]"):
        over([([1, 0], [0.5, 1.5])], tf.metrics.auc)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, x: m.accuracy(x, tf.zeros([3])), "are incompatible"),
        (lambda m, x: m.mean(x, weights=tf.zeros([3])), "can not be broadcast"),
        (lambda m, x: m.auc(x, x, curve="X"), "curve must be either ROC or PR"),
        (lambda m, x: m.auc(x, x, summation_method="x"), "Invalid summation_method"),
        (lambda m, x: m.auc(x, x, thresholds=[2.0]), "thresholds must be in"),
        (lambda m, x: m.sensitivity_at_specificity(x, x, 2.0), r"in the range \[0, 1\]"),
    ],
)
def test_refuses(build, message):
    with pytest.raises(ValueError, match=message):
        build(tf.metrics, tf.zeros([2]))


def test_average_precision_needs_a_positive_k():
    with pytest.raises(ValueError, match="Invalid k=0"):
        tf.metrics.average_precision_at_k(tf.constant([[1]], tf.int64), tf.ones([1, 2]), 0)


def test_labels_of_unknown_rank():
    labels = tf.placeholder(tf.int64)
    _, update = tf.metrics.recall_at_k(labels, tf.constant([[0.1, 0.9], [0.8, 0.2]]), 1)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(update, {labels: [1, 1]}) == 0.5
        assert session.run(update, {labels: [[1], [0]]}) == 0.75


def test_rankings_are_called_like_their_scopes():
    labels, predictions = tf.constant([[1]], tf.int64), tf.constant([[0.1, 0.9]])
    metrics = tf.metrics
    assert metrics.recall_at_k(labels, predictions, 1)[0].name == "recall_at_1:0"
    assert metrics.precision_at_k(labels, predictions, 1, name="p")[0].name == "p:0"
    assert metrics.average_precision_at_k(labels, predictions, 1)[1].name == (
        "average_precision_at_1:0"
    )


# Values and weights of a batch; the weights' shape is known, and the values' rank isn't.
@pytest.mark.parametrize(
    ("weights", "expected"),
    [([1.0, 3.0], 3.25), ([[1.0], [3.0]], 3.25), (2.0, 2.5), ([[1.0, 3.0]], "does not fit")],
)
def test_weights_of_a_known_shape_fit_values_of_unknown_rank(weights, expected):
    values = tf.placeholder(tf.float32)
    _, update = tf.metrics.mean(values, weights=tf.constant(weights))
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        if expected == "does not fit":
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(update, {values: [1.0, 4.0]})
        else:
            assert session.run(update, {values: [1.0, 4.0]}) == pytest.approx(expected)


def test_weights_of_a_known_shape_get_a_last_dimension_of_size_1():
    labels, predictions = tf.placeholder(tf.int64), tf.placeholder(tf.int64)
    _, update = tf.metrics.accuracy(labels, predictions, weights=tf.constant([1.0, 2.0]))
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        fed = {labels: [[1], [2]], predictions: [[1], [3]]}
        assert session.run(update, fed) == pytest.approx(1 / 3)


def test_precision_takes_a_matrix_of_weights_for_values_of_unknown_rank():
    labels, predictions = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    weights = tf.constant([[1, 2, 3, 4], [4, 3, 2, 1]])
    _, update = tf.metrics.precision(labels, predictions, weights=weights)
    fed = {
        predictions: [[1, 0, 1, 0], [1, 0, 1, 0]],
        labels: [[0, 1, 1, 0], [1, 0, 0, 1]],
    }
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(update, fed) == pytest.approx(0.7)
