"""REINFORCE on a contextual bandit: actions drawn by multinomial, a running baseline."""

import numpy as np


def run(tf):
    tf.set_random_seed(31)
    rng = np.random.RandomState(12)
    rewards_of = np.array([[1, 0, 0.2, 0.1], [0, 1, 0.1, 0.3], [0.2, 0.1, 0, 1]], "float32")

    state = tf.placeholder(tf.int32, [None], name="state")
    actions = tf.placeholder(tf.int64, [None], name="actions")
    rewards = tf.placeholder(tf.float32, [None], name="rewards")
    logits = tf.gather(tf.get_variable("policy", [3, 4], initializer=tf.zeros_initializer()), state)
    chosen = tf.squeeze(tf.multinomial(logits, num_samples=1, seed=2), axis=[1])
    tempered = tf.random.categorical(logits / 0.5, 3, dtype=tf.int32)

    baseline = tf.get_variable("baseline", [], initializer=tf.zeros_initializer(), trainable=False)
    log_probabilities = tf.nn.log_softmax(logits)
    rows = tf.range(tf.size(state, out_type=tf.int64))
    taken = tf.gather_nd(log_probabilities, tf.stack([rows, actions], axis=1))
    advantage = tf.stop_gradient(rewards - baseline)
    entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_probabilities) * log_probabilities, axis=1))
    loss = -tf.reduce_mean(taken * advantage) - 0.01 * entropy
    (policy,) = tf.trainable_variables()
    (gradient,) = tf.gradients(loss, [policy])
    with tf.control_dependencies([loss, entropy]):
        step = tf.scatter_sub(policy, gradient.indices, 2.0 * gradient.values)
    with tf.control_dependencies([step]):
        train = baseline.assign_add(0.1 * (tf.reduce_mean(rewards) - baseline))

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(20):
            states = rng.randint(3, size=50)
            drawn = session.run(chosen, {state: states})
            won = rewards_of[states, drawn]
            feeds = {state: states, actions: drawn, rewards: won}
            values = session.run({"loss": loss, "entropy": entropy, "base": train}, feeds)
            extra = session.run(tempered, {state: states})
            yield [values["loss"], values["entropy"], values["base"], won.mean(), extra.sum()]
