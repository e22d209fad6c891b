"""Gradients of tf.py_function, beyond what TensorFlow 1.15.5 can do (tests/oracle has the rest): in
loops, of any order, by several calls of tf.gradients, with integers among arguments and results.
"""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def scalar_function(function, *inputs):
    return tf.reshape(tf.py_function(function, list(inputs), tf.float32), [])


def test_higher_orders():
    x = tf.constant(3.0)
    y = tf.py_function(lambda v: v**4 + tf.sin(v), [x], tf.float32)
    found = [y]
    for _ in range(3):
        found.append(tf.gradients(found[-1], x)[0])
    expected = [81 + np.sin(3), 108 + np.cos(3), 108 - np.sin(3), 72 - np.cos(3)]
    np.testing.assert_allclose(run(found), expected, 1e-5)


def test_second_order_between_other_operations():
    x = tf.constant([1.0, 2.0])
    w = tf.constant([3.0, -1.0])
    y = tf.py_function(lambda a, b: a * a * b, [x, w], tf.float32)
    first = tf.gradients(tf.reduce_sum(y * y), x)[0]
    second = tf.gradients(tf.reduce_sum(first * w), [x, w])
    x_, w_ = run(x), run(w)
    np.testing.assert_allclose(run(second[0]), 12 * x_**2 * w_**3)
    np.testing.assert_allclose(run(second[1]), 12 * x_**3 * w_**2)


def test_hessian():
    x = tf.constant([1.0, 2.0, 3.0])
    y = tf.py_function(lambda v: v[0] * v[1] * v[2] + v[0] ** 2, [x], tf.float32)
    assert run(tf.hessians(y, x)[0]).tolist() == [[2, 3, 2], [3, 0, 1], [2, 1, 0]]


def test_several_gradients_of_one_call():
    calls = []
    x = tf.constant(3.0)
    y = tf.py_function(lambda v: calls.append(1) or v * v, [x], tf.float32)
    assert run([tf.gradients(y, x), tf.gradients(y * 2.0, x), y]) == [[6], [12], 9]
    assert calls == [1]


def test_integers_have_none():
    x, n = tf.constant([2.0, 3.0]), tf.constant(3)
    power, count = tf.py_function(
        lambda v, k: (v ** float(k), len(v)), [x, n], [tf.float32, tf.int32]
    )
    dx, dn = tf.gradients([power, count], [x, n])
    assert dn is None
    assert dx.shape == (2,)
    assert run(dx).tolist() == [12, 27]
    assert tf.gradients(tf.py_function(lambda k: k * 2, [n], tf.int32), n) == [None]
    assert tf.gradients(tf.py_function(lambda k: k * 2.0, [x], tf.float32), n) == [None]


def test_what_a_function_does_not_use_has_zeros():
    x, y = tf.constant([[1.0], [2.0]]), tf.constant([3.0])
    z = tf.py_function(lambda a, b: b.numpy() * 2.0, [x, y], tf.float32)
    assert [v.tolist() for v in run(tf.gradients(z, [x, y]))] == [[[0], [0]], [0]]


def test_a_result_that_is_an_argument_and_one_twice():
    x = tf.constant(3.0)
    a, b, c = tf.py_function(lambda v: [v, v, v * v], [x], [tf.float32] * 3)
    assert run(tf.gradients([a, b, c * 2.0], x)) == [14]


def test_loops():
    x = tf.placeholder(tf.float32, [])
    seen = []

    def step(v, i):
        seen.append(int(i))
        return v * v if int(i) % 2 == 0 else v + float(i)

    def body(i, v):
        return i + 1, scalar_function(step, v, i)

    _, y = tf.while_loop(lambda i, v: i < 4, body, (0, x))
    dx = tf.gradients(y, x)[0]
    ddx = tf.gradients(dx, x)[0]
    # ((x^2 + 1)^2) + 3
    found = run([y, dx, ddx], {x: 2.0})
    assert found == [28, 4 * 2 * 5, 4 * (3 * 4 + 1)]
    assert seen == [0, 1, 2, 3]


def test_loops_in_loops_and_branches():
    x = tf.constant([0.5, -2.0])

    def row(v):
        def outer(i, a):
            inner = tf.while_loop(
                lambda j, b: j < 2,
                lambda j, b: (j + 1, scalar_function(lambda p, q: p * q, b, v)),
                (0, a),
            )[1]
            return i + 1, tf.cond(
                v > 0.0, lambda: inner, lambda: scalar_function(lambda p: p * 3.0, inner)
            )

        return tf.while_loop(lambda i, a: i < 2, outer, (0, v))[1]

    y = tf.map_fn(row, x)  # x^5, and 9 x^5
    np.testing.assert_allclose(run(y), [0.5**5, 9 * (-2.0) ** 5])
    np.testing.assert_allclose(run(tf.gradients(y, x)[0]), [5 * 0.5**4, 45 * (-2.0) ** 4])


def test_loops_and_branches_inside():
    def inside(v):
        rows = tf.map_fn(lambda r: r * v[0], v)
        _, total = tf.while_loop(
            lambda i, _: i < len(v), lambda i, t: (i + 1, t * rows[i]), (0, tf.constant(1.0))
        )
        return tf.cond(total > 0.0, lambda: total, lambda: -total)

    x = tf.constant([-2.0, 3.0])
    y = tf.py_function(inside, [x], tf.float32)  # |x0^3 x1|
    found = run([y, tf.gradients(y, x)[0]])
    assert found[0] == 24
    assert found[1].tolist() == [-36, 8]


def test_rows_of_a_gather_come_as_dense_gradients():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    y = tf.py_function(lambda v: tf.gather(v, [0, 0, 2]), [x], tf.float32)
    assert run(tf.gradients(y, x)[0]).tolist() == [[2, 2], [0, 0], [1, 1]]


def test_training():
    x, target = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None])
    w = tf.Variable([[0.0], [0.0]])
    error = tf.py_function(lambda p, t: tf.reshape(p, [-1]) - t, [tf.matmul(x, w), target], "float")
    loss = tf.reduce_mean(tf.square(error))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    data = np.random.RandomState(0).randn(20, 2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(100):
            session.run(train, {x: data, target: data @ [2.0, -1.0]})
        np.testing.assert_allclose(session.run(w), [[2], [-1]], atol=1e-3)


def test_an_error_in_the_gradient():
    @tf.custom_gradient
    def fails(v):
        def gradient(dy):
            raise KeyError("which")

        return v * 1.0, gradient

    x = tf.constant(1.0)
    y = tf.py_function(fails, [x], tf.float32)  # here it is made
    dx = tf.gradients(y, x)[0]
    assert run(y) == 1
    with pytest.raises(tf.errors.UnknownError, match="KeyError: 'which'") as caught:
        run(dx)
    assert "# here it is made" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_operations_without_a_gradient():
    x = tf.constant([1.0])
    y = tf.py_function(
        lambda v: tf.raw_ops.BesselI0e(x=v) + tf.py_func(abs, [v], "float"), [x], "float"
    )
    assert run(tf.gradients(y, x)[0]).shape == (1,)
    z = tf.py_function(lambda v: tf.image.hsv_to_rgb(v), [[[1.0, 0.5, 0.5]]], tf.float32)
    assert tf.gradients(z, x) == [None]
