"""Reinforcement learning in the manner of 2016: a policy network, an environment in NumPy, actions
drawn by the graph, gradients kept in buffers and applied per episode. Only the graph has a seed.
"""

import numpy as np


def discounted(rewards, gamma=0.99):
    result, running = np.zeros(len(rewards), "float32"), 0.0
    for t in reversed(range(len(rewards))):
        running = running * gamma + rewards[t]
        result[t] = running
    return result


def run(tf):
    tf.set_random_seed(5)
    rng = np.random.RandomState(6)
    observations = tf.placeholder(tf.float32, [None, 4], name="input_x")
    W1 = tf.get_variable("W1", shape=[4, 8], initializer=tf.contrib.layers.xavier_initializer())
    layer1 = tf.nn.relu(tf.matmul(observations, W1))
    W2 = tf.get_variable("W2", shape=[8, 2], initializer=tf.contrib.layers.xavier_initializer())
    score = tf.matmul(layer1, W2)
    action = tf.multinomial(score, 1)[0][0]

    input_y = tf.placeholder(tf.int32, [None], name="input_y")
    advantages = tf.placeholder(tf.float32, name="reward_signal")
    loglik = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=input_y, logits=score)
    loss = tf.reduce_mean(loglik * advantages)
    tvars = tf.trainable_variables()
    new_grads = tf.gradients(loss, tvars)
    adam = tf.train.AdamOptimizer(learning_rate=1e-2)
    grad_places = [tf.placeholder(tf.float32, name=f"batch_grad{i}") for i in range(2)]
    update = adam.apply_gradients(zip(grad_places, tvars))

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        buffers = [np.zeros_like(v) for v in session.run(tvars)]
        for episode in range(4):
            state, xs, ys, rewards = rng.randn(4), [], [], []
            for _ in range(8):
                chosen = session.run(action, {observations: state.reshape(1, 4)})
                xs.append(state)
                ys.append(chosen)
                state = 0.8 * state + 0.3 * rng.randn(4) + (chosen - 0.5) * 0.4
                rewards.append(1.0 if state[0] > 0 else 0.0)
            returns = discounted(rewards)
            returns = (returns - returns.mean()) / (returns.std() + 1e-6)
            feeds = {observations: np.array(xs), input_y: ys, advantages: returns}
            value, grads = session.run([loss, new_grads], feeds)
            for buffer, grad in zip(buffers, grads):
                buffer += grad
            if episode % 2 == 1:
                session.run(update, dict(zip(grad_places, buffers)))
                for buffer in buffers:
                    buffer[:] = 0
            yield [value, sum(ys), sum(rewards)]
