"""The towers of cifar10_multi_gpu_train.py, on one CPU: shared variables, gradients averaged by
hand, losses in collections. Only the graph has a seed.
"""

import numpy as np


def variable_with_weight_decay(tf, name, shape, stddev, wd):
    with tf.device("/cpu:0"):
        var = tf.get_variable(
            name, shape, initializer=tf.truncated_normal_initializer(stddev=stddev)
        )
    if wd is not None:
        decay = tf.multiply(tf.nn.l2_loss(var), wd, name="weight_loss")
        tf.add_to_collection("losses", decay)
    return var


def tower_loss(tf, scope, x, y):
    with tf.variable_scope("local") as local:
        w = variable_with_weight_decay(tf, "weights", [5, 8], 0.3, 0.01)
        b = tf.get_variable("biases", [8], initializer=tf.constant_initializer(0.1))
        h = tf.nn.relu(tf.matmul(x, w) + b, name=local.name)
    with tf.variable_scope("softmax"):
        w = variable_with_weight_decay(tf, "weights", [8, 3], 1 / 8.0, None)
        b = tf.get_variable("biases", [3], initializer=tf.constant_initializer(0.0))
        logits = tf.add(tf.matmul(h, w), b)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    tf.add_to_collection("losses", tf.reduce_mean(entropy, name="cross_entropy"))
    return tf.add_n(tf.get_collection("losses", scope), name="total_loss")


def average_gradients(tf, tower_grads):
    averaged = []
    for grad_and_vars in zip(*tower_grads):
        grads = [tf.expand_dims(g, 0) for g, _ in grad_and_vars]
        grad = tf.reduce_mean(tf.concat(axis=0, values=grads), 0)
        averaged.append((grad, grad_and_vars[0][1]))
    return averaged


def run(tf):
    tf.set_random_seed(120)
    rng = np.random.RandomState(120)
    x = tf.placeholder(tf.float32, [8, 5])
    y = tf.placeholder(tf.int32, [8])
    with tf.device("/cpu:0"):
        global_step = tf.get_variable(
            "global_step", [], initializer=tf.constant_initializer(0), trainable=False
        )
        lr = tf.train.exponential_decay(0.1, global_step, 3, 0.5, staircase=True)
        opt = tf.train.GradientDescentOptimizer(lr)
        tower_grads, losses = [], []
        xs, ys = tf.split(x, 2), tf.split(y, 2)
        with tf.variable_scope(tf.get_variable_scope()):
            for i in range(2):
                with tf.device("/cpu:0"), tf.name_scope(f"tower_{i}") as scope:
                    losses.append(tower_loss(tf, scope, xs[i], ys[i]))
                    tf.get_variable_scope().reuse_variables()
                    tower_grads.append(opt.compute_gradients(losses[-1]))
        apply_op = opt.apply_gradients(average_gradients(tf, tower_grads), global_step=global_step)
        averages = tf.train.ExponentialMovingAverage(0.9, global_step)
        train_op = tf.group(apply_op, averages.apply(tf.trainable_variables()))
    config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            feeds = {x: rng.randn(8, 5), y: rng.randint(0, 3, 8)}
            yield session.run(losses + [lr, train_op], feeds)[:3]
