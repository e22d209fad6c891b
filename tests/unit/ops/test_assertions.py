"""Assertions that don't hold: what is said, and when."""

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize(
    "build, message",
    [
        (
            lambda: tf.assert_equal([1, 2], [1, 3], message="bad"),
            r"bad\nCondition x == y .*\n.*\n\[1 2\]",
        ),
        (lambda: tf.assert_none_equal([1], [1]), "Condition x != y"),
        (lambda: tf.assert_negative([1]), "Condition x < 0"),
        (lambda: tf.assert_non_negative([-1]), "Condition x >= 0"),
        (lambda: tf.assert_less([1.0], [0.5], data=["mine", 7]), "mine\n7"),
    ],
)
def test_constants_are_refused_at_once(build, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        build()


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda x: tf.assert_rank(x, 3), ValueError, "must have rank 3.  Received rank 2, shape"),
        (
            lambda x: tf.assert_rank_at_least(x, 3, message="m"),
            ValueError,
            "m.  Tensor .* at least 3",
        ),
        (lambda x: tf.assert_rank_in(x, [1, 3]), ValueError, r"must have rank in \(1, 3\)"),
        (lambda x: tf.assert_rank(x, [1, 2]), ValueError, "Rank must be a scalar."),
        (lambda x: tf.assert_rank(x, 1.5), TypeError, "must be of type <dtype: 'int32'>"),
        (lambda x: tf.assert_scalar(x), ValueError, "Expected scalar shape for"),
        (lambda x: tf.assert_integer(x), TypeError, 'Expected "x" to be integer type'),
        (lambda x: tf.assert_type(x, tf.int32), TypeError, "must be of type <dtype: 'int32'>"),
        (lambda x: tf.assert_proper_iterable(x), TypeError, "proper"),
        (lambda x: tf.assert_proper_iterable(3), TypeError, "to be iterable"),
    ],
)
def test_static_ranks_and_types_are_refused_at_once(build, error, message):
    with pytest.raises(error, match=message):
        build(tf.placeholder(tf.float32, [2, None]))


def test_values_fail_the_step():
    x = tf.placeholder(tf.int32)
    check = tf.assert_positive(x, message="must be positive")
    with tf.Session() as session:
        session.run(check, {x: [1, 2]})
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"must be positive.*Condition x > 0"
        ):
            session.run(check, {x: [1, 0]})


def test_unknown_ranks_fail_the_step():
    x = tf.placeholder(tf.float32)
    check = tf.assert_rank_in(x, [1, 2])
    with tf.Session() as session:
        session.run(check, {x: [1.0]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="must have rank in"):
            session.run(check, {x: 1.0})


def test_the_common_floating_type():
    x, y = tf.placeholder(tf.float64), tf.placeholder(tf.float32)
    assert tf.assert_same_float_dtype() is tf.float32
    assert tf.assert_same_float_dtype([x, x]) is tf.float64
    with pytest.raises(ValueError, match=r"must be of the same type .* as Placeholder:0"):
        tf.assert_same_float_dtype([x, y])
    with pytest.raises(ValueError, match="Expected floating point type"):
        tf.assert_same_float_dtype([tf.constant(1)])


def test_what_is_numeric():
    assert tf.is_numeric_tensor(tf.constant(1.0))
    assert not tf.is_numeric_tensor(tf.constant("a"))
    assert not tf.is_numeric_tensor(1.0)
