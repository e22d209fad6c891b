"""Linear regression under a Supervisor, which saves and restores; a thread beside it counts."""

import os
import shutil
import tempfile
import threading

import numpy as np


def graph(tf):
    rng = np.random.RandomState(3)
    inputs = rng.randn(50, 3).astype("float32")
    outputs = inputs.dot([[1.0], [-2.0], [0.5]]).astype("float32") + 0.1
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = tf.placeholder(tf.float32, [None, 1], name="y")
    w = tf.Variable(tf.zeros([3, 1]), name="w")
    b = tf.Variable(tf.zeros([1]), name="b")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y), name="loss")
    step = tf.Variable(0, trainable=False, name="global_step")
    tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, step)
    train = tf.train.AdagradOptimizer(0.8).minimize(loss, global_step=step)
    summaries = tf.summary.merge([tf.summary.scalar("loss", loss), tf.summary.histogram("w", w)])
    return {x: inputs, y: outputs}, loss, step, train, summaries


def life(tf, directory, last_step):
    """Train up to a step; yields losses."""
    with tf.Graph().as_default():
        feeds, loss, step, train, summaries = graph(tf)
        supervisor = tf.train.Supervisor(
            logdir=directory,
            summary_op=None,
            save_model_secs=0,
            save_summaries_secs=0,
            checkpoint_basename="regression",
        )
        counted = threading.Event()
        with supervisor.managed_session() as session:
            supervisor.loop(None, counted.set)
            counted.wait(60)
            while not supervisor.should_stop():
                number, value, _ = session.run([step, loss, train], feeds)
                yield [value]
                if number % 5 == 0:
                    supervisor.summary_computed(session, session.run(summaries, feeds))
                if session.run(step) >= last_step:
                    supervisor.saver.save(session, supervisor.save_path, global_step=step)
                    supervisor.request_stop()


def tags(tf, directory):
    """How many summaries of each tag there are."""
    found = {}
    for name in sorted(os.listdir(directory)):
        if "tfevents" in name:
            for event in tf.train.summary_iterator(os.path.join(directory, name)):
                for value in event.summary.value:
                    found[value.tag] = found.get(value.tag, 0) + 1
    return [found.get(tag, 0) > 0 for tag in ("loss_1", "w_1", "other")]


def run(tf):
    directory = tempfile.mkdtemp()
    try:
        for last_step in (7, 12):
            yield from life(tf, directory, last_step)
            yield [float(tf.train.latest_checkpoint(directory).endswith(f"-{last_step}"))]
        reader = tf.train.load_checkpoint(directory)
        yield reader.get_tensor("w").ravel()
        yield reader.get_tensor("w/Adagrad").ravel()
        yield tags(tf, directory)
    finally:
        shutil.rmtree(directory)
