"""Losses: weights that don't fit, reductions and labels that aren't there."""

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_weights_of_another_rank_are_refused_at_once():
    with pytest.raises(ValueError, match=r"values.rank=2. weights.rank=1"):
        tf.losses.compute_weighted_loss(tf.zeros([4, 3]), tf.zeros([4]))


def test_weights_of_another_size_are_refused_at_once():
    with pytest.raises(ValueError, match="weights can not be broadcast to values"):
        tf.losses.compute_weighted_loss(tf.zeros([4, 3]), tf.zeros([4, 2]))


@pytest.mark.parametrize("value", [[1.0, 2.0], [[1.0, 2.0]] * 4])
def test_weights_of_unknown_shape_are_checked_in_the_step(value):
    weights = tf.placeholder(tf.float32)
    loss = tf.losses.compute_weighted_loss(tf.ones([4, 3]), weights)
    with tf.Session() as session:
        assert session.run(loss, {weights: [[1.0], [2.0], [0.0], [0.0]]}) == pytest.approx(1.5)
        assert session.run(loss, {weights: 3.0}) == pytest.approx(3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="weights can not be broadcast"):
            session.run(loss, {weights: value})


def test_all_weights_zero_is_no_loss():
    loss = tf.losses.mean_squared_error(tf.zeros([2]), tf.ones([2]), weights=0.0)
    with tf.Session() as session:
        assert session.run(loss) == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: tf.losses.compute_weighted_loss(x, reduction="mean"), "Invalid Reduction Key"),
        (lambda x: tf.losses.mean_squared_error(None, x), "labels must not be None"),
        (lambda x: tf.losses.hinge_loss(x, None), "logits must not be None"),
        (lambda x: tf.losses.mean_squared_error(x, tf.zeros([3])), "are incompatible"),
        (lambda x: tf.losses.cosine_distance(x, x), "You must specify 'axis'"),
        (lambda x: tf.losses.softmax_cross_entropy(x, tf.zeros([3])), "are incompatible"),
        (lambda x: tf.losses.get_total_loss(), "at least one"),
    ],
)
def test_refuses(build, message):
    with pytest.raises(ValueError, match=message):
        build(tf.zeros([2]))


def test_average_of_examples():
    x = tf.constant([1.0, 2.0, 6.0])
    found = [
        tf.nn.compute_average_loss(x),
        tf.nn.compute_average_loss(x, global_batch_size=6),
        tf.nn.compute_average_loss(x, sample_weight=[1.0, 0.0, 2.0]),
        tf.nn.scale_regularization_loss(tf.constant([1.0, 2.0])),
        tf.nn.scale_regularization_loss([tf.constant(1.0), tf.constant(2.0)]),
    ]
    with tf.Session() as session:
        assert session.run(found) == pytest.approx([3.0, 1.5, 13 / 3, 3.0, 3.0])
    with pytest.raises(ValueError, match="Expected a tensor with at least rank 1"):
        tf.nn.compute_average_loss(tf.constant(1.0))


@pytest.mark.parametrize("labels", [[[2], [0], [1]], [2, 0, 1]])
def test_sparse_softmax_squeezes_weights_of_unknown_rank_in_the_step(labels):
    weights = tf.placeholder(tf.float32)
    logits = tf.constant([[10.0, 0, 0], [0, 10, 0], [0, 0, 10]])
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits, weights)
    with tf.Session() as session:
        for value, expected in [
            ([[1.2], [3.4], [5.6]], 34),
            ([1.2, 3.4, 5.6], 34),
            (2.0, 20),
        ]:
            assert session.run(loss, {weights: value}) == pytest.approx(expected, rel=1e-4)


def test_sparse_softmax_takes_labels_of_unknown_rank_and_a_column_of_weights():
    labels = tf.placeholder(tf.int32)
    logits = tf.constant([[10.0, 0, 0], [0, 10, 0], [0, 0, 10]])
    weights = tf.constant([[1.2], [3.4], [5.6]])
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits, weights)
    with tf.Session() as session:
        for value in ([2, 0, 1], [[2], [0], [1]]):
            assert session.run(loss, {labels: value}) == pytest.approx(34, rel=1e-4)
