"""Checks. With int32 data TensorFlow builds plain Asserts, so the nodes can be compared."""

from tests.oracle.case import case


def fed(tf, value, shape=None):
    return tf.placeholder_with_default(tf.constant(value), shape)


def after(tf, *checks):
    with tf.control_dependencies(list(checks)):
        return tf.constant(1, name="done") + 1


@case
def comparisons(tf):
    x = fed(tf, [1, 2])
    return after(
        tf,
        tf.assert_equal(x, [1, 2]),
        tf.assert_equal(x, [1, 2], message="differ", summarize=7, name="same"),
        tf.assert_none_equal(x, 5, data=["five", x]),
        tf.assert_less(x, 3),
        tf.assert_less_equal(x, [1, 2], message="too large"),
        tf.assert_greater(x, 0),
        tf.assert_greater_equal(x, 1, name="least"),
    )


@case
def comparisons_of_constants(tf):
    x = tf.constant([1, 2])
    return after(
        tf,
        tf.assert_equal(x, x),
        tf.debugging.assert_equal(x, [1, 2]),
        tf.debugging.assert_less(x, 3),
        tf.debugging.assert_none_equal(x, 0),
        tf.debugging.assert_greater_equal(2, x),
    )


@case
def signs(tf):
    x = fed(tf, [1, 2], [2])
    return after(
        tf,
        tf.assert_positive(x),
        tf.assert_negative(-x, message="sign"),
        tf.assert_non_negative(x, name="up"),
        tf.assert_non_positive(-x, data=["up"], summarize=2),
        tf.debugging.assert_non_negative(3),
    )


@case
def ranks(tf):
    x, y = fed(tf, [[1, 2]]), fed(tf, [[1, 2]], [None, 2])
    return after(
        tf,
        tf.assert_rank(x, 2),
        tf.assert_rank(y, 2, message="flat"),
        tf.assert_rank(y, fed(tf, 2, [])),
        tf.assert_rank_at_least(x, 1),
        tf.assert_rank_at_least(y, 1, name="enough"),
        tf.assert_rank_in(x, [1, 2]),
        tf.assert_rank_in(y, (2, 3), data=["bad"]),
    )


@case
def types(tf):
    x = fed(tf, [1, 2])
    checks = after(tf, tf.assert_integer(x), tf.assert_type(x, tf.int32, name="kind"))
    return [checks, tf.assert_scalar(3), tf.assert_scalar(fed(tf, 4, []), name="one")]


@case(graph=False)
def shapes(tf):
    x, y = fed(tf, [[1, 2, 3]], [None, 3]), fed(tf, [1], [None])
    return after(
        tf,
        tf.debugging.assert_shapes({x: ("N", 3)}),
        tf.debugging.assert_shapes([(x, ("N", "Q")), (y, ("N",))]),
        tf.debugging.assert_shapes([(x, (None, ".")), (y, "1"), (tf.constant(3), ())]),
        tf.debugging.assert_shapes([(x, "*3"), (y, [Ellipsis, 1])], name="inner"),
    )


@case
def checks_of_all_tensors(tf):
    v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
    narrow = tf.cast(tf.divide(v, 4.0), tf.bfloat16)  # which isn't checked, nor are references
    with tf.control_dependencies([tf.add_check_numerics_ops()]):
        return tf.cast(narrow, tf.float64)
