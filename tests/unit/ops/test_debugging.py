"""Checks that fail: at once where the graph tells enough, else when the step runs."""

import numpy as np
import pytest

import headrace as tf

INVALID = tf.errors.InvalidArgumentError


def fed(value, shape=None):
    return tf.placeholder_with_default(tf.constant(value), shape)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: tf.assert_equal([1, 2], [1, 3]), r"Condition x == y .*\nx .*\n\[1 2\]"),
        (lambda: tf.assert_equal(1, 2, message="mine", data=["seen"]), "^mine\nseen"),
        (lambda: tf.assert_none_equal([1, 2], [1, 3]), "x != y"),
        (lambda: tf.assert_less(5, 3), "x < y"),
        (lambda: tf.assert_less_equal(5, 3), "x <= y"),
        (lambda: tf.assert_greater(3, 3), "x > y"),
        (lambda: tf.assert_greater_equal(2, 3), "x >= y"),
        (lambda: tf.assert_negative(2), "x < 0"),
        (lambda: tf.assert_positive(-2.0), "x > 0"),
        (lambda: tf.assert_non_negative(-2), "x >= 0"),
        (lambda: tf.assert_non_positive(2), "x <= 0"),
    ],
)
def test_constants_fail_while_building(check, message):
    with pytest.raises(INVALID, match=message):
        check()


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: tf.assert_equal(fed([1, 2]), [1, 3], message="mine"), r"\[mine\].*x == y"),
        (lambda: tf.assert_equal(fed(1), 2, data=["only", fed(7)]), r"\[only\] \[7\]"),
        (lambda: tf.assert_less(fed([1, 9, 8, 7]), 5, summarize=2), r"\[1 9\.\.\.\]"),
        (lambda: tf.assert_near(fed([1.0]), [1.1]), "not equal to tolerance"),
        (lambda: tf.assert_near(fed([1.0]), [1.1], rtol=0.0, atol=0.05), "not equal to tolerance"),
        (lambda: tf.assert_positive(fed([1, 0]), name="p"), "x > 0"),
        (lambda: tf.assert_rank(fed([1]), 2), "must have rank"),
        (lambda: tf.assert_rank_at_least(fed([1]), 2), "must have rank at least"),
        (lambda: tf.assert_rank_in(fed([1]), [2, 3]), "must have rank in"),
        (lambda: tf.debugging.assert_shapes([(fed([[1, 2]]), ("N", 3))]), "Specified explicitly"),
        (
            lambda: tf.debugging.assert_shapes([(fed([[1, 2]]), ("N", "Q")), (fed([1]), "Q")]),
            "Specified by tensor .* dimension 1",
        ),
    ],
)
def test_others_fail_when_run(check, message):
    with tf.Session() as session, pytest.raises(INVALID, match=message):
        session.run(check())


def test_near_values_pass():
    with tf.Session() as session:
        session.run(tf.assert_near(fed([1.0, 100.0]), [1.0000001, 100.00001]))
        session.run(tf.assert_near(fed([1.0]), [1.04], rtol=0.0, atol=0.05))


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (
            lambda: tf.assert_rank(fed([1], [1]), 2),
            ValueError,
            "must have rank 2.  Received rank 1",
        ),
        (lambda: tf.assert_rank(fed([1]), [2]), ValueError, "Rank must be a scalar"),
        (lambda: tf.assert_rank(fed([1]), 2.5), TypeError, "must be of type"),
        (lambda: tf.assert_rank_at_least(fed([1], [1]), 2), ValueError, "at least 2"),
        (lambda: tf.assert_rank_in(fed([1], [1]), [2, 3]), ValueError, r"rank in \(2, 3\)"),
        (lambda: tf.assert_integer(1.5), TypeError, "integer type"),
        (lambda: tf.assert_type(1, tf.float32, message="m"), TypeError, "^m  "),
        (lambda: tf.assert_scalar([1]), ValueError, "Expected scalar shape"),
        (lambda: tf.assert_near(1, 1), ValueError, "not inexact"),
        (lambda: tf.assert_proper_iterable("abc"), TypeError, "proper"),
        (lambda: tf.assert_proper_iterable(np.ones(2)), TypeError, "proper"),
        (lambda: tf.assert_proper_iterable(3), TypeError, "to be iterable"),
        (lambda: tf.debugging.assert_shapes([(fed([1], [1]), 3)]), ValueError, "be an iterable"),
        (
            lambda: tf.debugging.assert_shapes([(fed([1], [1]), (2, "*"))]),
            ValueError,
            "first entry",
        ),
        (
            lambda: tf.debugging.assert_shapes([(fed([1], [1]), (2,))]),
            ValueError,
            "Received size 1",
        ),
        (
            lambda: tf.debugging.assert_shapes([(fed([[1, 1]], [1, 2]), "NN")], message="m"),
            ValueError,
            r"m\.  Specified by tensor",
        ),
    ],
)
def test_ranks_types_and_shapes_fail_while_building(check, error, message):
    with pytest.raises(error, match=message):
        check()


def test_same_float_dtype():
    single, double = tf.constant(1.0), tf.constant(1.0, tf.float64)
    assert tf.assert_same_float_dtype() is tf.float32
    assert tf.assert_same_float_dtype([double, None]) is tf.float64
    assert tf.assert_same_float_dtype([single], dtype=tf.float32) is tf.float32
    with pytest.raises(ValueError, match="must be of the same type"):
        tf.assert_same_float_dtype([single, double])
    with pytest.raises(ValueError, match="floating point"):
        tf.assert_same_float_dtype(dtype=tf.int32)


def test_numeric_tensors():
    assert tf.is_numeric_tensor(tf.constant(1))
    assert tf.is_numeric_tensor(tf.constant(1j, tf.complex64))
    assert not tf.is_numeric_tensor(tf.constant("a"))
    assert not tf.is_numeric_tensor(tf.constant(True))
    assert not tf.is_numeric_tensor(tf.constant(1.0, tf.float16))
    assert not tf.is_numeric_tensor(1)
