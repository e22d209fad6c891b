"""tf.recompute_grad: the gradients of a function that is built a second time for them."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def test_arguments():
    calls = []

    @tf.recompute_grad
    def function(x, z):
        calls.append(1)
        return tf.tanh(x) * z + tf.sin(z)

    x, z = tf.constant([1.0, 2.0]), tf.constant(3.0)
    y = function(x, z)
    found = tf.gradients(y, [x, z])
    assert len(calls) == 2
    plain = tf.tanh(x) * z + tf.sin(z)
    with tf.Session() as session:
        for a, b in zip([y, *found], [plain, *tf.gradients(plain, [x, z])], strict=True):
            np.testing.assert_array_equal(session.run(a), session.run(b))
        second = session.run(tf.gradients(found[0], x))
        wanted = session.run(tf.gradients(tf.gradients(plain, x)[0], x))
    np.testing.assert_allclose(second, wanted, rtol=1e-6)


def test_variables_and_several_results():
    w = tf.get_variable("w", initializer=2.0, use_resource=True)
    x = tf.constant([1.0, 2.0])
    first, second = tf.recompute_grad(lambda x: (x * w, x * 3.0))(x)
    with tf.Session() as session:
        session.run(w.initializer)
        assert [g.tolist() for g in session.run(tf.gradients(first, [x, w]))] == [[2, 2], 3]
        assert [g.tolist() for g in session.run(tf.gradients([first, second], [x, w]))] == [
            [5, 5],
            3,
        ]


def test_the_function_is_computed_again_after_the_gradient_has_come():
    x = tf.placeholder(tf.float32, [2])
    y = tf.recompute_grad(tf.exp)(x)
    before = tf.get_default_graph().version
    tf.gradients(y, x, tf.constant([1.0, 1.0], name="given"))
    again = [op for op in tf.get_default_graph().get_operations()[before:] if op.type == "Exp"]
    assert len(again) == 1
    assert again[0].inputs[0].op.control_inputs


def test_keyword_arguments_are_refused():
    with pytest.raises(ValueError, match="keyword arguments only when eager"):
        tf.recompute_grad(lambda x, k: x * k)(tf.ones([2]), k=2.0)
