"""Static shapes and values: as sharp as TensorFlow's, harmless and quick."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.inference import constant_value, known_value


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def placeholder(*sizes):
    return tf.placeholder(tf.float32, sizes)


def shape(t):
    return t.shape.as_list()


def test_shapes_that_follow_from_parts_of_shapes():
    x = placeholder(None, 3, 4)
    batch = tf.shape(x)[0]
    assert shape(tf.reshape(x, [batch, -1])) == [None, None]
    assert shape(tf.reshape(x, [-1, 12])) == [None, 12]
    assert shape(tf.reshape(x, tf.stack([batch, 12]))) == [None, 12]
    assert shape(tf.reshape(x, tf.concat([tf.shape(x)[:1], [12]], 0))) == [None, 12]
    assert shape(tf.zeros(tf.shape(x))) == [None, 3, 4]
    # As in TensorFlow, a number is known if the whole of what it's computed from is.
    assert shape(tf.fill([batch, tf.shape(x)[1] * 2], 1.0)) == [None, None]
    assert shape(tf.tile(x, [2, 1, 3])) == [None, 3, 12]
    assert shape(tf.zeros([tf.shape(x)[2] // 2])) == [None]
    whole = placeholder(2, 3, 4)
    assert shape(tf.zeros([tf.shape(whole)[2] // 2])) == [2]
    assert shape(tf.reshape(whole, [tf.shape(whole)[0], -1])) == [2, 12]
    assert shape(tf.reshape(whole, [tf.size(whole)])) == [24]


def test_what_may_change_is_not_folded():
    v = tf.Variable([2, 3])
    ran = []
    called = tf.py_func(lambda: ran.append(1) or np.int32([2, 3]), [], tf.int32)
    called.set_shape([2])
    default = tf.placeholder_with_default([2, 3], [2])
    for sizes in (v, v.value(), called, tf.random_uniform([2], 1, 5, tf.int32), default):
        assert shape(tf.zeros(sizes)) == [None, None]
    assert ran == []


def test_folding_never_fails_nor_warns():
    size = tf.constant(3)
    assert shape(tf.zeros([size // (size - 3)])) == [None]
    assert known_value(tf.constant(1.0) / 0.0) == np.inf
    assert known_value(tf.gather(tf.constant([1, 2]), 7)) is None
    assert known_value(tf.check_numerics(tf.constant([np.nan]), "bad")) is None


@pytest.mark.timeout(60)
def test_folding_visits_each_operation_once_and_gives_up_in_time():
    n = tf.constant(1)
    for _ in range(60):
        n = n + n - n  # 2**60 paths
    assert shape(tf.zeros([n])) == [1]
    for _ in range(3000):
        n = n + 0
    assert shape(tf.zeros([n])) == [None]


def test_large_values_are_not_folded():
    big = tf.range(100_000_000)
    assert shape(big) == [100_000_000]
    assert constant_value(big[5]) is None
    assert constant_value(tf.reduce_sum(tf.ones([3000, 3000]))) is None


def test_values_of_constants_are_not_aliased():
    c = tf.constant([1, 2])
    value = constant_value(c)
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 7


def test_a_value_that_was_asked_for_cannot_be_fed():
    size = tf.constant(3)
    assert tf.get_static_value(size) == 3
    with tf.Session() as session, pytest.raises(ValueError, match="may not be fed"):
        session.run(size + 1, {size: 4})


def test_loop_variables_start_with_the_shape_that_programs_see():
    t = tf.placeholder(tf.int32, [1, None])
    rows = tf.zeros([tf.shape(t)[0], 2])
    assert rows.shape.as_list() == [None, 2]
    _, doubled = tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a, a], 0)), [0, rows]
    )
    with tf.Session() as session:
        assert session.run(doubled, {t: [[1, 2]]}).shape == (8, 2)
