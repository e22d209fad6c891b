"""What the batch family refuses while the graph is built."""

import pytest

import headrace as tf


@pytest.mark.parametrize("capacity", [10, 14])
def test_a_shuffling_queue_must_hold_more_than_it_keeps(capacity):
    with tf.Graph().as_default():
        x = tf.constant(1)
        message = f"capacity {capacity} must be bigger than min_after_dequeue 14"
        with pytest.raises(ValueError, match=message):
            tf.train.shuffle_batch([x], 2, capacity, 14)
        with pytest.raises(ValueError, match=message):
            tf.train.maybe_shuffle_batch([x], 2, capacity, 14, True)


def test_queues_of_several_threads_may_be_smaller_but_must_have_room():
    with tf.Graph().as_default():
        x = tf.constant(1)
        assert tf.train.shuffle_batch_join([[x], [x]], 2, 10, 14).shape == [2]  # as in TensorFlow
        with pytest.raises(ValueError, match="capacity 14 must be bigger than"):
            tf.train.shuffle_batch_join([[x], [x]], 2, 14, 14)


JOINS = [
    lambda tensors: tf.train.batch_join(tensors, 2),
    lambda tensors: tf.train.maybe_batch_join(tensors, True, 2),
    lambda tensors: tf.train.shuffle_batch_join(tensors, 2, 10, 1),
    lambda tensors: tf.train.maybe_shuffle_batch_join(tensors, 2, 10, 1, True),
]


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ([{"c": 1, "s": 2}, {"d": 1, "s": 2}], ValueError, "must have the same keys"),
        ([{"c": 1, "s": 2}, {"c": 1}], ValueError, "must have the same keys"),
        ([{"c": 1}, [1]], TypeError, "dictionaries only"),
        ([[1], {"c": 1}], TypeError, "dictionaries only"),
        ([[1, 2], [1]], ValueError, "Inconsistent SparseTensors list"),
        ([[1], [1.0]], TypeError, "types to be consistent"),
    ],
)
def test_sets_of_tensors_that_do_not_fit_together(join, tensors, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        join(tensors)


@pytest.mark.parametrize("join", JOINS)
def test_sparse_and_dense_tensors_do_not_fit_together(join):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Inconsistent SparseTensors"):
        join([[1], [tf.SparseTensor([[0]], [1], [2])]])
