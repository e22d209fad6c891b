"""A convolutional network in the manner of the CIFAR-10 tutorial: weight decay in a collection of
losses, moving averages of losses and of variables; evaluated with the averages, in another graph.
"""

import os
import shutil
import tempfile

import numpy as np

DECAY = 0.9


def weights(tf, shape, stddev, decay):
    found = tf.get_variable(
        "weights", shape, initializer=tf.truncated_normal_initializer(stddev=stddev)
    )
    if decay is not None:
        tf.add_to_collection("losses", tf.multiply(tf.nn.l2_loss(found), decay, name="decay"))
    return found


def logits_of(tf, images):
    with tf.variable_scope("conv1") as scope:
        kernel = weights(tf, [3, 3, 3, 4], 0.1, None)
        biases = tf.get_variable("biases", [4], initializer=tf.constant_initializer(0.0))
        conv = tf.nn.conv2d(images, kernel, [1, 1, 1, 1], padding="SAME")
        conv = tf.nn.relu(tf.nn.bias_add(conv, biases), name=scope.name)
    pool = tf.nn.max_pool(conv, [1, 3, 3, 1], [1, 2, 2, 1], padding="SAME", name="pool1")
    norm = tf.nn.lrn(pool, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm1")
    with tf.variable_scope("softmax"):
        flat = tf.reshape(norm, [tf.shape(images)[0], -1])
        flat.set_shape([None, 3 * 3 * 4])
        matrix = weights(tf, [flat.get_shape()[1].value, 3], 0.1, 0.04)
        biases = tf.get_variable("biases", [3], initializer=tf.constant_initializer(0.1))
        return tf.nn.xw_plus_b(flat, matrix, biases)


def training(tf, logits, labels):
    """The training operation, the loss and its average."""
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    tf.add_to_collection("losses", tf.reduce_mean(entropy, name="entropy"))
    total = tf.add_n(tf.get_collection("losses"), name="total")
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.5, step, 3, 0.5, staircase=True)
    losses = tf.train.ExponentialMovingAverage(0.9, name="average")
    averaged = losses.apply(tf.get_collection("losses") + [total])
    with tf.control_dependencies([averaged]):
        optimizer = tf.train.GradientDescentOptimizer(rate)
        gradients = optimizer.compute_gradients(total)
    applied = optimizer.apply_gradients(gradients, global_step=step)
    averages = tf.train.ExponentialMovingAverage(DECAY, step)
    with tf.control_dependencies([applied]):
        train = tf.group(averages.apply(tf.trainable_variables()), name="train")
    return train, total, losses.average(total)


def run(tf):
    random = np.random.RandomState(1)
    images = random.randn(18, 6, 6, 3).astype("float32")
    classes = random.randint(0, 3, 18)
    directory = tempfile.mkdtemp()
    try:
        tf.set_random_seed(7)
        x = tf.placeholder(tf.float32, [None, 6, 6, 3])
        y = tf.placeholder(tf.int64, [None])
        train, total, average = training(tf, logits_of(tf, x), y)
        saver = tf.train.Saver()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for start in (0, 6, 12, 0, 6, 12):
                feeds = {x: images[start : start + 6], y: classes[start : start + 6]}
                yield [session.run([total, train], feeds)[0], session.run(average)]
            saver.save(session, os.path.join(directory, "model"), global_step=6)
        with tf.Graph().as_default(), tf.Session() as session:
            logits = logits_of(tf, tf.constant(images))
            hits = tf.nn.in_top_k(logits, classes, 1)
            shadows = tf.train.ExponentialMovingAverage(DECAY).variables_to_restore()
            tf.train.Saver(shadows).restore(session, tf.train.latest_checkpoint(directory))
            found, right = session.run([logits, hits])
            yield found[:2].ravel()
            yield [right.sum(), len(shadows)]
    finally:
        shutil.rmtree(directory)
