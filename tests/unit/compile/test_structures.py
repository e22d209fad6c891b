"""Loops and branches inside clusters give the interpreter's results: variables that are computed in
place or swap places, nests, no iterations at all, and other kernels inside.
"""

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import assert_tiers_agree, clusters, uniform


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def given(*shape, seed=0, dtype=np.float32):
    """A variable, so that nothing can be computed in advance."""
    return tf.get_variable(f"v{seed}", initializer=uniform(*shape, seed=seed, dtype=dtype))


def loop(count, body, *start):
    """Run body(i, *variables) for i = 0, 1, ..; the variables at the end."""
    found = tf.while_loop(
        lambda i, *_: i < count, lambda i, *v: (i + 1, *body(i, *v)), [tf.constant(0), *start]
    )
    return list(found[1:])


def assert_native(fetches):
    assert any(c.has_loops for c in clusters(fetches))
    assert_tiers_agree(fetches)


def test_variables_change_places():
    a, b = given(7), given(7, seed=1)
    assert_native(loop(5, lambda i, x, y: (y, x), a, b))
    assert_native(loop(5, lambda i, x, y, z: (y + 1.0, z, x * 2.0), a, b, tf.ones([7])))


def test_what_a_variable_was_is_needed_after_it_is_made_anew():
    assert_native(loop(4, lambda i, x, p: (x * 2.0 + p, x), given(11), tf.zeros([11])))
    assert_native(
        loop(
            3,
            lambda i, x: (tf.concat([x[1:], x[:1]], 0) + tf.reverse(x, [0]),),
            given(1001, seed=1),
        )
    )


@pytest.mark.parametrize("dtype", [tf.float64, tf.int64])
def test_wide_types(dtype):
    start = tf.cast(given(33) * 10, dtype)
    assert_native(loop(9, lambda i, x, y: (y, x + tf.reverse(y, [0])), start, tf.ones_like(start)))


def test_a_condition_on_flags():
    found = tf.while_loop(
        lambda i, x, open: tf.logical_and(i < 9, tf.reduce_any(open)),
        lambda i, x, open: (i + 1, x * 1.5, tf.logical_and(open, x < 2.0)),
        [0, tf.abs(given(13)), tf.ones([13], tf.bool)],
    )
    assert_native(list(found))


def test_loops_in_loops():
    def outer(i, x):
        inner = tf.while_loop(
            lambda j, _: j < i + 1,
            lambda j, y: (j + 1, tf.tanh(y) * 1.1 + tf.reduce_sum(y)),
            [0, x],
        )
        return (inner[1],)

    assert_native(loop(4, outer, given(5)))


def test_branches_of_which_one_does_nothing():
    def body(i, x, y):
        changed = tf.cond(i < 3, lambda: x, lambda: x * 2.0 + 1.0)
        return changed, tf.cond(tf.reduce_sum(x) > 0.0, lambda: y, lambda: x)

    assert_native(loop(6, body, given(9), tf.zeros([9])))


def test_no_iteration():
    count = tf.get_variable("count", initializer=0)
    assert_native(loop(count, lambda i, x: (tf.matmul(x, x),), given(9, 9)))


@pytest.mark.parametrize("channels", [5, 8])
def test_convolutions_and_products_with_gradients(channels):
    filters, weights = given(3, 3, channels, channels), given(channels, channels, seed=1)

    def body(i, x):
        made = tf.nn.relu(tf.nn.conv2d(x, filters * 0.2, [1, 1, 1, 1], "SAME"))
        flat = tf.matmul(tf.reshape(made, [-1, channels]), weights)
        return (tf.reshape(flat, [2, 9, 7, channels]),)

    (found,) = loop(3, body, given(2, 9, 7, channels, seed=2))
    assert_native([found, *tf.gradients(found, [filters, weights])])
