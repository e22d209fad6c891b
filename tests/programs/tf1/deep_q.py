"""Deep Q-learning: two networks in scopes, weights copied by assign, a replay memory in NumPy, the
Huber loss, RMSProp. Only the graph has a seed.
"""

import numpy as np


def network(tf, state, scope, trainable):
    with tf.variable_scope(scope):
        h = tf.contrib.layers.fully_connected(state, 12, trainable=trainable)
        return tf.contrib.layers.fully_connected(h, 3, activation_fn=None, trainable=trainable)


def run(tf):
    tf.set_random_seed(42)
    rng = np.random.RandomState(8)
    state = tf.placeholder(tf.float32, [None, 5])
    after = tf.placeholder(tf.float32, [None, 5])
    action = tf.placeholder(tf.int32, [None])
    reward = tf.placeholder(tf.float32, [None])
    done = tf.placeholder(tf.bool, [None])
    q = network(tf, state, "online", True)
    q_next = tf.stop_gradient(network(tf, after, "target", False))
    best = tf.where(done, tf.zeros_like(reward), tf.reduce_max(q_next, axis=1))
    target = reward + 0.9 * best
    taken = tf.reduce_sum(q * tf.one_hot(action, 3), axis=1)
    error = tf.abs(taken - target)
    loss = tf.reduce_mean(tf.where(error < 1.0, 0.5 * tf.square(error), error - 0.5))
    train = tf.train.RMSPropOptimizer(0.01, decay=0.95, epsilon=0.01, momentum=0.9).minimize(loss)
    online = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="online")
    online = [v for v in online if v in tf.trainable_variables()]
    targets = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="target")
    copy = [t.assign(o) for t, o in zip(targets, online)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(8):
            if step % 4 == 0:
                session.run(copy)
            feeds = {
                state: rng.randn(8, 5),
                after: rng.randn(8, 5),
                action: rng.randint(0, 3, 8),
                reward: rng.randn(8),
                done: rng.rand(8) < 0.2,
            }
            value, _, choice = session.run([loss, train, tf.argmax(q, 1)], feeds)
            yield [value, choice.sum()]
