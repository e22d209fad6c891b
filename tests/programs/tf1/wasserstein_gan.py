"""A Wasserstein GAN: clipped weights of the critic, RMSProp, several steps of the critic for one of
the generator. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(40)
    rng = np.random.RandomState(40)

    def generator(z, reuse=None):
        with tf.variable_scope("generator", reuse=reuse):
            h = tf.layers.dense(z, 16, activation=tf.nn.leaky_relu)
            return tf.layers.dense(h, 2)

    def critic(x, reuse=None):
        with tf.variable_scope("critic", reuse=reuse):
            h = tf.layers.dense(x, 16, activation=tf.nn.relu, name="h")
            return tf.layers.dense(h, 1, name="out")

    real = tf.placeholder(tf.float32, [None, 2])
    z = tf.random_normal([tf.shape(real)[0], 4])
    fake = generator(z)
    real_score, fake_score = critic(real), critic(fake, reuse=True)
    d_loss = tf.reduce_mean(fake_score) - tf.reduce_mean(real_score)
    g_loss = -tf.reduce_mean(fake_score)
    d_vars = tf.trainable_variables("critic")
    g_vars = tf.trainable_variables("generator")
    d_step = tf.train.RMSPropOptimizer(5e-3).minimize(d_loss, var_list=d_vars)
    g_step = tf.train.RMSPropOptimizer(5e-3).minimize(g_loss, var_list=g_vars)
    clip = [v.assign(tf.clip_by_value(v, -0.05, 0.05)) for v in d_vars]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            for _ in range(3):
                _, loss = session.run([d_step, d_loss], {real: rng.randn(8, 2) + 2.0})
                session.run(clip)
            _, value = session.run([g_step, g_loss], {real: np.zeros((8, 2))})
            yield [loss, value] + [np.abs(v).max() for v in session.run(d_vars)]
