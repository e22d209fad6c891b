"""A network trained by MonitoredTrainingSession from a queue of examples, in two lives: the second
one goes on from the checkpoint of the first. Then it's evaluated from that checkpoint.
"""

import shutil
import tempfile

import numpy as np


class Losses:
    """What LoggingTensorHook logs, as numbers."""

    def __init__(self):
        self.lines = []

    def __call__(self, values):
        self.lines.append(float(values["loss"]))
        return f"loss {values['loss']:.3f}"


def model(tf, features, labels):
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        hidden = tf.layers.dense(features, 8, activation=tf.nn.tanh, name="hidden")
        logits = tf.layers.dense(hidden, 3, name="logits")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    return loss, tf.argmax(logits, axis=1)


def life(tf, directory, last_step, losses):
    """Train up to a step in a graph of its own; yields loss and step."""
    rng = np.random.RandomState(5)
    data = rng.randn(60, 4).astype("float32")
    with tf.Graph().as_default():
        tf.set_random_seed(11)
        index = tf.train.range_input_producer(60, shuffle=False).dequeue_many(12)
        features = tf.gather(tf.constant(data), index)
        labels = tf.argmax(features[:, :3], axis=1)
        loss, _ = model(tf, features, labels)
        step = tf.train.get_or_create_global_step()
        rate = tf.train.exponential_decay(0.5, step, 5, 0.9)
        optimizer = tf.train.MomentumOptimizer(rate, 0.9)
        train = optimizer.minimize(loss, global_step=step)
        tf.summary.scalar("loss", loss)
        hooks = [
            tf.train.StopAtStepHook(last_step=last_step),
            tf.train.NanTensorHook(loss),
            tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=3, formatter=losses),
        ]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=hooks,
            save_checkpoint_steps=4,
            save_summaries_steps=2,
            log_step_count_steps=5,
        ) as session:
            while not session.should_stop():
                yield [session.run([loss, train])[0]]


def evaluate(tf, directory):
    rng = np.random.RandomState(6)
    data = rng.randn(40, 4).astype("float32")
    with tf.Graph().as_default():
        labels = tf.argmax(data[:, :3], axis=1)
        loss, predicted = model(tf, tf.constant(data), labels)
        step = tf.train.get_or_create_global_step()
        right = tf.reduce_mean(tf.cast(tf.equal(predicted, labels), tf.float32))
        final = tf.train.FinalOpsHook([loss, right, step])
        with tf.train.SingularMonitoredSession(hooks=[final], checkpoint_dir=directory) as session:
            assert isinstance(session.raw_session(), tf.Session)
        return final.final_ops_values


def run(tf):
    directory = tempfile.mkdtemp()
    losses = Losses()
    try:
        for last_step in (6, 14):
            yield from life(tf, directory, last_step, losses)
            latest = tf.train.latest_checkpoint(directory)
            yield [int(latest.rpartition("-")[2])]
        yield evaluate(tf, directory)
        yield losses.lines
        tf.summary.FileWriterCache.clear()
        yield [len(tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths)]
    finally:
        shutil.rmtree(directory)
