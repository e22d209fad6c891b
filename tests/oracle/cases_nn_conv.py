"""Convolutions."""

import numpy as np

from tests.oracle.case import case


def array(*shape):
    """Numbers without a pattern, the same in every Python."""
    return (
        ((np.arange(np.prod(shape)) * 7919 % 1009) / 504.5 - 1.0).astype(np.float32).reshape(shape)
    )


@case
def conv2d_same(tf):
    return tf.nn.conv2d(array(2, 5, 4, 3), array(3, 2, 3, 4), [1, 1, 1, 1], "SAME")


@case
def conv2d_valid_strided(tf):
    x = tf.placeholder_with_default(array(2, 7, 6, 3), [None, 7, None, 3])
    return tf.nn.conv2d(x, filters=array(3, 2, 3, 4), strides=2, padding="VALID", name="c")


@case
def conv2d_explicit(tf):
    pads = [[0, 0], [1, 2], [0, 1], [0, 0]]
    return tf.nn.conv2d(array(1, 5, 5, 2), array(3, 3, 2, 2), [2, 1], pads)


@case
def conv2d_dilated(tf):
    return tf.nn.conv2d(array(1, 7, 7, 2), array(3, 3, 2, 2), 1, "VALID", dilations=[2, 2])


@case(graph=False)
def conv2d_gradients(tf):
    x = tf.constant(array(2, 5, 4, 3))
    w = tf.constant(array(3, 2, 3, 4))
    y = tf.nn.conv2d(x, w, [1, 2, 2, 1], "SAME")
    return tf.gradients(y * y, [x, w])


@case(graph=False)
def conv2d_second_gradients(tf):
    x = tf.constant(array(1, 4, 4, 2))
    w = tf.constant(array(2, 2, 2, 2))
    y = tf.nn.conv2d(x, w, [1, 1, 1, 1], "VALID")
    dx, dw = tf.gradients(y * y, [x, w])
    return tf.gradients([dx * dx, dw * dw], [x, w])


@case
def conv2d_backprops(tf):
    dy = array(1, 5, 5, 4)
    return (
        tf.nn.conv2d_backprop_input(
            [1, 5, 5, 3], array(3, 3, 3, 4), dy, [1, 1, 1, 1], "SAME", name="i"
        ),
        tf.nn.conv2d_backprop_filter(
            array(1, 5, 5, 3), [3, 3, 3, 4], dy, [1, 1, 1, 1], "SAME", name="f"
        ),
    )


@case
def conv1d(tf):
    x = tf.placeholder_with_default(array(2, 6, 3), [None, None, 3])
    return tf.nn.conv1d(x, array(2, 3, 4), stride=2, padding="SAME")


@case
def conv3d(tf):
    return tf.nn.conv3d(array(1, 4, 5, 3, 2), array(2, 3, 2, 2, 3), [1, 1, 2, 1, 1], "SAME")


@case(graph=False)
def conv3d_gradients(tf):
    x = tf.constant(array(1, 4, 3, 3, 2))
    w = tf.constant(array(2, 2, 2, 2, 2))
    y = tf.nn.conv3d(x, w, [1, 1, 1, 1, 1], "VALID")
    return tf.gradients(y * y, [x, w])


@case
def convolution_plain(tf):
    return (
        tf.nn.convolution(array(2, 6, 3), array(2, 3, 4), "VALID", strides=[2]),
        tf.nn.convolution(array(2, 6, 5, 3), array(2, 2, 3, 4), "SAME", strides=[2, 1], name="c"),
        tf.nn.convolution(array(1, 4, 4, 3, 1), array(2, 2, 2, 1, 2), "SAME"),
    )


@case
def convolution_dilated(tf):
    return (
        tf.nn.convolution(array(2, 6, 3), array(2, 3, 4), "VALID", dilation_rate=[2]),
        tf.nn.convolution(array(2, 6, 5, 3), array(2, 2, 3, 4), "SAME", dilation_rate=[2, 3]),
        tf.nn.convolution(array(1, 4, 4, 3, 1), array(2, 2, 2, 1, 2), "SAME", dilation_rate=2),
    )


@case
def convolution_dilated_unknown_shape(tf):
    x = tf.placeholder_with_default(array(2, 6, 5, 3), [2, None, 5, 3])
    w = tf.placeholder_with_default(array(2, 2, 3, 4), [2, 2, 3, 4])
    return tf.nn.convolution(x, w, "SAME", dilation_rate=[2, 1])


@case
def atrous(tf):
    return tf.nn.atrous_conv2d(array(2, 6, 5, 3), array(3, 2, 3, 2), 2, "SAME")


@case
def atrous_transpose(tf):
    w = array(3, 2, 4, 3)
    return (
        tf.nn.atrous_conv2d_transpose(array(2, 5, 5, 3), w, [2, 5, 5, 4], 2, "SAME"),
        tf.nn.atrous_conv2d_transpose(array(1, 3, 4, 3), w, [1, 9, 7, 4], 3, "VALID", name="v"),
        tf.nn.atrous_conv2d_transpose(array(1, 3, 4, 3), w, [1, 3, 4, 4], 1, "SAME", name="one"),
    )


@case
def transposes(tf):
    return (
        tf.nn.conv2d_transpose(array(1, 3, 3, 3), array(3, 3, 2, 3), [1, 6, 6, 2], 2),
        tf.nn.conv2d_transpose(
            input=array(1, 3, 3, 3),
            filters=array(2, 2, 2, 3),
            output_shape=[1, 4, 4, 2],
            strides=[1, 1, 1, 1],
            padding="VALID",
            name="v",
        ),
        tf.nn.conv1d_transpose(array(2, 5, 3), array(2, 4, 3), [2, 10, 4], 2),
        tf.nn.conv3d_transpose(array(1, 2, 2, 2, 2), array(2, 2, 2, 1, 2), [1, 4, 4, 4, 1], 2),
        tf.nn.conv_transpose(array(1, 3, 3, 3), array(3, 3, 2, 3), [1, 6, 6, 2], 2),
        tf.nn.conv_transpose(array(2, 5, 3), array(2, 4, 3), [2, 10, 4], 2, name="t1"),
    )


@case
def transpose_to_a_shape_of_the_step(tf):
    shape = tf.placeholder_with_default(np.array([2, 10, 4], np.int32), [3])
    return tf.nn.conv1d_transpose(array(2, 5, 3), array(2, 4, 3), shape, 2)


@case
def depthwise(tf):
    return (
        tf.nn.depthwise_conv2d(array(2, 5, 5, 3), array(2, 3, 3, 2), [1, 2, 2, 1], "SAME"),
        tf.nn.depthwise_conv2d(
            array(2, 5, 5, 3), array(2, 2, 3, 2), [1, 1, 1, 1], "SAME", rate=[2, 2], name="d"
        ),
        tf.nn.depthwise_conv2d_native(array(1, 4, 4, 2), array(3, 3, 2, 1), [1, 1, 1, 1], "VALID"),
    )


@case(graph=False)
def depthwise_gradients(tf):
    x = tf.constant(array(2, 5, 4, 3))
    w = tf.constant(array(3, 2, 3, 2))
    y = tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME")
    return tf.gradients(y * y, [x, w])


@case
def separable(tf):
    return (
        tf.nn.separable_conv2d(
            array(2, 5, 5, 3), array(2, 3, 3, 2), array(1, 1, 6, 4), [1, 1, 1, 1], "SAME"
        ),
        tf.nn.separable_conv2d(
            array(2, 6, 6, 3),
            array(2, 3, 3, 2),
            array(1, 1, 6, 4),
            [1, 1, 1, 1],
            "VALID",
            rate=[2, 2],
            name="s",
        ),
    )
