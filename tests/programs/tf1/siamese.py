"""Twin networks with shared variables (AUTO_REUSE), a contrastive loss, exponential decay of the
learning rate, Adagrad. Only the graph has a seed.
"""

import numpy as np


def run(tf):
    tf.set_random_seed(50)
    rng = np.random.RandomState(50)

    def twin(x):
        with tf.variable_scope("twin", reuse=tf.AUTO_REUSE):
            h = tf.layers.dense(x, 10, tf.nn.elu, kernel_regularizer=tf.nn.l2_loss, name="a")
            return tf.nn.l2_normalize(tf.layers.dense(h, 3, name="b"), axis=1)

    left = tf.placeholder(tf.float32, [None, 6])
    right = tf.placeholder(tf.float32, [None, 6])
    same = tf.placeholder(tf.float32, [None])
    distance = tf.sqrt(tf.reduce_sum(tf.squared_difference(twin(left), twin(right)), 1) + 1e-6)
    apart = tf.maximum(0.0, 1.0 - distance)
    loss = tf.reduce_mean(same * tf.square(distance) + (1.0 - same) * tf.square(apart))
    penalty = 1e-3 * tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
    step = tf.Variable(0, trainable=False)
    rate = tf.train.exponential_decay(0.2, step, 2, 0.7, staircase=True)
    train = tf.train.AdagradOptimizer(rate).minimize(loss + penalty, global_step=step)
    with tf.Session() as session:
        tf.global_variables_initializer().run()
        for _ in range(6):
            feeds = {left: rng.randn(8, 6), right: rng.randn(8, 6), same: rng.randint(0, 2, 8)}
            yield session.run([loss, penalty, rate, step, train], feeds)[:4]
