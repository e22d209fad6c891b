"""A residual network with tf.layers: batch normalization and its update ops, weight decay, a
stepwise learning rate. Only the graph has a seed.
"""

import numpy as np


def block(tf, x, filters, strides, training):
    shortcut = x
    init = tf.variance_scaling_initializer(scale=2.0, mode="fan_out")
    if strides > 1:
        shortcut = tf.layers.conv2d(x, filters, 1, strides=strides, use_bias=False)
    h = tf.layers.batch_normalization(x, momentum=0.9, training=training)
    h = tf.nn.relu(h)
    h = tf.layers.conv2d(h, filters, 3, strides, "same", use_bias=False, kernel_initializer=init)
    h = tf.layers.batch_normalization(h, momentum=0.9, training=training, fused=True)
    h = tf.nn.relu(h)
    h = tf.layers.conv2d(h, filters, 3, 1, "same", use_bias=False, kernel_initializer=init)
    return h + shortcut


def run(tf):
    tf.set_random_seed(99)
    rng = np.random.RandomState(9)
    images = tf.placeholder(tf.float32, [None, 8, 8, 3])
    labels = tf.placeholder(tf.int64, [None])
    training = tf.placeholder(tf.bool, [])
    x = tf.layers.conv2d(images, 4, 3, padding="same", use_bias=False, name="first")
    x = block(tf, x, 4, 1, training)
    x = block(tf, x, 8, 2, training)
    x = tf.reduce_mean(tf.nn.relu(x), axis=[1, 2])
    logits = tf.layers.dense(x, 5, name="last")
    entropy = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    decay = 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()])
    loss = entropy + decay
    step = tf.train.get_or_create_global_step()
    rate = tf.train.piecewise_constant(step, [2, 4], [0.1, 0.05, 0.01])
    optimizer = tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = optimizer.minimize(loss, global_step=step)
    hits = tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 2), tf.int32))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            feeds = {images: rng.randn(6, 8, 8, 3), labels: rng.randint(0, 5, 6), training: True}
            value, _ = session.run([loss, train], feeds)
            feeds[training] = False
            yield [value] + session.run([entropy, decay, rate, hits], feeds)
