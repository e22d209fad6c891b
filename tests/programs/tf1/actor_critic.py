"""Workers with networks of their own, which they copy from a global one and whose gradients they
apply to it, in threads that take turns; another network is a target that follows slowly.
"""

import threading

import numpy as np

WORKERS, TURNS = 3, 9


class Network:
    """A policy and a value; a worker's can be trained, to the good of the global one's."""

    def __init__(self, tf, scope, optimizer=None):
        with tf.variable_scope(scope):
            self.x = tf.placeholder(tf.float32, [None, 5])
            hidden = tf.layers.dense(
                self.x, 6, tf.nn.elu, kernel_initializer=tf.orthogonal_initializer(seed=3)
            )
            normal = tf.random_normal_initializer(stddev=0.1, seed=1)
            self.policy = tf.layers.dense(
                hidden, 2, tf.nn.softmax, use_bias=False, kernel_initializer=normal
            )
            self.value = tf.layers.dense(hidden, 1, use_bias=False, kernel_initializer=normal)
        self.variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope)
        if optimizer is None:
            return
        self.action = tf.placeholder(tf.int32, [None])
        self.reward = tf.placeholder(tf.float32, [None])
        advantage = self.reward - tf.squeeze(self.value, 1)
        chosen = tf.reduce_sum(self.policy * tf.one_hot(self.action, 2), axis=1)
        entropy = -tf.reduce_sum(self.policy * tf.log(self.policy))
        gain = tf.reduce_sum(tf.log(chosen) * tf.stop_gradient(advantage))
        self.loss = 0.25 * tf.reduce_sum(tf.square(advantage)) - gain - 0.01 * entropy
        gradients, self.norm = tf.clip_by_global_norm(tf.gradients(self.loss, self.variables), 0.5)
        shared = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "global")
        self.apply = optimizer.apply_gradients(zip(gradients, shared))
        self.sync = [own.assign(other) for own, other in zip(self.variables, shared)]


def work(session, coordinator, workers, number, turn, lines):
    random = np.random.RandomState(number)
    while not coordinator.should_stop():
        with turn:
            turn.wait_for(lambda: len(lines) % WORKERS == number or coordinator.should_stop(), 60)
            if coordinator.should_stop():
                return
            network = workers[number]
            session.run(network.sync)
            feeds = {
                network.x: random.randn(4, 5),
                network.action: random.randint(0, 2, 4),
                network.reward: random.randn(4),
            }
            loss, norm, _ = session.run([network.loss, network.norm, network.apply], feeds)
            lines.append([loss, norm])
            if len(lines) == TURNS:
                coordinator.request_stop()
            turn.notify_all()


def run(tf):
    shared, target = Network(tf, "global"), Network(tf, "target")
    optimizer = tf.train.RMSPropOptimizer(0.01, decay=0.99, epsilon=0.1)
    workers = [Network(tf, f"worker_{i}", optimizer) for i in range(WORKERS)]
    follow = tf.group(
        *[t.assign(0.9 * t + 0.1 * s) for t, s in zip(target.variables, shared.variables)]
    )
    lines, turn = [], threading.Condition()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([t.assign(s) for t, s in zip(target.variables, shared.variables)])
        coordinator = tf.train.Coordinator()
        threads = [
            threading.Thread(target=work, args=(session, coordinator, workers, i, turn, lines))
            for i in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        coordinator.join(threads)
        yield from lines
        for _ in range(3):
            session.run(follow)
        for network in (shared, target):
            yield session.run(network.policy, {network.x: np.ones([1, 5])}).ravel()
