"""Values known before a step runs: they follow from constants and static shapes, even partly."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def rows():
    return tf.placeholder(tf.float32, [None, 3])


def test_shape_is_folded_in_part():
    shape = tf.shape(rows())
    assert tf.get_static_value(shape) is None
    assert tf.get_static_value(shape, partial=True) is None
    assert tf.get_static_value(shape[1]) is None
    assert tf.get_static_value(tf.rank(rows())) == 2
    assert tf.get_static_value(tf.stack([shape[0], 3]), partial=True).tolist() == [None, 3]


def test_static_values_of_other_things():
    assert tf.get_static_value("hi") == "hi"
    assert tf.get_static_value(tf.Variable(1.0)) is None
    assert tf.get_static_value(tf.constant([1, 2]) + 1) is None
    assert tf.get_static_value(tf.cast(tf.range(3), tf.float32)).tolist() == [0, 1, 2]
    assert tf.contrib.util.constant_value(tf.fill([2], 7)).tolist() == [7, 7]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x, n: tf.zeros([n, 2]), [None, 2]),
        (lambda x, n: tf.zeros([n, 2, tf.placeholder(tf.int32, [])]), [None, 2, None]),
        (lambda x, n: tf.reshape(x, tf.concat([tf.shape(x), [1]], 0)), [None, 3, 1]),
        (lambda x, n: tf.zeros(tf.shape(x)[1:]), [3]),
        (lambda x, n: tf.zeros(tf.shape(x)[::-1]), [None, None]),
        (
            lambda x, n: tf.zeros(tf.concat([tf.placeholder(tf.int32, [2]), [4]], 0)),
            [None, None, 4],
        ),
        (lambda x, n: tf.tile(x, [1, 2]), [None, 6]),
        (lambda x, n: tf.fill(tf.tile(tf.shape(x), [2]), 0), [None] * 4),
    ],
)
def test_partly_known_shapes_travel(build, expected):
    x = rows()
    assert build(x, tf.shape(x)[0]).shape.as_list() == expected


def test_an_unknown_index_gives_no_value():
    n = tf.shape(rows())[0]
    numbers = tf.constant([5, 6, 7])
    for taken in (numbers[n], numbers[:n], tf.gather(numbers, n), tf.slice(numbers, [n], [1])):
        assert tf.get_static_value(taken) is None


@pytest.mark.timeout(60)
def test_a_value_is_worked_out_once():
    n = tf.constant(0)
    for _ in range(50):
        n = n + n  # 2**50 paths lead to the first one
    assert tf.zeros(tf.stack([n])).shape.as_list() == [0]


def test_small_zeros_are_constants_and_large_ones_are_filled():
    assert tf.zeros([999]).op.type == "Const"
    assert tf.zeros([1000]).op.type == "Fill"
    assert tf.ones([0, 2]).op.type == "Const"
    np.testing.assert_array_equal(tf.get_static_value(tf.ones([0, 2])), np.ones((0, 2)))


@pytest.mark.parametrize("level", [tf.OptimizerOptions.OFF, tf.OptimizerOptions.ON_1])
def test_a_shape_that_the_step_computes_must_fit(level):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        shape = tf.placeholder(tf.int32, [1])
        y = tf.reshape(tf.exp(x), shape) * 2.0
        options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(global_jit_level=level))
        with tf.Session(config=tf.ConfigProto(graph_options=options)) as session:
            for right in ([3], [-1]):
                assert session.run(y, {x: [0.0, 1.0, 2.0], shape: right}).shape == (3,)
            for wrong in ([5], [2], [0], [-2]):
                with pytest.raises(tf.errors.InvalidArgumentError):
                    session.run(y, {x: [0.0, 1.0, 2.0], shape: wrong})
