"""swap_memory: values that a loop saves for its gradient are in host memory, asked for or not."""

import numpy as np
import pytest

import headrace as tf


def gradients(swap_memory, device):
    """The loss and gradients of a recurrent layer, interpreted and compiled; and its contexts."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        x = tf.constant(np.random.default_rng(0).standard_normal((4, 6, 3), "float32"))
        with tf.device(device):
            cell = tf.nn.rnn_cell.BasicLSTMCell(5)
            outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, swap_memory=swap_memory)
            loss = tf.reduce_sum(tf.square(outputs))
        found = tf.gradients(loss, tf.trainable_variables(), colocate_gradients_with_ops=True)
        contexts = {op._get_control_flow_context() for op in graph.get_operations()} - {None}
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(tf.global_variables_initializer())
            results = [session.run([loss, *found]) for _ in range(3)]
    return results, contexts


@pytest.mark.parametrize("device", ["/cpu:0", "/cpu:1"])
def test_the_gradients_are_the_same(device):
    for plain, swapped in zip(gradients(False, device)[0], gradients(True, device)[0], strict=True):
        for a, b in zip(plain, swapped, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("swap_memory", [False, True])
def test_graphs_keep_the_request(swap_memory):
    """Those of the gradient loop too."""
    _, contexts = gradients(swap_memory, "/cpu:0")
    assert len(contexts) == 2
    assert {c.swap_memory for c in contexts} == {swap_memory}
