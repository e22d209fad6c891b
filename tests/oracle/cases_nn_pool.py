"""Poolings."""

import numpy as np

from tests.oracle.case import case


def array(*shape):
    """Numbers without a pattern, the same in every Python."""
    return (
        ((np.arange(np.prod(shape)) * 7919 % 1009) / 504.5 - 1.0).astype(np.float32).reshape(shape)
    )


@case
def max_pools(tf):
    x = array(2, 5, 4, 3)
    return (
        tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        tf.nn.max_pool(x, 3, 1, "VALID", name="m"),
        tf.nn.max_pool(input=x, value=None, ksize=[2, 3], strides=[1, 2], padding="SAME"),
        tf.nn.max_pool(x, [1, 1, 1, 3], [1, 1, 1, 3], "VALID"),
        tf.nn.max_pool2d(x, 2, 2, "VALID"),
        tf.nn.max_pool1d(array(2, 6, 3), 2, 2, "SAME"),
        tf.nn.max_pool3d(array(1, 4, 5, 3, 2), 2, 2, "SAME"),
        tf.nn.max_pool_v2(x, 2, 1, "SAME"),
    )


@case
def avg_pools(tf):
    x = array(2, 5, 4, 3)
    return (
        tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        tf.nn.avg_pool(x, 3, 1, "VALID", name="m"),
        tf.nn.avg_pool1d(array(2, 6, 3), 2, 2, "SAME"),
        tf.nn.avg_pool3d(array(1, 4, 5, 3, 2), [2, 3, 2], 2, "SAME"),
        tf.nn.avg_pool_v2(array(2, 6, 3), 2, 1, "SAME"),
    )


@case(graph=False)
def pool_gradients(tf):
    x = tf.constant(array(2, 5, 4, 3))
    v = tf.constant(array(1, 4, 3, 3, 2))
    found = []
    for y in (tf.nn.max_pool(x, 3, 2, "SAME"), tf.nn.avg_pool(x, 3, 2, "SAME")):
        (dx,) = tf.gradients(y * y, x)
        found += [dx, tf.gradients(dx * dx, x)[0]]
    for y in (tf.nn.max_pool3d(v, 2, 1, "SAME"), tf.nn.avg_pool3d(v, 2, 1, "SAME")):
        found += tf.gradients(y * y, v)
    return found


@case
def max_pool_with_argmax(tf):
    x = array(2, 5, 4, 3)
    return (
        tf.nn.max_pool_with_argmax(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        tf.nn.max_pool_with_argmax(
            x,
            [1, 2, 2, 1],
            [1, 1, 1, 1],
            "VALID",
            output_dtype=tf.int64,
            include_batch_in_index=True,
            name="a",
        ),
    )


@case
def pools(tf):
    x = array(2, 6, 5, 3)
    return (
        tf.nn.pool(x, [2, 2], "MAX", "SAME", strides=[2, 1]),
        tf.nn.pool(x, [2, 2], "AVG", "VALID", dilation_rate=[2, 2]),
        tf.nn.pool(array(2, 6, 3), [2], "AVG", "VALID", strides=[2], name="p"),
        tf.nn.pool(array(1, 4, 5, 3, 2), [2, 2, 2], "MAX", "VALID"),
    )
