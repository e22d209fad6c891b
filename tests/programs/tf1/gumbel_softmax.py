"""A categorical autoencoder: Gumbel noise from uniform numbers, a temperature that falls, straight
through gradients by stop_gradient. Only the graph has a seed.
"""

import numpy as np


def sample_gumbel(tf, shape, eps=1e-20):
    U = tf.random_uniform(shape, minval=0, maxval=1)
    return -tf.log(-tf.log(U + eps) + eps)


def gumbel_softmax(tf, logits, temperature, hard=False):
    y = tf.nn.softmax((logits + sample_gumbel(tf, tf.shape(logits))) / temperature)
    if hard:
        y_hard = tf.cast(tf.equal(y, tf.reduce_max(y, 1, keep_dims=True)), y.dtype)
        y = tf.stop_gradient(y_hard - y) + y
    return y


def run(tf):
    tf.set_random_seed(150)
    rng = np.random.RandomState(150)
    slim = tf.contrib.slim
    x = tf.placeholder(tf.float32, shape=(None, 12), name="x")
    net = slim.stack(x, slim.fully_connected, [10, 8])
    logits = tf.reshape(slim.fully_connected(net, 6, activation_fn=None), [-1, 3])
    q = tf.nn.softmax(logits)
    tau = tf.Variable(2.0, name="temperature", trainable=False)
    y = tf.reshape(gumbel_softmax(tf, logits, tau, hard=True), [-1, 2, 3])
    net = slim.stack(slim.flatten(y), slim.fully_connected, [8, 10])
    logits_x = slim.fully_connected(net, 12, activation_fn=None)
    kl = tf.reshape(q * (tf.log(q + 1e-20) - tf.log(1.0 / 3)), [-1, 2, 3])
    cross = tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits_x)
    loss = tf.reduce_mean(tf.reduce_sum(cross, 1) + tf.reduce_sum(kl, [1, 2]))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, var_list=slim.get_model_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for i in range(5):
            value, _ = session.run([loss, train], {x: (rng.rand(8, 12) < 0.4).astype("float32")})
            session.run(tau.assign(max(0.5, 2.0 * np.exp(-0.3 * i))))
            yield [value, session.run(tau)]
