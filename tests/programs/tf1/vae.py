"""A variational autoencoder: reparametrised normal samples, KL term, Bernoulli likelihood."""

import numpy as np


def layer(tf, x, size, name):
    with tf.variable_scope(name, initializer=tf.glorot_normal_initializer()):
        w = tf.get_variable("w", [int(x.shape[-1]), size])
        b = tf.get_variable("b", [size], initializer=tf.constant_initializer(0.1))
    return tf.nn.xw_plus_b(x, w, b)


def run(tf):
    tf.set_random_seed(5)
    rng = np.random.RandomState(4)
    data = (rng.rand(96, 24) < np.repeat(rng.rand(96, 3), 8, axis=1)).astype("float32")

    x = tf.placeholder(tf.float32, [32, 24])
    with tf.variable_scope("encoder"):
        h = tf.nn.softsign(layer(tf, x, 20, "hidden"))
        mean, log_variance = tf.split(layer(tf, h, 8, "moments"), 2, axis=1)
    z = mean + tf.exp(0.5 * log_variance) * tf.random_normal(tf.shape(mean))
    with tf.variable_scope("decoder"):
        h = tf.nn.selu(layer(tf, z, 20, "hidden"))
        logits = layer(tf, h, 24, "logits")
    likelihood = -tf.reduce_sum(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), axis=1
    )
    divergence = 0.5 * tf.reduce_sum(
        tf.exp(log_variance) + tf.square(mean) - 1.0 - log_variance, axis=-1
    )
    bound = tf.reduce_mean(likelihood - divergence)

    rate = tf.Variable(0.02, trainable=False)
    variables = tf.trainable_variables()
    gradients = tf.tuple(tf.gradients(-bound, variables))
    updates = [v.assign_add(-rate * tf.clip_by_norm(g, 5.0)) for v, g in zip(variables, gradients)]
    with tf.control_dependencies([u.op for u in updates]):
        train = tf.assign(rate, rate * 0.98)

    samples = tf.random.stateless_uniform([32, 24], seed=[1, 2])
    drawn = tf.reduce_mean(tf.cast(samples < tf.sigmoid(logits), tf.float32))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(20):
            batch = data[np.arange(step * 32, step * 32 + 32) % 96]
            yield session.run([bound, train], {x: batch}) + [session.run(drawn, {x: batch})]
