"""Synchronous training, step by step: gradients that count, that are late, and that are missing."""

import numpy as np

from tests.oracle.sequences import sequence

VALUE = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]], np.float32)


def model(tf, aggregate, total, averages=False):
    """Variables with fed gradients, and their synchronous optimizer."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=VALUE)
    rows = tf.get_variable("rows", initializer=VALUE)
    gradient = tf.placeholder(tf.float32, [], name="gradient")
    index = tf.placeholder(tf.int32, [], name="index")
    slices = tf.IndexedSlices(gradient * tf.ones([2, 2]), tf.stack([index, 0]), tf.constant([3, 2]))
    ema = tf.train.ExponentialMovingAverage(0.5) if averages else None
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.MomentumOptimizer(0.125, 0.5), aggregate, total, ema, [w, rows]
    )
    train = optimizer.apply_gradients([(gradient * tf.ones_like(w), w), (slices, rows)], step)
    state = [w, rows, step] + tf.local_variables() + optimizer.variables()
    state += [ema.average(w), ema.average(rows)] if averages else []
    return optimizer, train, gradient, index, state


def play(tf, run, aggregate, total, averages=False):
    """Run a worker's steps and the chief's updates in turn, one of them with a late gradient."""
    optimizer, train, gradient, index, state = model(tf, aggregate, total, averages)
    update = optimizer.get_chief_queue_runner().enqueue_ops[0]
    tokens = optimizer.get_init_tokens_op(8)
    held = optimizer._sync_token_queue.size()
    local = tf.local_variables()[0]
    late = tf.assign(local, local - 1)
    # Initialisers run one by one: averages read the variables that they follow.
    run(optimizer.ready_for_local_init_op)
    for variable in tf.global_variables() + tf.local_variables():
        run(variable.initializer)
    run(optimizer.ready_for_local_init_op)
    run(optimizer.chief_init_op)
    run(tokens)
    for value in range(aggregate):
        run(train, {gradient: value + 1, index: value % 3})
    run(update)
    run([state, held])
    for value in range(aggregate):
        # Tokens of the first step are left: this gradient is late, and its worker takes a new one.
        run(train, {gradient: 100 + value, index: 1})
    run([state, held])
    run(optimizer.local_step_init_op)
    for value in range(aggregate - 1):
        run(train, {gradient: value - 4, index: 2})
        run(optimizer.local_step_init_op)
    run(late)
    run(train, {gradient: 50, index: 2})
    run(optimizer.local_step_init_op)
    run(train, {gradient: 3, index: 2})
    run(update)
    run([state, held])


@sequence
def backup_workers(tf, run):
    play(tf, run, 2, 4)


@sequence
def more_gradients_than_workers(tf, run):
    play(tf, run, 3, 1)


@sequence
def averages(tf, run):
    play(tf, run, 2, 3, averages=True)


@sequence
def monitored(tf, run):
    """A chief that is the only worker, in a session on a server."""
    optimizer, train, gradient, index, state = model(tf, 1, 1)
    server = tf.train.Server.create_local_server()
    # Without early tokens each gradient waits for its update.
    hooks = [optimizer.make_session_run_hook(True, num_tokens=0)]
    hooks.append(tf.train.StopAtStepHook(last_step=4))
    # TensorFlow waits that long for the thread of the chief, which waits for gradients.
    grace = 1
    with tf.train.MonitoredTrainingSession(
        server.target, hooks=hooks, stop_grace_period_secs=grace
    ) as session:
        number = 0
        while not session.should_stop():
            number += 1
            run.note(session.run(train, {gradient: number, index: number % 3}))
            run.note(session.run(state))
            if number == 3:
                break


@sequence
def mistakes(tf, run):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=VALUE)
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 3, 1)
    run.attempt(optimizer.get_chief_queue_runner)
    run.attempt(optimizer.get_init_tokens_op)
    run.attempt(optimizer.make_session_run_hook(False).begin)
    run.attempt(lambda: optimizer.apply_gradients([]))
    run.attempt(lambda: optimizer.apply_gradients([(w, w)]))
    optimizer.apply_gradients([(tf.zeros([3, 2]), w)], step)
    run.attempt(lambda: optimizer.get_init_tokens_op(1))
    run.attempt(lambda: optimizer.get_init_tokens_op(2))


def average(tf, run, make_getter, make_optimizer):
    """Steps of one worker that averages with itself alone, or with a center."""
    getter = make_getter("/cpu:0")
    step = tf.train.get_or_create_global_step()
    with tf.variable_scope("", custom_getter=getter):
        w = tf.get_variable("w", initializer=VALUE)
        kept = [tf.GraphKeys.GLOBAL_VARIABLES]
        fixed = tf.get_variable("fixed", initializer=[1.0], trainable=False, collections=kept)
    optimizer = make_optimizer(getter)
    gradient = tf.placeholder(tf.float32, [])
    train = optimizer.minimize(tf.reduce_sum(gradient * w * fixed), step)
    run.note([v.name for v in tf.trainable_variables() + tf.local_variables()])
    names = sorted(v.name for v in tf.global_variables())
    run.note(names)
    # First what has no average, since the average begins with its value.
    for variable in tf.local_variables() + tf.global_variables():
        run(variable.initializer)
    state = tf.local_variables() + [
        v for _, v in sorted((v.name, v) for v in tf.global_variables())
    ]
    for value in range(5):
        run(train, {gradient: value})
        run(state)


@sequence
def model_average(tf, run):
    opt = tf.contrib.opt
    average(
        tf,
        run,
        opt.ModelAverageCustomGetter,
        lambda getter: opt.ModelAverageOptimizer(
            tf.train.GradientDescentOptimizer(0.5), 1, True, getter, interval_steps=2
        ),
    )


@sequence
def elastic_average(tf, run):
    opt = tf.contrib.opt
    average(
        tf,
        run,
        opt.ElasticAverageCustomGetter,
        lambda getter: opt.ElasticAverageOptimizer(
            tf.train.MomentumOptimizer(0.5, 0.5), 2, getter, communication_period=2
        ),
    )
