"""A Wasserstein critic with gradient penalty: gradients of the norm of gradients."""

import numpy as np


def critic(tf, x):
    with tf.variable_scope("critic", reuse=tf.AUTO_REUSE):
        k1 = tf.get_variable("k1", [3, 3, 1, 6], initializer=tf.glorot_uniform_initializer(1))
        k2 = tf.get_variable("k2", [3, 3, 6, 8], initializer=tf.glorot_uniform_initializer(2))
        w = tf.get_variable("w", [32, 1], initializer=tf.glorot_uniform_initializer(3))
    x = tf.tanh(tf.nn.conv2d(x, k1, [1, 2, 2, 1], "SAME"))
    x = tf.nn.softplus(tf.nn.conv2d(x, k2, [1, 2, 2, 1], "SAME"))
    return tf.matmul(tf.reshape(x, [-1, 32]), w)


def generator(tf, z):
    with tf.variable_scope("generator", initializer=tf.random_normal_initializer(0, 0.3, seed=6)):
        w = tf.get_variable("w", [3, 64])
        kernel = tf.get_variable("kernel", [3, 3, 1, 4])
    x = tf.reshape(tf.nn.elu(tf.matmul(z, w)), [-1, 4, 4, 4])
    shape = tf.stack([tf.shape(x)[0], 8, 8, 1])
    return tf.nn.conv2d_transpose(x, kernel, shape, strides=[1, 2, 2, 1], padding="SAME")


def run(tf):
    tf.set_random_seed(37)
    rng = np.random.RandomState(14)
    real = tf.placeholder(tf.float32, [8, 8, 8, 1])
    fake = generator(tf, tf.random_normal([8, 3]))
    mix = tf.random_uniform([8, 1, 1, 1])
    between = mix * real + (1 - mix) * fake
    (slope,) = tf.gradients(critic(tf, between), between)
    norms = tf.sqrt(tf.reduce_sum(tf.square(slope), axis=[1, 2, 3]) + 1e-12)
    penalty = tf.reduce_mean((norms - 1.0) ** 2)
    distance = tf.reduce_mean(critic(tf, real)) - tf.reduce_mean(critic(tf, fake))
    steps = []
    for loss, scope, rate in [
        (-distance + 10 * penalty, "critic", 0.01),
        (distance, "generator", 0.05),
    ]:
        variables = tf.trainable_variables(scope)
        gradients = tf.tuple(tf.gradients(loss, variables), control_inputs=[distance, penalty])
        steps.append([tf.assign_sub(v, rate * g) for v, g in zip(variables, gradients)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            images = np.abs(rng.randn(8, 8, 8, 1))
            yield session.run([distance, penalty, steps[0]], {real: images})[:2]
            session.run(steps[1], {real: images})
