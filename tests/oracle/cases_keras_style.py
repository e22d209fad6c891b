"""tf.layers.experimental: nodes and values of layers in Keras's style, alone and beside others. The
weights are the default initializers' under a seed, as in cases_layers.
"""

from tests.oracle.case import case
from tests.oracle.cases_layers import gradients, penalty, value


def names(tf, variables):
    return [tf.constant(v.name) for v in variables]


def outcome(tf, y):
    """An output, and what the graph has collected."""
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    every = names(tf, tf.global_variables()) + names(tf, tf.trainable_variables())
    return [y, losses, every]


def dense(tf, x):
    with tf.name_scope("s"):
        layer = tf.layers.Dense(6, kernel_regularizer=penalty(tf))
        return layer(tf.tanh(layer(x))) + layer.losses[0]


def beside_others(tf, x):
    first = tf.layers.Dense(6)
    with tf.layers.experimental.keras_style_scope():
        second = tf.layers.Dense(6)
        third = tf.layers.dense(first(second(x)), 6)
    return tf.layers.dense(second(third), 3)


def convolutions(tf, x):
    image = tf.reshape(x, [2, 4, 3, 1])
    y = tf.layers.conv2d(image, 3, 2, padding="same", activity_regularizer=penalty(tf))
    y = tf.layers.max_pooling2d(tf.layers.conv2d_transpose(y, 2, 2), 2, 2, name="pool")
    return tf.layers.flatten(tf.layers.separable_conv2d(y, 2, 1))


def normalised(tf, x):
    layer = tf.layers.BatchNormalization(gamma_regularizer=penalty(tf))
    y = layer(layer(x, training=True), training=True)
    with tf.control_dependencies(layer.updates):
        return y * value(tf, 4, 6, seed=1)


def fused(tf, x):
    image = tf.reshape(x, [2, 4, 3, 1])
    layer = tf.layers.BatchNormalization(renorm=True)
    y = layer(image, training=True) + tf.layers.batch_normalization(image, training=True)
    with tf.control_dependencies(layer.updates):
        return y * value(tf, 2, 4, 3, 1, seed=1)


def cells(tf, x):
    make = tf.nn.rnn_cell
    stack = make.MultiRNNCell([make.GRUCell(2), make.DropoutWrapper(make.BasicLSTMCell(3))])
    inputs = tf.reshape(x, [4, 6, 1])
    outputs, _ = tf.nn.dynamic_rnn(stack, inputs, dtype=tf.float32)
    cell = make.LSTMCell(2, use_peepholes=True, num_proj=2)
    further, _ = tf.nn.static_rnn(cell, tf.unstack(outputs, axis=1), dtype=tf.float32)
    return further[-1]


def nested(tf, x):
    class Outer(tf.layers.Layer):
        def build(self, shape):
            self.inner = tf.layers.Dense(3, kernel_regularizer=penalty(tf))
            self.scale = self.add_weight("scale", [3], regularizer=penalty(tf))
            super().build(shape)

        def call(self, inputs):
            return self.inner(inputs) * self.scale

    return Outer()(x)


def in_branches(tf, x):
    known = tf.placeholder_with_default(True, [])
    return tf.cond(known, lambda: tf.layers.dense(x, 2), lambda: x[:, :2])


def register(build):
    def seeded(tf):
        tf.set_random_seed(3)
        if build is beside_others:
            return build(tf, value(tf, 4, 6))
        with tf.layers.experimental.keras_style_scope():
            return build(tf, value(tf, 4, 6))

    def nodes(tf):
        return outcome(tf, seeded(tf))

    def backward(tf):
        return gradients(tf, seeded(tf))

    nodes.__name__, backward.__name__ = build.__name__, build.__name__ + "_gradients"
    case(nodes)
    case(backward, graph=False)


for each in [dense, beside_others, convolutions, normalised, fused, cells, nested, in_branches]:
    register(each)
