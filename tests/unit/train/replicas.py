"""Workers of a cluster as threads of a test: each has a graph and a training session of its own."""

import threading
import time
from contextlib import contextmanager

import headrace as tf


@contextmanager
def servers(workers, ps=1):
    """Yield the targets of workers, of a cluster in this process."""
    started = tf.test.create_local_cluster(workers, ps)
    try:
        yield [server.target for server in started[0]]
    finally:
        for server in (*started[0], *started[1]):
            server.stop()


def train(targets, work, ps=1):
    """Call work(index, session) in a thread per worker, each in its own graph, with a function
    that makes the worker's training session from hooks; raise the first error.
    """
    errors = []

    def run(index):
        own = f"/job:worker/task:{index}"
        config = tf.ConfigProto(device_filters=["/job:ps", own])
        # What the tests see does not depend on the compiler.
        config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF

        def session(hooks, **options):
            return tf.train.MonitoredTrainingSession(
                targets[index],
                is_chief=index == 0,
                hooks=hooks,
                config=config,
                save_summaries_steps=None,
                **options,
            )

        setter = tf.train.replica_device_setter(ps_tasks=ps, worker_device=own)
        try:
            with tf.Graph().as_default(), tf.device(setter):
                work(index, session)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(targets))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 200
    while not errors and any(thread.is_alive() for thread in threads):
        assert time.monotonic() < until, "a worker does not end"
        time.sleep(0.01)
    if errors:
        raise errors[0]


class Final(tf.train.SessionRunHook):
    """Fetches values at the end."""

    def __init__(self, fetches):
        self.fetches = fetches

    def end(self, session):
        self.values = session.run(self.fetches)
