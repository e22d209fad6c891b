"""Normalisation, moments, morphology and patches."""

import numpy as np

from tests.oracle.case import case


def array(*shape):
    """Numbers without a pattern, the same in every Python."""
    return (
        ((np.arange(np.prod(shape)) * 7919 % 1009) / 504.5 - 1.0).astype(np.float32).reshape(shape)
    )


@case
def moments(tf):
    x = tf.placeholder_with_default(array(4, 3, 2), [None, 3, 2])
    return (
        tf.nn.moments(x, [0]),
        tf.nn.moments(x, [0, 1], keep_dims=True, name="m"),
        tf.nn.moments(tf.constant(array(4, 3)), axes=[1], shift=0.5, keepdims=False),
        tf.nn.moments(tf.constant(array(4, 3).astype(np.float16)), [0]),
    )


@case
def weighted_moments(tf):
    x = tf.constant(array(4, 3))
    return (
        tf.nn.weighted_moments(x, [0], [[1.0], [2.0], [0.5], [3.0]]),
        tf.nn.weighted_moments(x, [0, 1], 2, keep_dims=True),
        tf.nn.weighted_moments(array(4, 3).astype(np.float16), [0], array(4, 3) ** 2, name="h"),
    )


@case
def sufficient_statistics(tf):
    x = tf.placeholder_with_default(array(4, 3), [None, 3])
    static = tf.nn.sufficient_statistics(array(4, 3), [0, 1])
    shifted = tf.nn.sufficient_statistics(x, [0], shift=0.25, keep_dims=True)
    return (
        static,
        shifted,
        tf.nn.normalize_moments(*static),
        tf.nn.normalize_moments(*shifted),
    )


@case
def batch_normalization(tf):
    x = tf.constant(array(2, 3, 4))
    mean, variance, offset, scale = [tf.constant(array(4) ** 2 + i) for i in range(4)]
    image = tf.constant(array(1, 2, 2, 4))
    return (
        tf.nn.batch_normalization(x, mean, variance, offset, scale, 0.01),
        tf.nn.batch_normalization(x, mean, variance, None, None, 0.01, name="b"),
        tf.nn.batch_norm_with_global_normalization(
            image, mean, variance, offset, scale, 0.01, False
        ),
        tf.nn.batch_norm_with_global_normalization(
            input=image,
            mean=mean,
            variance=variance,
            beta=offset,
            gamma=scale,
            variance_epsilon=0.01,
            scale_after_normalization=True,
            name="g",
        ),
    )


@case
def fused_batch_norm(tf):
    return tf.nn.fused_batch_norm(array(2, 3, 2, 4), array(4), array(4) + 1)


@case
def fused_batch_norm_inference(tf):
    # TensorFlow leaves the statistics unset, so only y is compared.
    mean, variance = tf.constant(array(4)), tf.constant(array(4) ** 2)
    return tf.nn.fused_batch_norm(
        array(2, 3, 2, 4), array(4), array(4) + 1, mean, variance, 1e-7, is_training=False, name="f"
    )[0]


@case(graph=False)
def fused_batch_norm_gradients(tf):
    x, scale, offset = tf.constant(array(2, 3, 2, 4)), tf.constant(array(4)), tf.constant(array(4))
    mean, variance = tf.constant(array(4)), tf.constant(array(4) ** 2)
    found = []
    for y in (
        tf.nn.fused_batch_norm(x, scale, offset)[0],
        tf.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False)[0],
    ):
        first = tf.gradients(y * array(2, 3, 2, 4) ** 3, [x, scale, offset])
        found += first
    return found


@case(graph=False, rtol=1e-3, atol=1e-4)
def fused_batch_norm_second_gradients(tf):
    x, scale, offset = tf.constant(array(2, 3, 2, 4)), tf.constant(array(4)), tf.constant(array(4))
    mean, variance = tf.constant(array(4)), tf.constant(array(4) ** 2)
    found = []
    for y in (
        tf.nn.fused_batch_norm(x, scale, offset)[0],
        tf.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False)[0],
    ):
        dx, dscale = tf.gradients(y * y, [x, scale])
        found += tf.gradients([dx * array(2, 3, 2, 4), dscale * dscale], [x, scale])
    return found


@case
def local_response_normalization(tf):
    return (
        tf.nn.lrn(array(1, 2, 2, 7)),
        tf.nn.local_response_normalization(array(1, 2, 2, 7), 2, 2.0, 0.1, 0.75, name="l"),
    )


@case(graph=False)
def local_response_normalization_gradient(tf):
    x = tf.constant(array(1, 2, 2, 7))
    return tf.gradients(tf.nn.lrn(x, 2, 1.0, 0.5, 0.75) ** 2, x)


@case
def l2_normalize(tf):
    return (
        tf.nn.l2_normalize(array(3, 4), 1),
        tf.math.l2_normalize(array(3, 4), [0, 1], epsilon=0.5, name="l"),
        tf.nn.l2_normalize(array(3, 4), dim=0),
    )


@case
def layers(tf):
    return (
        tf.nn.xw_plus_b(array(2, 3), array(3, 4), array(4)),
        tf.nn.relu_layer(array(2, 3), array(3, 4), array(4), name="r"),
    )


@case
def morphology(tf):
    x, w = array(2, 5, 4, 3), array(2, 3, 3)
    return (
        tf.nn.dilation2d(x, w, [1, 1, 1, 1], [1, 1, 1, 1], "SAME"),
        tf.nn.dilation2d(
            x, filters=w, strides=[1, 2, 1, 1], dilations=[1, 2, 1, 1], padding="VALID"
        ),
        tf.nn.erosion2d(x, w, [1, 1, 1, 1], [1, 1, 1, 1], "SAME"),
    )


@case(graph=False)
def morphology_gradients(tf):
    x, w = tf.constant(array(2, 5, 4, 3)), tf.constant(array(2, 3, 3))
    y = tf.nn.dilation2d(x, w, [1, 1, 1, 1], [1, 1, 1, 1], "SAME")
    return tf.gradients(y * y, [x, w])


@case
def patches(tf):
    x = array(2, 5, 4, 3)
    return (
        tf.extract_image_patches(x, [1, 2, 3, 1], [1, 1, 2, 1], [1, 1, 1, 1], "SAME"),
        tf.image.extract_image_patches(
            x, sizes=[1, 2, 2, 1], strides=[1, 2, 1, 1], rates=[1, 2, 1, 1], padding="VALID"
        ),
        tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID", name="p"),
        tf.extract_volume_patches(array(1, 4, 3, 3, 2), [1, 2, 2, 2, 1], [1, 1, 2, 1, 1], "SAME"),
    )


@case(graph=False)
def patches_gradient(tf):
    x = tf.constant(array(2, 5, 4, 3))
    y = tf.extract_image_patches(x, [1, 2, 3, 1], [1, 1, 2, 1], [1, 1, 1, 1], "SAME")
    return tf.gradients(y * y, x)
