"""Learning to learn: gradients through two steps of descent, for several tasks at once, applied by
an optimizer of the program's own, which has slots and a variable beside them.
"""

import numpy as np


def own_optimizer(tf):
    class SignMomentum(tf.train.Optimizer):
        def __init__(self, rate, name="SignMomentum"):
            super().__init__(False, name)
            self._rate = rate

        def _prepare(self):
            self._rate_tensor = tf.convert_to_tensor(self._rate, name="rate")

        def _create_slots(self, var_list):
            for variable in var_list:
                self._zeros_slot(variable, "momentum", self._name)
            first = min(var_list, key=lambda variable: variable.name)
            self._create_non_slot_variable(1.0, name="count", colocate_with=first)

        def _apply_dense(self, grad, var):
            slot = self.get_slot(var, "momentum")
            moved = slot.assign(0.9 * slot + 0.1 * tf.sign(grad))
            return tf.group(var.assign_sub(self._rate_tensor * moved), moved)

        def _finish(self, update_ops, name_scope):
            with tf.control_dependencies(update_ops):
                count = self._get_non_slot_variable("count", graph=tf.get_default_graph())
                counted = count.assign(count * 2)
            return tf.group(*(update_ops + [counted]), name=name_scope)

    return SignMomentum(0.1)


def run(tf):
    random = np.random.RandomState(1)
    tasks = tuple(tf.constant(random.randn(3, 5, 1).astype("float32")) for _ in range(4))
    start = [
        tf.Variable(tf.truncated_normal([1, 6], stddev=0.5, seed=1), name="w1"),
        tf.Variable(tf.zeros([6]), name="b1"),
        tf.Variable(tf.truncated_normal([6, 1], stddev=0.5, seed=2), name="w2"),
    ]

    def loss(weights, x, y):
        hidden = tf.nn.tanh(tf.matmul(x, weights[0]) + weights[1])
        return tf.reduce_mean(tf.square(tf.matmul(hidden, weights[2]) - y))

    def learn(task):
        x, y, other_x, other_y = task
        weights = start
        for _ in range(2):
            gradients = tf.gradients(loss(weights, x, y), weights)
            weights = [w - 0.1 * g for w, g in zip(weights, gradients)]
        return [loss(start, x, y), loss(weights, other_x, other_y)]

    before, after = tf.map_fn(learn, tasks, dtype=[tf.float32, tf.float32])
    optimizer = own_optimizer(tf)
    pairs = optimizer.compute_gradients(tf.reduce_mean(after))
    train = optimizer.apply_gradients([(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            fetched = session.run([before, after])
            yield np.concatenate(fetched)
            session.run(train)
        count = [v for v in optimizer.variables() if v.op.name == "count"]
        yield [len(optimizer.variables()), session.run(count[0])]
        yield session.run(optimizer.get_slot(start[2], "momentum")).ravel()
