"""Assertions that hold, on integers, ranks and types: TensorFlow puts no guard around these."""

from tests.oracle.case import case


def after(tf, checks, value):
    with tf.control_dependencies(checks):
        return tf.identity(value)


@case
def comparisons(tf):
    x = tf.placeholder_with_default([1, 2], None, name="x")
    y = tf.placeholder_with_default([1, 2], [2], name="y")
    z = tf.constant([3, 4], name="z")
    checks = [
        tf.assert_equal(x, y),
        tf.assert_equal(x, x),
        tf.assert_none_equal(x, z, message="differ"),
        tf.assert_less(x, z, summarize=5, name="named"),
        tf.assert_less_equal(x, y),
        tf.assert_greater(z, y, data=["custom", x]),
        tf.assert_greater_equal(x, y),
    ]
    return after(tf, checks, x)


@case
def signs(tf):
    x = tf.placeholder_with_default([1, 2], [2], name="x")
    minus = tf.negative(x)
    checks = [
        tf.assert_positive(x),
        tf.assert_non_negative(x, message="sign"),
        tf.assert_negative(minus),
        tf.assert_non_positive(minus, name="named"),
    ]
    return after(tf, checks, x)


@case
def constants(tf):
    return after(tf, [tf.assert_less([1, 2], [3, 4]), tf.assert_negative(tf.constant([-1]))], 1)


@case
def ranks(tf):
    x = tf.placeholder_with_default([1, 2], None, name="x")
    y = tf.placeholder_with_default([1, 2], [2], name="y")
    checks = [
        tf.assert_rank(x, 1),
        tf.assert_rank(y, 1),
        tf.assert_rank_at_least(x, 1, message="rank"),
        tf.assert_rank_at_least(y, 0),
        tf.assert_rank_in(x, [0, 1, 2]),
        tf.assert_rank_in(y, [1, 2]),
        tf.assert_rank(x, 1, data=["custom"]),
    ]
    return [after(tf, checks, x), tf.assert_scalar(3)]


@case
def types(tf):
    x = tf.placeholder_with_default([1, 2], None, name="x")
    return after(
        tf, [tf.assert_integer(x), tf.assert_type(x, tf.int32), tf.assert_type([1.0], "float32")], x
    )
