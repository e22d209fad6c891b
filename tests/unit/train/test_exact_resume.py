"""A program that stops at any step and is restarted ends with exactly the same parameters."""

import os

import numpy as np
import pytest

import headrace as tf

STEPS = 4


def config(jit):
    found = tf.ConfigProto()
    found.graph_options.optimizer_options.global_jit_level = jit
    return found


def dropout_model():
    """Dropout, a shuffled order of the data, and an optimizer with slots."""
    data = tf.constant(np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32))
    x = tf.random_shuffle(data, seed=3)[:4]
    hidden = tf.layers.dense(x, 8, tf.nn.tanh, name="hidden")
    hidden = tf.nn.dropout(hidden, rate=0.5, seed=5)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 1, name="out") - x[:, :1]))
    step = tf.train.get_or_create_global_step()
    return tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)


def sampled_model():
    """A learned sampler's draws move the weights."""
    step = tf.train.get_or_create_global_step()
    true = tf.cast(tf.reshape(step, [1, 1]) % 7, tf.int64)
    drawn = tf.nn.learned_unigram_candidate_sampler(true, 1, 3, True, 7, seed=4)[0]
    fixed = tf.nn.fixed_unigram_candidate_sampler(true, 1, 2, True, 7, unigrams=[1.0] * 7, seed=2)[
        0
    ]
    weights = tf.get_variable("weights", initializer=np.ones(7, np.float32))
    rows = tf.concat([drawn, fixed, drawn], 0)
    with tf.control_dependencies([tf.scatter_mul(weights, rows, tf.fill([8], 1.25))]):
        return tf.assign_add(step, 1).op


def queue_model():
    """Rows from a shuffled producer for three epochs, through a queue that shuffles again."""
    row = tf.train.range_input_producer(3, num_epochs=3, seed=7, capacity=2).dequeue()
    step = tf.train.get_or_create_global_step()
    weights = tf.get_variable("weights", initializer=np.zeros(1, np.float64))
    value = weights * 3 + tf.cast(row, tf.float64)
    with tf.control_dependencies([weights.assign(value)]):
        return tf.assign_add(step, 1).op


def shuffling_model():
    """A queue that is filled and emptied by the training step itself, and gives in any order."""
    step = tf.train.get_or_create_global_step()
    queue = tf.RandomShuffleQueue(40, 3, [tf.int64, tf.string], shapes=[[], []], seed=11)
    names = tf.as_string(step + tf.range(3, dtype=tf.int64))
    fill = queue.enqueue_many([step * 10 + tf.range(3, dtype=tf.int64), names])
    weights = tf.get_variable("weights", initializer=np.zeros(1, np.float64))
    with tf.control_dependencies([fill, queue.enqueue([step, "x"])]):
        number, name = queue.dequeue()
    length = tf.cast(tf.strings.length(name) + tf.cast(number, tf.int32), tf.float64)
    with tf.control_dependencies([weights.assign(weights * 3 + length)]):
        return tf.assign_add(step, 1).op


def plain_model():
    """Nothing random, and no queue: but a step isn't compiled before it comes back."""
    rng = np.random.default_rng(1)
    x = tf.constant(rng.normal(size=(16, 10)).astype(np.float32))
    w = tf.get_variable("w", initializer=rng.normal(size=(10, 1)).astype(np.float32))
    loss = tf.reduce_mean(tf.square(tf.sigmoid(tf.matmul(tf.tanh(x), w)) - 0.3))
    step = tf.train.get_or_create_global_step()
    return tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)


MODELS = [dropout_model, plain_model, sampled_model, queue_model, shuffling_model]


def train(model, directory, until, jit, **options):
    """A whole program: goes on from the latest checkpoint and saves after each step."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        update = model()
        saver = tf.train.Saver(exact_resume=True, max_to_keep=2, **options)
        with tf.Session(config=config(jit)) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            latest = tf.train.latest_checkpoint(directory)
            if latest is not None:
                saver.restore(session, latest)
            coordinator = tf.train.Coordinator()
            runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
            threads = tf.train.start_queue_runners(session, coordinator) if runners else []
            step = tf.train.get_global_step()
            while session.run(step) < until:
                session.run(update)
                prefix = os.path.join(directory, "model")
                saver.save(session, prefix, step, write_meta_graph=False)
            saver.wait()
            values = session.run(tf.global_variables())
            coordinator.request_stop()
            coordinator.join(threads)
            return [value.tobytes() for value in values]


@pytest.mark.parametrize("jit", [-1, 0, 1], ids=["interpreted", "when it comes back", "compiled"])
@pytest.mark.parametrize("model", MODELS)
def test_stopped_at_every_step(tmp_path, model, jit):
    whole = train(model, str(tmp_path / "whole"), STEPS, jit)
    for until in range(1, STEPS + 1):
        pieces = train(model, str(tmp_path / "pieces"), until, jit)
    assert pieces == whole


@pytest.mark.parametrize("options", [{"sharded": True}, {"asynchronous": True}], ids=str)
def test_other_savers(tmp_path, options):
    whole = train(dropout_model, str(tmp_path / "whole"), 4, 0)
    train(dropout_model, str(tmp_path / "pieces"), 2, 0, **options)
    assert train(dropout_model, str(tmp_path / "pieces"), 4, 0, **options) == whole


def test_without_it_another_way_is_taken(tmp_path):
    """The test above could fail: the same program whose savers keep variables alone."""
    whole = train(dropout_model, str(tmp_path / "whole"), 4, 0)
    train(dropout_model, str(tmp_path / "pieces"), 2, 0)
    for file in (tmp_path / "pieces").glob("*.session"):
        file.unlink()
    assert train(dropout_model, str(tmp_path / "pieces"), 4, 0) != whole


def queue_and_local(queue, size):
    """A queue of 'q' and a local variable, both with something to keep."""
    local = tf.get_variable("local", initializer=[5.0] * size, collections=["local_variables"])
    tf.get_variable("v", initializer=1.0)
    return queue(), local


@pytest.mark.parametrize(
    ("queue", "size", "message"),
    [
        (
            lambda: tf.FIFOQueue(9, tf.float64, [[]], name="q"),
            1,
            r"queue of \(float64",
        ),
        (lambda: tf.FIFOQueue(9, [tf.float32, tf.int32], name="q"), 1, r"\(float32, int32\)"),
        (lambda: tf.RandomShuffleQueue(9, 0, tf.float32, name="q"), 1, r"q is of another kind"),
        (lambda: tf.FIFOQueue(9, tf.float32, [[]], name="q"), 2, r"local: float32\(1,\) was saved"),
    ],
)
def test_another_graph_is_refused(tmp_path, queue, size, message):
    with tf.Graph().as_default(), tf.Session() as session:
        first, _ = queue_and_local(lambda: tf.FIFOQueue(9, tf.float32, [[]], name="q"), 1)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(first.enqueue(1.0))
        path = tf.train.Saver(exact_resume=True).save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        second, local = queue_and_local(queue, size)
        session.run(local.initializer)
        saver = tf.train.Saver(exact_resume=True)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            saver.restore(session, path)
            session.run(second.size())


def test_what_another_graph_left_is_told(tmp_path, caplog):
    for name in ("noise", "sound"):
        with tf.Graph().as_default(), tf.Session() as session:
            noise = tf.random_normal([], seed=1, name=name)
            variable = tf.get_variable("v", initializer=1.0)
            saver = tf.train.Saver(exact_resume=True)
            latest = tf.train.latest_checkpoint(tmp_path)
            if latest is None:
                session.run(variable.initializer)
                session.run(noise)
                saver.save(session, str(tmp_path / "m"))
            else:
                saver.restore(session, latest)
    assert "state of noise/RandomStandardNormal, which this graph lacks" in caplog.text


def monitored(directory, until):
    """The same in a monitored session, which initialises local variables after it restores."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        update = queue_model()
        weights = tf.global_variables()[1]
        scaffold = tf.train.Scaffold(saver=tf.train.Saver(sharded=True, exact_resume=True))
        hooks = [tf.train.StopAtStepHook(last_step=until)]
        found = []
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=directory, scaffold=scaffold, hooks=hooks, save_checkpoint_steps=1
        ) as session:
            while not session.should_stop():
                found = session.run([update, weights])
        return found[1].tolist()


def test_a_monitored_session_goes_on(tmp_path):
    whole = monitored(str(tmp_path / "whole"), 9)  # all that three epochs have
    for until in (2, 4, 9):
        pieces = monitored(str(tmp_path / "pieces"), until)
    assert pieces == whole
