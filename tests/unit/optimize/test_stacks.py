"""Lists become stacks where one loop fills them and another empties them, and only there."""

import numpy as np
import pytest

import headrace as tf
from headrace.graph.structured import parts_of
from headrace.pipeline.passes import Options, optimise, prepare


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def kinds(*fetches):
    """How often each op on lists and stacks stands in a step and its parts."""
    options = Options()
    flow = optimise(prepare(fetches, (), (), options), (), options)
    found = {}

    def count(part):
        for node in part.nodes:
            if node.type.startswith(("Stack", "TensorList", "EmptyTensorList")):
                found[node.type] = found.get(node.type, 0) + 1
            for inner in parts_of(node).values():
                count(inner)

    count(flow)
    return found


def sines(x, n=3):
    return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, tf.sin(y) * x), (0, x))[1]


def test_the_lists_of_a_gradient():
    x = tf.Variable(1.3, use_resource=False)
    gradient = tf.gradients(sines(x), [x])[0]
    found = kinds(gradient)
    assert found.keys() == {"StackV2", "StackPushV2", "StackPopV2"}
    assert len(set(found.values())) == 1
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(gradient)
        np.testing.assert_allclose(session.run(gradient), first)  # a step has stacks of its own


def test_a_list_that_two_loops_read_stays():
    x = tf.Variable(1.3, use_resource=False)
    y = sines(x)
    pair = [tf.gradients(t, [x])[0] for t in (y, y * y)]
    assert kinds(*pair).keys() == {"EmptyTensorList", "TensorListPushBack", "TensorListPopBack"}
    assert "StackV2" in kinds(pair[0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        value, first, second = session.run([y, *pair])
    np.testing.assert_allclose(second, 2 * value * first, rtol=1e-6)


def test_lists_of_inner_loops_stay():
    x = tf.Variable(1.3, use_resource=False)
    y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, sines(y, i) * x), (0, x))[1]
    assert kinds(tf.gradients(y, [x])[0])["TensorListPushBack"] > 0
