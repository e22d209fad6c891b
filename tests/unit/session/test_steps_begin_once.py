"""A step specialised for other shapes of variables than their current ones starts only once."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import b


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def found_inside():
    """The sum of a variable that the branch or loop body itself finds."""
    handle = b.var_handle_op(dtype=tf.float32, shape=[3], shared_name="v")
    return tf.reduce_sum(b.read_variable_op(handle, dtype=tf.float32) * 2.0)


def branch():
    return tf.cond(tf.random_uniform([]) >= 0.0, found_inside, lambda: 0.0)


def loop():
    return tf.while_loop(lambda i, x: i < 1, lambda i, x: (i + 1, found_inside()), [0, 0.0])[1]


@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
@pytest.mark.parametrize("make", [branch, loop])
def test_a_part_finds_a_variable_of_another_shape(make, traced):
    count = tf.get_variable("count", initializer=0, use_resource=True)
    tf.get_variable("v", initializer=np.ones(3, np.float32), use_resource=True)
    with tf.control_dependencies([count.assign_add(1)]):
        result = make()
    handle = b.var_handle_op(dtype=tf.float32, shape=None, shared_name="v")
    widen = b.assign_variable_op(handle, np.ones(5, np.float32))
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE) if traced else None
    with tf.Session() as session:

        def run():
            metadata = tf.RunMetadata() if traced else None
            return session.run(result, options=options, run_metadata=metadata)

        session.run(tf.global_variables_initializer())
        assert [run(), run(), session.run(count)] == [6.0, 6.0, 2]
        session.run(widen)
        assert [run(), session.run(count)] == [10.0, 3]
        assert [run(), session.run(count)] == [10.0, 4]
