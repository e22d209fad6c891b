"""A mixture density network: the likelihood by reduce_logsumexp, samples by multinomial and normal.
Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(70)
    rng = np.random.RandomState(70)
    x = tf.placeholder(tf.float32, [None, 1])
    y = tf.placeholder(tf.float32, [None, 1])
    hidden = tf.layers.dense(x, 12, activation=tf.tanh)
    params = tf.layers.dense(hidden, 9)
    logits, mean, spread = tf.split(params, 3, axis=1)
    spread = tf.nn.softplus(spread) + 1e-3
    scaled = (y - mean) / spread
    log_normal = -0.5 * tf.square(scaled) - tf.log(spread) - 0.5 * np.log(2 * np.pi)
    loss = -tf.reduce_mean(tf.reduce_logsumexp(tf.nn.log_softmax(logits) + log_normal, axis=1))
    train = tf.train.AdamOptimizer(0.03).minimize(loss)
    chosen = tf.one_hot(tf.squeeze(tf.multinomial(logits, 1), 1), 3)
    center = tf.reduce_sum(chosen * mean, 1)
    drawn = center + tf.reduce_sum(chosen * spread, 1) * tf.random_normal(tf.shape(center))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(6):
            values = rng.uniform(-1, 1, (16, 1))
            feeds = {x: values + 0.3 * np.sin(6 * values), y: values}
            yield [session.run([loss, train], feeds)[0], session.run(drawn, feeds).sum()]
