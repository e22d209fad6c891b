"""Coupling layers: masks, templates that share variables, determinants of the Jacobian, samples by
running the flow backwards. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(160)
    rng = np.random.RandomState(160)

    def net(h):
        h = tf.layers.dense(h, 8, tf.nn.relu)
        return tf.layers.dense(h, 2, tf.tanh), tf.layers.dense(h, 2)

    flows = []
    for i in range(3):
        mask = tf.constant([1.0, 0.0] if i % 2 else [0.0, 1.0])
        flows.append((mask, tf.make_template(f"flow{i}", net)))
    x = tf.placeholder(tf.float32, [None, 2])
    z, log_det = x, tf.zeros([tf.shape(x)[0]])
    for mask, template in flows:
        s, t = template(z * mask)
        s, t = s * (1 - mask), t * (1 - mask)
        z = z * tf.exp(s) + t
        log_det += tf.reduce_sum(s, axis=1)
    prior = -0.5 * tf.reduce_sum(tf.square(z), axis=1) - np.log(2 * np.pi)
    loss = -tf.reduce_mean(prior + log_det)
    sample = tf.random_normal([4, 2])
    for mask, template in reversed(flows):
        s, t = template(sample * mask)
        sample = (sample - t * (1 - mask)) * tf.exp(-s * (1 - mask))
    optimizer = tf.train.AdamOptimizer(0.02)
    train = optimizer.minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            angle = rng.uniform(0, np.pi, 16)
            points = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.05 * rng.randn(16, 2)
            yield [session.run([loss, train], {x: points})[0]] + list(session.run(sample).ravel())
