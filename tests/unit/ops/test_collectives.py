"""TensorFlow's collective ops among the devices of one process."""

import numpy as np
import pytest

import headrace as tf

TWO = tf.ConfigProto(device_count={"CPU": 2})


def reduce(x, size, instance, merge="Add", final="Id"):
    return tf.raw_ops.CollectiveReduce(
        input=x,
        group_size=size,
        group_key=1,
        instance_key=instance,
        merge_op=merge,
        final_op=final,
        subdiv_offsets=[0],
    )


def on_both(make):
    """Build something on each of two devices."""
    found = []
    for i in range(2):
        with tf.device(f"/cpu:{i}"):
            found.append(make(i))
    return found


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def run(fetches):
    with tf.Session(config=TWO) as session:
        return session.run(fetches, options=tf.RunOptions(timeout_in_ms=20_000))


@pytest.mark.parametrize(
    ("merge", "final", "wanted"),
    [
        ("Add", "Id", [4, 6]),
        ("Add", "Div", [2, 3]),
        ("Mul", "Id", [3, 8]),
        ("Min", "Id", [1, 2]),
        ("Max", "Id", [3, 4]),
    ],
)
def test_reduce(merge, final, wanted):
    values = [[1.0, 2.0], [3.0, 4.0]]
    for found in run(on_both(lambda i: reduce(tf.constant(values[i]), 2, 7, merge, final))):
        np.testing.assert_array_equal(found, wanted)


def test_the_order_of_instances_does_not_matter():
    def both(i):
        return [reduce(tf.fill([3 - key], 1.0 + i), 2, key) for key in ((0, 1), (1, 0))[i]]

    (a, b), (d, c) = run(on_both(both))
    np.testing.assert_array_equal(a, [3, 3, 3])
    np.testing.assert_array_equal(c, [3, 3, 3])
    np.testing.assert_array_equal(b, d)


def test_gather():
    def make(i):
        return tf.raw_ops.CollectiveGather(
            input=tf.constant([i, i + 10]), group_size=2, group_key=1, instance_key=3, shape=[4]
        )

    for found in run(on_both(make)):
        assert found.tolist() == [0, 10, 1, 11]


def test_broadcast():
    about = {"group_size": 2, "group_key": 1, "instance_key": 4, "shape": [2]}

    def make(i):
        if i:
            return tf.raw_ops.CollectiveBcastRecv(T=tf.float32, **about)
        return tf.raw_ops.CollectiveBcastSend(input=tf.constant([5.0, 6.0]), **about)

    for found in run(on_both(make)):
        assert found.tolist() == [5, 6]


def test_alone():
    assert run(reduce(tf.constant([6]), 1, 1, final="Div")).tolist() == [6]


def test_errors():
    made = on_both(lambda i: reduce(tf.ones([2 + i]), 2, 9))
    with pytest.raises(tf.errors.InvalidArgumentError, match="shapes of a reduction differ"):
        run(made)
    with pytest.raises(tf.errors.InvalidArgumentError, match="group_size"):
        run(reduce(tf.ones([2]), 0, 9))


def test_a_missing_member_is_waited_for():
    made = reduce(tf.ones([2]), 2, 11)
    with tf.Session(config=TWO) as session, pytest.raises(tf.errors.DeadlineExceededError):
        session.run(made, options=tf.RunOptions(timeout_in_ms=100))
