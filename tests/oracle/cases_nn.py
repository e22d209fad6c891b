"""Activations, losses, bias and dropout."""

import numpy as np

from tests.oracle.case import case


def array(*shape):
    """Numbers without a pattern, the same in every Python."""
    return (
        ((np.arange(np.prod(shape)) * 7919 % 1009) / 252.25 - 2.0).astype(np.float32).reshape(shape)
    )


SPECIAL = np.array([-np.inf, -100.0, -1.5, -1e-6, 0.0, 1e-6, 2.5, 100.0, np.inf], np.float32)
ACTIVATIONS = ["relu", "relu6", "elu", "selu", "leaky_relu", "softplus", "softsign", "crelu"]


@case
def activations(tf):
    return [getattr(tf.nn, name)(SPECIAL) for name in ACTIVATIONS]


@case(rtol=1e-4)
def activations_half(tf):
    return [getattr(tf.nn, name)(array(3, 4).astype(np.float16)) for name in ACTIVATIONS]


@case(graph=False)
def activation_gradients(tf):
    x = tf.constant(array(3, 4))
    found = []
    for name in ACTIVATIONS:
        (dx,) = tf.gradients(getattr(tf.nn, name)(x), x)
        found.append(dx)
        if name != "softsign":
            found += tf.gradients(dx * x, x)
    return found


@case(graph=False)
def swish(tf):
    x = tf.constant(array(3, 4))
    y = tf.nn.swish(x)
    (dx,) = tf.gradients(y, x)
    return y, dx


@case
def leaky_relu_arguments(tf):
    return tf.nn.leaky_relu([-2, 3], alpha=0.5, name="l"), tf.nn.leaky_relu(array(2, 3), 1.5)


@case
def crelu_along_an_axis(tf):
    return tf.nn.crelu(array(2, 3), axis=0, name="c")


@case
def softmaxes(tf):
    x = array(2, 3, 4)
    return (
        tf.nn.softmax(x),
        tf.nn.log_softmax(x, name="l"),
        tf.nn.softmax(x, axis=1),
        tf.nn.log_softmax(x, axis=0, name="first"),
        tf.nn.softmax(x, dim=-2, name="dim"),
        tf.nn.softmax(x, axis=2),
        tf.nn.softmax(array(5)),
    )


@case(graph=False, rtol=1e-4)
def softmax_gradients(tf):
    x = tf.constant(array(3, 4))
    found = []
    for y in (tf.nn.softmax(x), tf.nn.log_softmax(x)):
        (dx,) = tf.gradients(y * array(3, 4) ** 2, x)
        found += [dx, tf.gradients(dx * dx, x)[0]]
    return found


LABELS = np.array([[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]], np.float32)


@case
def softmax_cross_entropy(tf):
    x = tf.placeholder_with_default(array(2, 3), [2, 3])
    return (
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=LABELS, logits=x),
        tf.nn.softmax_cross_entropy_with_logits(labels=LABELS, logits=x),
        tf.nn.softmax_cross_entropy_with_logits_v2(
            labels=LABELS.T.copy(), logits=array(3, 2), axis=0, name="a"
        ),
        tf.nn.softmax_cross_entropy_with_logits_v2(LABELS[None], array(1, 2, 3)),
    )


@case
def softmax_cross_entropy_unknown_shape(tf):
    x = tf.placeholder_with_default(array(2, 3), [None, 3])
    return tf.nn.softmax_cross_entropy_with_logits_v2(labels=LABELS, logits=x)


@case
def softmax_cross_entropy_half(tf):
    return tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=LABELS.astype(np.float16), logits=array(2, 3).astype(np.float16)
    )


@case(graph=False)
def softmax_cross_entropy_gradients(tf):
    x, labels = tf.constant(array(2, 3)), tf.constant(LABELS)
    y = tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=x)
    dx, dl = tf.gradients(y * y, [x, labels])
    return dx, dl, tf.gradients(dx * array(2, 3), x)


@case
def sparse_softmax_cross_entropy(tf):
    function = tf.nn.sparse_softmax_cross_entropy_with_logits
    return (
        function(labels=[2, 0], logits=array(2, 3)),
        function(labels=np.array([[2, 0]]), logits=array(1, 2, 3)),
        function(labels=[2, 0], logits=array(2, 3), name="s"),
        function(labels=1, logits=array(3)),
    )


@case(graph=False)
def sparse_softmax_cross_entropy_gradient(tf):
    x = tf.constant(array(2, 3))
    y = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[2, 0], logits=x)
    return tf.gradients(y * y, x)


@case
def sigmoid_cross_entropy(tf):
    x = tf.placeholder_with_default(array(2, 3), [2, 3])
    return (
        tf.nn.sigmoid_cross_entropy_with_logits(labels=LABELS, logits=x),
        tf.nn.weighted_cross_entropy_with_logits(LABELS, x, 3.0),
        tf.nn.weighted_cross_entropy_with_logits(
            targets=LABELS, logits=x, pos_weight=tf.constant(0.5), name="w"
        ),
    )


@case
def log_poisson_loss(tf):
    targets = np.array([0.5, 1.0, 3.0, 7.0], np.float32)
    return (
        tf.nn.log_poisson_loss(targets, array(4)),
        tf.nn.log_poisson_loss(targets, array(4), compute_full_loss=True, name="full"),
    )


@case(graph=False)
def loss_gradients(tf):
    x = tf.constant(array(2, 3))
    ys = [
        tf.nn.sigmoid_cross_entropy_with_logits(labels=LABELS, logits=x),
        tf.nn.weighted_cross_entropy_with_logits(LABELS, x, 3.0),
        tf.nn.l2_loss(x),
    ]
    return [tf.gradients(y, x) for y in ys]


@case
def l2_loss(tf):
    return tf.nn.l2_loss(array(3, 4)), tf.nn.l2_loss(3.0, name="l")


@case
def bias_add(tf):
    return (
        tf.nn.bias_add(array(2, 3), array(3)),
        tf.nn.bias_add(array(2, 3, 2, 2), array(3), data_format="NCHW", name="b"),
        tf.nn.bias_add(array(2, 3, 2, 3, 4), array(4)),
    )


@case(graph=False)
def bias_add_gradients(tf):
    x, bias = tf.constant(array(2, 3, 2)), tf.constant(array(2))
    y = tf.nn.bias_add(x, bias)
    dx, db = tf.gradients(y * y, [x, bias])
    return dx, db, tf.gradients(db * db, [x, bias])


@case
def dropout(tf):
    x = tf.placeholder_with_default(array(4, 5), [None, 5])
    keep = tf.placeholder_with_default(np.float32(0.6), [])
    return (
        tf.nn.dropout(x, rate=0.4, seed=3),
        tf.nn.dropout(x, 0.7, seed=5, name="d"),
        tf.nn.dropout(array(4, 5), keep, noise_shape=[4, 1], seed=2),
        tf.nn.dropout(x, rate=0.0),
        tf.nn.dropout(array(4, 5), rate=0.5, noise_shape=[None, 1], seed=4),
    )
