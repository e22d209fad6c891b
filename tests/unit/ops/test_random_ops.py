"""Random ops in sessions: each step draws new numbers, each session the same ones again."""

import numpy as np
import pytest

import headrace as tf


def draws():
    tf.set_random_seed(3)
    return [
        tf.random_uniform([3]),
        tf.random_normal([2], seed=5),
        tf.random_uniform([3], 0, 100, dtype=tf.int32, seed=1),
    ]


# What TensorFlow 1.15.5 draws in the first and in the second step.
STEPS = [
    ([0.22318637, 0.66803932, 0.70972216], [-1.1347394, 0.74608058], [49, 75, 23]),
    ([0.81106067, 0.62891257, 0.4881916], [-0.046287473, -0.32113406], [73, 48, 19]),
]


def test_steps_continue_and_sessions_start_anew():
    with tf.Graph().as_default():
        fetches = draws()
        for _ in range(2):
            with tf.Session() as session:
                for expected in STEPS:
                    for found, right in zip(session.run(fetches), expected, strict=True):
                        np.testing.assert_allclose(found, right, rtol=1e-6)


def test_unseeded_ops_differ_between_sessions():
    with tf.Graph().as_default():
        x = tf.random_uniform([4])
        with tf.Session() as one, tf.Session() as other:
            assert not np.array_equal(one.run(x), other.run(x))


def test_ops_with_equal_seeds_draw_alike():
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = tf.random_normal([5], seed=1), tf.random_normal([5], seed=1)
        assert np.array_equal(*session.run([a, b]))


@pytest.mark.parametrize("size", [1, 47, 48, 49, 52, 1000])
def test_few_numbers_are_the_start_of_many(size):
    """Small draws take another path through Philox than large ones."""
    with tf.Graph().as_default(), tf.Session() as session:
        for draw in (tf.random_uniform, tf.random_normal, tf.truncated_normal):
            few, many = draw([size], seed=7), draw([5000], seed=7)
            found, longer = session.run([few, many])
            np.testing.assert_allclose(found, longer[:size], rtol=1e-6)


def test_seeds():
    with tf.Graph().as_default():
        assert tf.get_seed(None) == (None, None)
        assert tf.get_seed(7) == (87654321, 7)
        tf.set_random_seed(0)
        assert tf.get_seed(0) == (0, 2**31 - 1)
        tf.constant(1)
        assert tf.get_seed(None) == (0, 1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tf.random_uniform([2], 0, dtype=tf.int32), "Must specify maxval"),
        (lambda: tf.random_uniform([2], dtype=tf.uint8), "Invalid dtype"),
        (lambda: tf.random_uniform([-2]), "must be at least -1|negative"),
        (lambda: tf.random_uniform(3), "Shape must be rank 1 but is rank 0"),
        (lambda: tf.random.stateless_uniform([2], [1, 2, 3]), "Dimension must be 2 but is 3"),
        (lambda: tf.random.categorical([1.0, 2.0], 3), "Shape must be rank 2 but is rank 1"),
    ],
)
def test_bad_arguments(build, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        build()


def test_bad_values_in_a_step():
    with tf.Graph().as_default(), tf.Session() as session:
        shape = tf.placeholder(tf.int32)
        x = tf.random_uniform(shape)
        with pytest.raises(tf.errors.InvalidArgumentError, match="negative"):
            session.run(x, {shape: [-1]})
        y = tf.random_uniform(shape, 5, tf.identity(5), dtype=tf.int32)
        with pytest.raises(tf.errors.InvalidArgumentError, match="minval < maxval"):
            session.run(y, {shape: [2]})
        crop = tf.random_crop(tf.zeros([2, 2]), tf.placeholder_with_default([3, 1], [2]))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Need value\.shape >= size"):
            session.run(crop)
