"""Optimizers of several replicas: the graphs that one worker builds, and a chief's update."""

import numpy as np

from tests.oracle.case import case

VALUE = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]], np.float32)


def synchronous(tf, averages=False, aggregate=2, total=3, resource=False, device=None):
    """A model with dense and sparse gradients, and one that the loss doesn't depend on."""
    with tf.device(device):
        step = tf.train.get_or_create_global_step()
        with tf.variable_scope("model", use_resource=resource):
            w = tf.get_variable("w", initializer=VALUE)
            rows = tf.get_variable("rows", initializer=VALUE)
            other = tf.get_variable("other", initializer=VALUE)
        slices = tf.IndexedSlices(tf.constant(VALUE), tf.constant([0, 2, 0]), tf.constant([3, 2]))
        ema = tf.train.ExponentialMovingAverage(0.5) if averages else None
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.MomentumOptimizer(0.125, 0.5),
            aggregate,
            total,
            variable_averages=ema,
            variables_to_average=[w, rows] if averages else None,
        )
        pairs = [(tf.constant(VALUE), w), (slices, rows), (None, other)]
        train = optimizer.apply_gradients(pairs, step)
    return optimizer, train, [w, rows, step]


def built(name, **options):
    def build(tf):
        optimizer, train, variables = synchronous(tf, **options)
        optimizer.get_init_tokens_op()
        optimizer.get_init_tokens_op(0 if options.get("aggregate", 2) <= 3 else 4)
        optimizer.make_session_run_hook(True).begin()
        runner = optimizer.get_chief_queue_runner()
        names = [op.name for op in runner.enqueue_ops] + [runner.queue.name, train.name]
        names += [optimizer.chief_init_op.name, optimizer.local_step_init_op.name]
        names += [optimizer.ready_for_local_init_op.name] + optimizer.get_slot_names()
        names += [v.name for v in optimizer.variables() + tf.local_variables()]
        return [tf.constant(names, name="names")] + [v.read_value() for v in variables]

    build.__name__ = name
    build.__module__ = __name__
    case(build)


built("references")
built("resources", resource=True)
built("averages", averages=True)
built("more_gradients_than_workers", aggregate=4, total=2)
built("on_devices", device="/device:CPU:0")
