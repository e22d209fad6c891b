"""The "Deep MNIST for Experts" network: helper functions, truncated normals, dropout by feed. Only
the graph has a seed.
"""

import numpy as np


def weight_variable(tf, shape):
    return tf.Variable(tf.truncated_normal(shape, stddev=0.1))


def bias_variable(tf, shape):
    return tf.Variable(tf.constant(0.1, shape=shape))


def conv2d(tf, x, W):
    return tf.nn.conv2d(x, W, strides=[1, 1, 1, 1], padding="SAME")


def max_pool_2x2(tf, x):
    return tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")


def run(tf):
    tf.set_random_seed(1234)
    rng = np.random.RandomState(1)
    x = tf.placeholder(tf.float32, [None, 64])
    y_ = tf.placeholder(tf.float32, [None, 10])
    keep_prob = tf.placeholder(tf.float32)

    image = tf.reshape(x, [-1, 8, 8, 1])
    h_conv1 = tf.nn.relu(
        conv2d(tf, image, weight_variable(tf, [3, 3, 1, 4])) + bias_variable(tf, [4])
    )
    h_pool1 = max_pool_2x2(tf, h_conv1)
    h_conv2 = tf.nn.relu(
        conv2d(tf, h_pool1, weight_variable(tf, [3, 3, 4, 8])) + bias_variable(tf, [8])
    )
    h_pool2 = max_pool_2x2(tf, h_conv2)
    flat = tf.reshape(h_pool2, [-1, 2 * 2 * 8])
    h_fc1 = tf.nn.relu(tf.matmul(flat, weight_variable(tf, [32, 16])) + bias_variable(tf, [16]))
    h_drop = tf.nn.dropout(h_fc1, keep_prob)
    logits = tf.matmul(h_drop, weight_variable(tf, [16, 10])) + bias_variable(tf, [10])
    cross_entropy = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=logits)
    )
    train_step = tf.train.AdamOptimizer(1e-3).minimize(cross_entropy)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(y_, 1)), tf.float32))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(8):
            feeds = {x: rng.rand(10, 64), y_: np.eye(10)[rng.randint(0, 10, 10)]}
            feeds[keep_prob] = 0.5
            _, loss = session.run([train_step, cross_entropy], feeds)
            feeds[keep_prob] = 1.0
            yield [loss] + session.run([cross_entropy, accuracy], feeds)
