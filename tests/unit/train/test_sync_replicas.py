"""SyncReplicasOptimizer on a cluster: updates are means, and late gradients are counted."""

import time

import numpy as np
import pytest

import headrace as tf
from tests.unit.train.replicas import Final, servers, train


def model(index, aggregate, total):
    """A model whose gradients say which worker made them: dense ones of w, two of four rows."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=[0.0, 0.0])
    rows = tf.get_variable("rows", initializer=np.zeros([4, 2], np.float32))
    loss = (index + 1.0) * tf.reduce_sum(w) + tf.reduce_sum(tf.gather(rows, [index, 3]))
    inner = tf.train.GradientDescentOptimizer(1.0)
    optimizer = tf.train.SyncReplicasOptimizer(inner, aggregate, total)
    update = optimizer.minimize(loss, step)
    return optimizer, update, [step, w, rows, optimizer.num_dropped()]


def run(aggregate, total, last_step, pause):
    """Train with workers, of which `pause(index)` says how long a batch takes; return the final
    values that the chief sees.
    """
    finals = {}

    def work(index, session):
        optimizer, update, fetches = model(index, aggregate, total)
        finals[index] = Final(fetches)
        hooks = [optimizer.make_session_run_hook(index == 0, num_tokens=0), finals[index]]
        hooks.append(tf.train.StopAtStepHook(last_step=last_step))
        with session(hooks) as s:
            while not s.should_stop():
                time.sleep(pause(index))
                s.run(update)

    with servers(total, ps=2) as targets:
        train(targets, work, ps=2)
    return finals[0].values


def test_an_update_is_the_mean_of_as_many_gradients_as_there_are_workers():
    step, w, rows, _ = run(3, 3, 5, lambda index: 0)
    assert step == 5
    # Each update has three gradients, and each of them this row. As in TensorFlow, tokens do not
    # belong to workers: a quick one may take a second token of the same step.
    np.testing.assert_allclose(rows[3], -5.0)
    assert np.all(rows[:3] >= -5.0)
    thirds = 3 * w[0]
    np.testing.assert_allclose(thirds, np.round(thirds), atol=1e-4)
    assert -5 * 3 < w[0] < -5 * 1


def test_gradients_of_a_slow_worker_are_dropped_and_counted():
    """Worker 2 misses updates; nobody waits for it."""
    step, w, rows, dropped = run(2, 3, 20, lambda index: 0.1 * (index == 2))
    assert step >= 20
    assert dropped >= 1
    np.testing.assert_allclose(rows[3], -step)  # each update has two gradients of this row
    assert -step * 2.5 <= w[0] <= -step * 1.0


def test_the_count_needs_a_graph():
    inner = tf.train.GradientDescentOptimizer(1.0)
    with pytest.raises(ValueError, match="after apply_gradients"):
        tf.train.SyncReplicasOptimizer(inner, 2).num_dropped()


def test_a_step_has_the_name_that_was_asked_for():
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=[0.0])
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2)
    pairs = optimizer.compute_gradients(tf.reduce_sum(w * w))
    assert optimizer.apply_gradients(pairs, step, name="my_step").op.name == "my_step"
