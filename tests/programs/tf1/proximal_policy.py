"""Proximal policy optimization: a Gaussian policy and a value network, the clipped ratio, several
epochs over one batch, Adam with epsilon. Only the graph has a seed.
"""

import numpy as np


def policy(tf, state, scope):
    with tf.variable_scope(scope):
        h = tf.layers.dense(state, 10, tf.tanh, kernel_initializer=tf.orthogonal_initializer())
        mean = tf.layers.dense(h, 2, kernel_initializer=tf.orthogonal_initializer(0.01))
        log_std = tf.get_variable("log_std", [2], initializer=tf.zeros_initializer())
    return mean, log_std


def log_prob(tf, action, mean, log_std):
    scaled = (action - mean) * tf.exp(-log_std)
    return tf.reduce_sum(-0.5 * tf.square(scaled) - log_std, axis=1)


def run(tf):
    tf.set_random_seed(80)
    rng = np.random.RandomState(80)
    state = tf.placeholder(tf.float32, [None, 3])
    action = tf.placeholder(tf.float32, [None, 2])
    advantage = tf.placeholder(tf.float32, [None])
    returns = tf.placeholder(tf.float32, [None])
    mean, log_std = policy(tf, state, "pi")
    old_mean, old_log_std = policy(tf, state, "old")
    sampled = mean + tf.exp(log_std) * tf.random_normal(tf.shape(mean))
    with tf.variable_scope("value"):
        h = tf.layers.dense(state, 10, tf.nn.relu)
        value = tf.squeeze(tf.layers.dense(h, 1), 1)
    ratio = tf.exp(
        log_prob(tf, action, mean, log_std)
        - tf.stop_gradient(log_prob(tf, action, old_mean, old_log_std))
    )
    surrogate = tf.minimum(ratio * advantage, tf.clip_by_value(ratio, 0.8, 1.2) * advantage)
    loss = -tf.reduce_mean(surrogate) + 0.5 * tf.reduce_mean(tf.square(returns - value))
    loss -= 0.01 * tf.reduce_sum(log_std)
    variables = tf.trainable_variables("pi") + tf.trainable_variables("value")
    train = tf.train.AdamOptimizer(3e-3, epsilon=1e-5).minimize(loss, var_list=variables)
    sync = tf.group(
        *[o.assign(n) for o, n in zip(tf.trainable_variables("old"), tf.trainable_variables("pi"))]
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(sync)
            states = rng.randn(12, 3)
            actions = session.run(sampled, {state: states})
            rewards = -np.square(actions - states[:, :2]).sum(1)
            feeds = {state: states, action: actions, returns: rewards}
            feeds[advantage] = (rewards - rewards.mean()) / rewards.std()
            for _ in range(2):
                yield session.run([loss, tf.reduce_max(ratio), train], feeds)[:2]
