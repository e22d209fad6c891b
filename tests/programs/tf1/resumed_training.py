"""Training that is saved and goes on in a new graph and a new session, with the optimizer's slots
and the averages of the weights. Only the graphs have seeds.
"""

import os
import shutil
import tempfile

import numpy as np


def build(tf):
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    y = tf.placeholder(tf.float32, [None, 1], name="y")
    h = tf.layers.dense(x, 6, tf.nn.selu, name="hidden")
    out = tf.layers.dense(h, 1, name="out")
    loss = tf.reduce_mean(tf.square(out - y), name="loss")
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.02).minimize(loss, global_step=step)
    averages = tf.train.ExponentialMovingAverage(0.8, num_updates=step)
    with tf.control_dependencies([train]):
        train = averages.apply(tf.trainable_variables())
    return x, y, loss, train, step, averages


def run(tf):
    rng = np.random.RandomState(110)
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "model.ckpt")
    try:
        for part in range(2):
            with tf.Graph().as_default(), tf.Session() as session:
                tf.set_random_seed(110 + part)
                x, y, loss, train, step, averages = build(tf)
                saver = tf.train.Saver(max_to_keep=2)
                if part == 0:
                    session.run(tf.global_variables_initializer())
                else:
                    saver.restore(session, tf.train.latest_checkpoint(folder))
                for _ in range(4):
                    values = rng.randn(8, 4)
                    feeds = {x: values, y: values.sum(1, keepdims=True)}
                    _, value = session.run([train, loss], feeds)
                    yield [value, session.run(step)]
                saver.save(session, path, global_step=step)
        with tf.Graph().as_default(), tf.Session() as session:
            x, y, loss, _, step, averages = build(tf)
            saver = tf.train.Saver(averages.variables_to_restore())
            saver.restore(session, tf.train.latest_checkpoint(folder))
            values = rng.randn(8, 4)
            yield [session.run(loss, {x: values, y: values.sum(1, keepdims=True)})]
    finally:
        shutil.rmtree(folder)
