"""Training with hooks of its own: a learning rate that is fed, early stopping, a machine that fails
now and then; and an input that ends.
"""

import shutil
import tempfile

import numpy as np


def hooks_for(tf, rate, loss, history):
    class Decay(tf.train.SessionRunHook):
        """Feeds a learning rate that grows while the loss hardly falls."""

        def begin(self):
            self.rate, self.last = 0.05, float("inf")

        def before_run(self, context):
            return tf.train.SessionRunArgs(loss, feed_dict={rate: self.rate})

        def after_run(self, context, values):
            if values.results > 0.8 * self.last:
                self.rate *= 1.5
            self.last = values.results
            history.append(self.rate)

    class Stop(tf.train.SessionRunHook):
        """Stops when the loss is small."""

        def before_run(self, context):
            return tf.train.SessionRunArgs(loss)

        def after_run(self, context, values):
            if values.results < 0.05:
                context.request_stop()

    class Failing(tf.train.SessionRunHook):
        """Loses the machine at some runs."""

        def begin(self):
            self.runs = 0

        def after_create_session(self, session, coord):
            history.append(-1.0)

        def before_run(self, context):
            self.runs += 1
            if self.runs in (4, 9):
                raise tf.errors.UnavailableError(None, None, "the machine is gone")

    return [Decay(), Stop(), Failing()]


def train(tf, directory):
    rng = np.random.RandomState(8)
    data = rng.randn(30, 2).astype("float32")
    target = (data.dot([[2.0], [-1.0]])).astype("float32")
    rate = tf.placeholder_with_default(0.1, [], name="rate")
    w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    before = tf.identity(w)
    loss = tf.reduce_mean(tf.square(tf.matmul(data, before) - target))
    optimizer = tf.train.GradientDescentOptimizer(rate)
    with tf.control_dependencies([loss]):
        advance = optimizer.minimize(loss, global_step=step)
    scaffold = tf.train.Scaffold(
        init_fn=lambda scaffold, session: w.load([[0.5], [0.5]], session),
        saver=tf.train.Saver(max_to_keep=2),
    )
    history = []
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=directory,
        scaffold=scaffold,
        hooks=hooks_for(tf, rate, loss, history),
        save_checkpoint_steps=3,
        save_summaries_steps=None,
        log_step_count_steps=None,
    ) as session:
        for _ in range(30):
            if session.should_stop():
                break
            yield [session.run([loss, advance])[0]]
    yield history
    names = tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths
    yield [int(name.rpartition("-")[2]) for name in names]


def until_the_end(tf):
    """Read an input that ends; the with-block ends with it."""
    queue = tf.train.input_producer(
        [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], num_epochs=2, shuffle=False
    )
    total = tf.get_local_variable("total", initializer=0.0)
    add = total.assign_add(tf.reduce_sum(queue.dequeue()))
    with tf.train.MonitoredSession() as session:
        while not session.should_stop():
            yield [session.run(add)]


def run(tf):
    directory = tempfile.mkdtemp()
    try:
        for numbers in train(tf, directory):
            yield numbers
    finally:
        tf.summary.FileWriterCache.clear()
        shutil.rmtree(directory)
    with tf.Graph().as_default():
        for numbers in until_the_end(tf):
            yield numbers
