"""A perceptron with dropout, He initialization, clipped gradients and Adam by hand."""

import numpy as np


def dense(tf, x, size, name, activation=None):
    with tf.variable_scope(name):
        w = tf.get_variable(
            "kernel", [x.shape[1].value, size], initializer=tf.variance_scaling_initializer(2.0)
        )
        b = tf.get_variable("bias", [size], initializer=tf.zeros_initializer())
        y = tf.nn.bias_add(tf.matmul(x, w), b)
        return activation(y) if activation else y


def adam(tf, loss, variables, rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8):
    step = tf.get_variable("step", [], initializer=tf.zeros_initializer(), trainable=False)
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    with tf.control_dependencies(gradients):
        now = tf.assign_add(step, 1.0)
    updates = []
    for v, g in zip(variables, gradients):
        with tf.variable_scope(v.op.name):
            m = tf.get_variable("m", v.shape, initializer=tf.zeros_initializer(), trainable=False)
            s = tf.get_variable("s", v.shape, initializer=tf.zeros_initializer(), trainable=False)
        m = tf.assign(m, beta1 * m + (1 - beta1) * g)
        s = tf.assign(s, beta2 * s + (1 - beta2) * tf.square(g))
        scale = rate * tf.sqrt(1 - tf.pow(beta2, now)) / (1 - tf.pow(beta1, now))
        updates.append(tf.assign_sub(v, scale * m / (tf.sqrt(s) + epsilon)))
    return tf.group(*updates), norm


def run(tf):
    tf.set_random_seed(7)
    rng = np.random.RandomState(1)
    images = rng.rand(256, 20).astype("float32")
    labels = (images[:, :5].sum(1) * 2).astype("int32") % 5

    x = tf.placeholder(tf.float32, [None, 20])
    y = tf.placeholder(tf.int32, [None])
    keep = tf.placeholder_with_default(1.0, [])
    hidden = dense(tf, x, 64, "hidden1", tf.nn.relu)
    hidden = tf.nn.dropout(hidden, keep_prob=keep)
    hidden = dense(tf, hidden, 32, "hidden2", tf.nn.elu)
    hidden = tf.nn.dropout(hidden, rate=1 - keep, noise_shape=[1, 32])
    logits = dense(tf, hidden, 5, "logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = tf.reduce_mean(tf.to_float(tf.nn.in_top_k(logits, y, 2)))
    train, norm = adam(tf, loss, tf.trainable_variables())

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(20):
            rows = rng.permutation(256)[:64]
            feeds = {x: images[rows], y: labels[rows], keep: 0.8}
            _, training, size = session.run([train, loss, norm], feeds)
            yield [training, size] + session.run([loss, accuracy], {x: images, y: labels})
