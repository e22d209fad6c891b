"""The watchdog of property tests: a step that hangs fails, and says what it waits for."""

import pytest

import headrace as tf
from tests.property.watchdog import watched


def test_a_hang_becomes_a_failure_that_names_what_each_partition_waits_for():
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            queue = tf.FIFOQueue(2, tf.float32, [], name="never_filled")
            element = queue.dequeue()
        with tf.device("/cpu:1"):
            y = element + 1.0
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            with pytest.raises(tf.errors.DeadlineExceededError) as caught, watched(session, 0.5):
                session.run(y)
            assert "never_filled" in str(caught.value) and "_Recv" in str(caught.value)
            session.run(queue.enqueue(1.0))
            with watched(session):
                assert session.run(y) == 2.0
