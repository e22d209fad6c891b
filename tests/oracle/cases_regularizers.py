"""Regularizers and initializers of tf.contrib.layers and tf.keras: graphs and values."""

import numpy as np

from tests.oracle.case import case

VALUE = np.array([[1.0, -2.0, 0.5], [0.25, 3.5, -0.75]], "float32")


def penalty(name, make):
    def build(tf):
        return make(tf)(tf.constant(VALUE, name="w"))

    build.__name__ = name
    build.__module__ = __name__
    case(build)


penalty("l1", lambda tf: tf.contrib.layers.l1_regularizer(0.5))
penalty("l2", lambda tf: tf.contrib.layers.l2_regularizer(0.5))
penalty("l2_scope", lambda tf: tf.contrib.layers.l2_regularizer(0.5, scope="mine"))
penalty("l1_l2", lambda tf: tf.contrib.layers.l1_l2_regularizer(0.5, 0.25))
penalty("l1_l2_without_l1", lambda tf: tf.contrib.layers.l1_l2_regularizer(0.0, 0.25))
penalty("l1_l2_without_l2", lambda tf: tf.contrib.layers.l1_l2_regularizer(0.25, 0.0))
penalty(
    "sums",
    lambda tf: tf.contrib.layers.sum_regularizer(
        [tf.contrib.layers.l1_regularizer(0.5), None, tf.contrib.layers.l2_regularizer(0.0)]
    ),
)
penalty("keras_l1", lambda tf: tf.keras.regularizers.l1(0.5))
penalty("keras_l2", lambda tf: tf.keras.regularizers.l2())
penalty("keras_l1_l2", lambda tf: tf.keras.regularizers.l1_l2(0.5, 0.25))
penalty("keras_none", lambda tf: tf.keras.regularizers.L1L2())


@case
def collected(tf):
    decay = tf.contrib.layers.l2_regularizer(0.1)
    with tf.variable_scope("net", regularizer=tf.keras.regularizers.l1(0.2)):
        tf.get_variable("a", initializer=VALUE)
        tf.get_variable("c", initializer=VALUE, regularizer=decay)
        tf.get_variable("off", initializer=VALUE, regularizer=tf.no_regularizer)
    return tf.losses.get_regularization_loss(), tf.losses.get_regularization_losses("net/c")


@case
def of_layers(tf):
    tf.layers.dense(
        tf.constant(VALUE),
        2,
        kernel_initializer=tf.ones_initializer(),
        kernel_regularizer=tf.contrib.layers.l2_regularizer(0.1),
    )
    return tf.losses.get_regularization_losses()


@case
def applied(tf):
    a, c = tf.get_variable("a", initializer=VALUE), tf.get_variable("c", initializer=VALUE)
    one = tf.contrib.layers.apply_regularization(tf.contrib.layers.l1_regularizer(0.5), [a])
    both = tf.contrib.layers.apply_regularization(tf.contrib.layers.l2_regularizer(0.5), [a, c])
    none = tf.contrib.layers.apply_regularization(tf.contrib.layers.l2_regularizer(0.0), [a])
    return one, both, none, tf.losses.get_regularization_losses()


def initial(name, make, shape):
    def build(tf):
        tf.set_random_seed(5)
        return tf.get_variable("w", shape, initializer=make(tf)).read_value()

    build.__name__ = "initial_" + name
    build.__module__ = __name__
    case(build)


initial("xavier", lambda tf: tf.contrib.layers.xavier_initializer(), [3, 4])
initial("xavier_normal", lambda tf: tf.contrib.layers.xavier_initializer(False, 7), [3, 4])
initial("xavier_scalar", lambda tf: tf.contrib.layers.xavier_initializer(seed=1), [])
initial("xavier_vector", lambda tf: tf.contrib.layers.xavier_initializer(seed=1), [5])
initial("xavier_conv2d", lambda tf: tf.contrib.layers.xavier_initializer_conv2d(), [3, 3, 2, 4])
initial("scaling", lambda tf: tf.contrib.layers.variance_scaling_initializer(), [3, 3, 2, 4])
initial(
    "scaling_uniform",
    lambda tf: tf.contrib.layers.variance_scaling_initializer(1.0, "FAN_OUT", True, seed=3),
    [2, 6],
)
