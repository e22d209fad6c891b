"""Training by several workers: how many backup workers pay, how stale updates are, and batches that
are computed again.
"""

import threading
import time

import numpy as np
import pytest

import headrace as tf
import headrace.cluster
from headrace._src.train.replicas import tuning
from tests.unit.train.replicas import Final, servers, train


def stragglers(share, workers=4, slow=5.0, batches=300):
    """Times of batches, a share of which take several times longer."""
    random = np.random.default_rng(3)
    return [np.where(random.random(batches) < share, slow, 1.0) for _ in range(workers)]


# -- Predictions -----------------------------------------------------------------------------------


def test_equal_workers_need_no_backup():
    found = headrace.cluster.predict_sync([[2.0]] * 3, 0)
    assert (found.step_secs, found.dropped) == (pytest.approx(2.0), 0.0)
    assert found.batches_per_sec == pytest.approx(1.5)
    assert headrace.cluster.predict_sync([[2.0]] * 3, 0, overhead=0.5).step_secs == 2.5
    assert headrace.cluster.choose_backups([[2.0]] * 3).backups == 0


def test_a_step_is_as_slow_as_the_slowest_worker_that_it_needs():
    times = [[1.0], [1.0], [1.0], [10.0]]
    assert headrace.cluster.predict_sync(times, 0).step_secs == pytest.approx(10.0)
    one = headrace.cluster.predict_sync(times, 1)
    # Each update makes four tokens, and each token is a batch: the workers compute 3.1 per second.
    assert one.step_secs == pytest.approx(4 / 3.1, rel=0.12)
    assert one.dropped == pytest.approx(0.25, abs=0.02)
    assert headrace.cluster.choose_backups(times).backups == 1


def test_the_mean_of_the_slowest_without_backups():
    """Without backups, a step takes the maximum over workers, whose mean is known."""
    share = 0.1
    found = headrace.cluster.predict_sync(stragglers(share, batches=5000), 0)
    assert found.step_secs == pytest.approx(1 + 4 * (1 - (1 - share) ** 4), rel=0.05)


@pytest.mark.parametrize(("share", "backups"), [(0.0, 0), (0.01, 0), (0.15, 1)])
def test_the_choice_follows_the_share_of_stragglers(share, backups):
    assert headrace.cluster.choose_backups(stragglers(share)).backups == backups


@pytest.mark.parametrize(
    ("times", "backups", "message"),
    [
        ([], 0, "at least one worker"),
        ([[1.0], []], 0, "worker 1 has no times"),
        ([[1.0], [0.0]], 0, "must be positive"),
        ([[1.0], [float("nan")]], 0, "must be positive"),
        ([[1.0], [1.0]], 2, "between 0 and 1"),
    ],
)
def test_mistakes_of_predictions(times, backups, message):
    with pytest.raises(ValueError, match=message):
        headrace.cluster.predict_sync(times, backups)


# -- Training --------------------------------------------------------------------------------------


def test_staleness_is_measured(tmp_path):
    """Two asynchronous workers: each update comes after what the other did meanwhile."""
    hooks = {}

    def work(index, session):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=0.0)
        update = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(w - 1), step)
        directory = str(tmp_path / str(index))
        hooks[index] = tf.train.StalenessHook(update, every_n_steps=20, output_dir=directory)
        with session([hooks[index], tf.train.StopAtStepHook(last_step=60)]) as s:
            while not s.should_stop():
                s.run([update, w])
                if not s.should_stop():
                    s.run(w)  # not an update

    with servers(2) as targets:
        train(targets, work)
    tf.summary.FileWriterCache.clear()
    updates = sum(hook.counts.total() for hook in hooks.values())
    assert 60 <= updates <= 62
    assert all(0 <= min(hook.counts) <= max(hook.counts) < 62 for hook in hooks.values())
    tags = {
        value.tag
        for path in tmp_path.glob("*/events*")
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert tags == {"staleness/mean", "staleness/max"}


@pytest.mark.parametrize("use_resource", [False, True])
def test_staleness_counts_from_the_read_of_the_variables(use_resource):
    """Worker 0 reads the variables; worker 1 makes three updates; then worker 0 makes its own."""
    hooks, has_read, others_are_done = {}, threading.Event(), threading.Event()

    def pause(index):
        if index == 0:
            has_read.set()
            assert others_are_done.wait(30)
        return np.float32(0)

    def work(index, session):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=1.0, use_resource=use_resource)
        value = w.read_value()
        with tf.control_dependencies([value]):
            computed = tf.py_func(pause, [index], tf.float32)
        loss = tf.square(value) + computed
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        hooks[index] = tf.train.StalenessHook(update)
        with session([hooks[index]]) as s:
            if index == 0:
                s.run(update)
                return
            assert has_read.wait(30)
            for _ in range(3):
                s.run(update)
            others_are_done.set()

    with servers(2) as targets:
        train(targets, work)
    assert dict(hooks[0].counts) == {3: 1}
    assert dict(hooks[1].counts) == {0: 3}


def test_one_worker_is_never_stale():
    step = tf.train.get_or_create_global_step()
    update = tf.assign_add(step, 1)
    hook = tf.train.StalenessHook(update)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(5):
            session.run(update)
    assert dict(hook.counts) == {0: 5}
    with pytest.raises(ValueError, match="every_n_steps must be positive"):
        tf.train.StalenessHook(update, every_n_steps=0)


def synchronous(aggregate, total, steps, pause, hook=None):
    """Train synchronously; return the final values of the chief and its hook."""
    chief = {}

    def work(index, session):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=0.0)
        inner = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.SyncReplicasOptimizer(inner, aggregate, total)
        update = optimizer.minimize(tf.square(w - 1), step)
        hooks = [optimizer.make_session_run_hook(index == 0, num_tokens=0)]
        if index == 0:
            chief["final"] = Final([step, w, optimizer.num_dropped()])
            chief["optimizer"] = optimizer
            chief["hook"] = hook and hook(optimizer, update)
            hooks += [chief["final"], *([chief["hook"]] if hook else [])]
        hooks.append(tf.train.StopAtStepHook(last_step=steps))
        number = 0
        with session(hooks) as s:
            while not s.should_stop():
                time.sleep(pause(index, number))
                number += 1
                s.run(update)

    with servers(total) as targets:
        train(targets, work)
    return chief


def test_batches_of_a_slow_worker_are_computed_again():
    def pause(index, number):
        return 0.3 if index == 2 and number % 10 == 9 else 0.01

    def hook(optimizer, update):
        return tf.train.ReexecutionHook(optimizer, patience=3)

    chief = synchronous(3, 3, 40, pause, hook)
    assert chief["hook"].repeated >= 1
    step, w, dropped = chief["final"].values
    assert step >= 40
    assert dropped >= 1
    assert w == pytest.approx(1.0, abs=1e-2)


def test_the_number_of_backup_workers_is_chosen():
    """Worker 2 is slow in all batches."""
    chief = synchronous("auto", 3, 120, lambda index, number: 0.02 if index == 2 else 0.002)
    assert chief["optimizer"]._tuning.chosen >= 1
    assert chief["final"].values[2] >= 1


def test_late_gradients_are_reported():
    def hook(optimizer, update):
        return tf.train.StalenessHook(update, every_n_steps=10, optimizer=optimizer)

    chief = synchronous(1, 2, 20, lambda index, number: 0.02 * index, hook)
    assert chief["hook"].dropped >= chief["final"].values[2] >= 1  # it looks later


def test_mistakes_of_replicas():
    inner = tf.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="'auto' with total_num_replicas"):
        tf.train.SyncReplicasOptimizer(inner, "auto")
    with pytest.raises(ValueError, match="must be a number"):
        tf.train.SyncReplicasOptimizer(inner, "some", 3)
    optimizer = tf.train.SyncReplicasOptimizer(inner, 2)
    with pytest.raises(ValueError, match="patience must be more than 1"):
        tf.train.ReexecutionHook(optimizer, 1)
    with pytest.raises(ValueError, match="should be called before"):
        tf.train.ReexecutionHook(optimizer).begin()


def test_choices_become_rare_while_nothing_changes(monkeypatch):
    """A session that hands the chief the times of two workers, as many as it asks for."""
    chosen = []

    def choose(times):
        chosen.append(sum(map(len, times)))
        return headrace.cluster.SyncPrediction(int(len(chosen) > 3), 1.0, 0.0, 1.0)

    monkeypatch.setattr(tuning, "choose_backups", choose)
    made = tuning.BackupTuning(2)
    made._held, made._number, made._receive, made._set, made._given = range(5)

    class Session:
        def run(self, fetch, feeds=None):
            if fetch == made._held:
                return 2
            return [b"a", b"b"], np.ones([2, 10])

    after = []
    for batches in range(10, 1000, 10):
        made._choose(Session())
        if len(chosen) > len(after):
            after.append(batches)
    assert after[:4] == [50, 150, 350, 750]
    assert made.chosen == 1 and after[4] == 800  # it has changed
