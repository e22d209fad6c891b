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
