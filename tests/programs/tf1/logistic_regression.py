"""Logistic regression by gradient descent with momentum and weight decay."""

import numpy as np


def run(tf):
    rng = np.random.RandomState(0)
    points = rng.randn(200, 5).astype("float32")
    labels = (points.dot([1.0, -2.0, 0.5, 0.0, 3.0]) + 0.3 * rng.randn(200) > 0.2).astype("float32")

    x = tf.placeholder(tf.float32, [None, 5], name="x")
    y = tf.placeholder(tf.float32, [None], name="y")
    w = tf.Variable(tf.zeros([5, 1]), name="w")
    b = tf.Variable(0.0, name="b")
    logits = tf.squeeze(tf.matmul(x, w), axis=1) + b
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)
    loss = tf.reduce_mean(losses) + 1e-3 * tf.nn.l2_loss(w)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(logits > 0, y > 0.5), tf.float32))

    velocities = [
        tf.Variable(tf.zeros_like(v.initialized_value()), trainable=False) for v in (w, b)
    ]
    gradients = tf.gradients(loss, [w, b])
    updates = []
    with tf.control_dependencies(gradients + [loss, accuracy]):
        for variable, velocity, gradient in zip([w, b], velocities, gradients):
            velocity = tf.assign(velocity, 0.9 * velocity + gradient)
            updates.append(tf.assign_sub(variable, 0.1 * velocity))
    train = tf.group(*updates, name="train")

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(20):
            rows = np.arange(step * 40, step * 40 + 40) % 200
            feeds = {x: points[rows], y: labels[rows]}
            yield session.run([loss, accuracy, train], feeds)[:2] + [session.run(b)]
