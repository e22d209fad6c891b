"""Slices of native loops whose places the loop computes: native, and checked."""

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import clusters, session, uniform
from tests.unit.compile.test_native_loops import assert_one_call, loop


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


SLICES = {
    "a row": lambda x, i: x[i],
    "from the end": lambda x, i: x[-1 - i],
    "an element": lambda x, i: x[i, 0, -i - 1],
    "a column": lambda x, i: x[:, i],
    "the last axis": lambda x, i: x[..., i],
    "both ends": lambda x, i: x[i, ..., i],
    "new axes": lambda x, i: x[tf.newaxis, :, i, ..., tf.newaxis],
    "a part of a row": lambda x, i: x[i, 1:3],
    "a part of a column": lambda x, i: x[-2:, i, ::2],
    "backwards": lambda x, i: x[2:0:-1, tf.newaxis, ..., i],
    "a block": lambda x, i: tf.slice(x, [i, 1, 0], [1, 2, 3]),
    "a block of the last axis": lambda x, i: tf.slice(x, [0, 0, i], [3, 3, 1]),
}


@pytest.mark.parametrize(
    "which, shape",
    [
        *((which, (3, 4, 3)) for which in SLICES),
        *((which, (3, 3, 700)) for which in ("a row", "the last axis")),
    ],
)
def test_slices_and_their_gradients(which, shape):
    x = tf.get_variable("x", initializer=uniform(*shape))
    found = loop(
        3, lambda i, y: y + tf.reduce_sum(tf.sin(SLICES[which](x, i)) * (y + 1.0)), tf.zeros([])
    )
    assert_one_call([found, *tf.gradients(found, x)])


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "uint8"])
def test_types(dtype):
    x = tf.get_variable("x", initializer=(uniform(4, 33) > 0).astype(dtype))
    start = tf.zeros([33], "float64")
    assert_one_call(
        [loop(4, lambda i, y: y * 2 + tf.cast(x[tf.cast(i, "int64")], "float64"), start)]
    )


def test_blocks():
    x = tf.get_variable("x", initializer=uniform(5, 4, 6))
    found = loop(3, lambda i, y: y * 2 + tf.slice(x, [i, 1, 2 * i], [2, 3, 2]), tf.zeros([2, 3, 2]))
    assert_one_call([found])


@pytest.mark.parametrize(
    "piece, last",
    [
        (lambda x, i: x[i], 5),
        (lambda x, i: x[-1 - i], 5),
        (lambda x, i: x[0, i], 3),
        (lambda x, i: tf.slice(x, [i, 0], [2, 3])[0], 4),
        (lambda x, i: tf.slice(x, [-i, 0], [2, 3])[0], 1),
    ],
)
def test_a_place_that_is_none(piece, last):
    x, count = tf.get_variable("x", initializer=uniform(5, 3)), tf.placeholder("int32", [])
    found = loop(count, lambda i, y: y + piece(x, i), tf.zeros([3]))
    assert any(c.has_loops for c in clusters([found], {count: 1}))
    said = []
    for jit in (True, False):
        with session(jit) as run:
            run.run(tf.global_variables_initializer())
            run.run(found, {count: last})
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                run.run(found, {count: last + 1})
            assert run.run(found, {count: 1}).shape == (3,)
            said.append(caught.value.message.splitlines()[0])
    assert said[0] == said[1] and "lice" in said[0]


def test_beside_a_loop_slices_are_views_as_before():
    x, i = tf.get_variable("x", initializer=uniform(5, 3)), tf.placeholder("int32", [])
    with session(True) as run:
        run.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(run.run(x[i] * 2.0, {i: 4}), run.run(x)[4] * 2)
