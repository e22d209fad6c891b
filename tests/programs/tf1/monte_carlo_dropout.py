"""Uncertainty by dropout at test time: several passes with masks of the graph's seed alone, a noise
shape, and the variance over passes by tf.nn.moments.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(130)
    rng = np.random.RandomState(130)
    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.placeholder(tf.float32, [None, 1])

    def model(x):
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
            h = tf.layers.dense(x, 16, tf.nn.relu, name="h")
            h = tf.nn.dropout(h, rate=0.2, noise_shape=[1, 16])
            h = tf.layers.dropout(h, 0.1, training=True)
            return tf.layers.dense(h, 1, name="out")

    loss = tf.losses.huber_loss(y, model(x))
    train = tf.train.AdadeltaOptimizer(1.0, rho=0.9).minimize(loss)
    passes = tf.stack([model(x) for _ in range(4)])
    mean, variance = tf.nn.moments(passes, axes=[0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            values = rng.randn(10, 3)
            feeds = {x: values, y: values.prod(1, keepdims=True)}
            found = session.run([loss, mean, variance, train], feeds)
            yield [found[0], found[1].sum(), found[2].sum()]
