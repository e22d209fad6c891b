"""Train the digits network in several processes, with the variables on parameter servers:

    headrace launch examples/parameter_server.py --ps 1 --workers 2

Each process runs this file. A parameter server keeps variables and applies updates to them. Each
worker builds the same graph (between-graph replication), computes gradients of its own batches and
sends them to the parameter servers, without waiting for other workers (white paper §4.4). Worker 0
is the chief: it initialises the variables, saves checkpoints and measures the accuracy at the end.

A process finds its task in TF_CONFIG or in TensorFlow 1's flags, so the file also runs on several
hosts (docs/cluster.md). `--kill_worker 1` shows what happens when a worker dies: `make
demo-cluster`.
"""

from __future__ import annotations

import json
import os
import signal

import numpy as np
from digits import data, network

import headrace as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "addresses of the parameter servers, separated by commas")
flags.DEFINE_string("worker_hosts", "", "addresses of the workers, separated by commas")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "which of the job's tasks this is")
flags.DEFINE_integer("steps", 1500, "updates of all workers together")
flags.DEFINE_integer("batch", 64, "examples of one update")
flags.DEFINE_string("train_dir", None, "where the chief saves checkpoints")
flags.DEFINE_integer("kill_worker", -1, "a worker that dies in the middle")
FLAGS = flags.FLAGS


def task() -> tuple[tf.train.ClusterSpec, str, int]:
    """The cluster, and which task of it this process is."""
    if FLAGS.job_name:
        jobs = {"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")}
        return tf.train.ClusterSpec(jobs), FLAGS.job_name, FLAGS.task_index
    config = json.loads(os.environ["TF_CONFIG"])
    found = config["task"]
    return tf.train.ClusterSpec(config["cluster"]), found["type"], found["index"]


class DieHook(tf.train.SessionRunHook):
    """Kills this process when the global step passes a number, as a failing host would. A process
    that starts after that goes on.
    """

    def __init__(self, at_step: int) -> None:
        self.at_step = at_step

    def begin(self) -> None:
        self.global_step = tf.train.get_global_step()
        self.first: int | None = None

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.global_step)

    def after_run(self, run_context, run_values):
        step = int(run_values.results)
        if self.first is None:
            self.first = step
            print(f"begins at step {step}")
        if self.first < self.at_step <= step:
            print(f"dies at step {step}")
            os.kill(os.getpid(), signal.SIGKILL)


class AccuracyHook(tf.train.SessionRunHook):
    """Measures the accuracy on the test images at the end."""

    def __init__(self, accuracy: tf.Tensor, feeds: dict[tf.Tensor, np.ndarray]) -> None:
        self.accuracy = accuracy
        self.feeds = feeds

    def end(self, session):
        score = session.run(self.accuracy, self.feeds)
        print(f"test accuracy {score:.2%}")


def main(_) -> None:
    tf.logging.set_verbosity(tf.logging.INFO)
    cluster, job, index = task()
    server = tf.train.Server(cluster, job, index)
    if job == "ps":
        server.join()  # until every worker has ended
        return

    train_x, train_y, test_x, test_y = data()
    own = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
        global_step = tf.train.get_or_create_global_step()
        images = tf.placeholder(tf.float32, [None, 8, 8, 1], name="images")
        labels = tf.placeholder(tf.int32, [None], name="labels")
        keep_prob = tf.placeholder_with_default(1.0, [], name="keep_prob")
        logits = network(images, keep_prob)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels)
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
        rate = tf.train.cosine_decay(0.02, global_step, FLAGS.steps)
        train = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step)

    hooks = [
        tf.train.StopAtStepHook(last_step=FLAGS.steps),
        tf.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_secs=1),
    ]
    if index == FLAGS.kill_worker:
        hooks.append(DieHook(FLAGS.steps * 2 // 5))
    # A session waits for the tasks that it may use. Without the filter that is every worker.
    config = tf.ConfigProto(device_filters=["/job:ps", own])
    chores = [AccuracyHook(accuracy, {images: test_x, labels: test_y})]
    rng = np.random.default_rng(index)
    with tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=index == 0,
        checkpoint_dir=FLAGS.train_dir,
        hooks=hooks,
        chief_only_hooks=chores,
        config=config,
    ) as session:
        while not session.should_stop():
            batch = rng.integers(len(train_x), size=FLAGS.batch)
            feeds = {images: train_x[batch], labels: train_y[batch], keep_prob: 0.6}
            session.run(train, feeds)


if __name__ == "__main__":
    tf.app.run(main)
