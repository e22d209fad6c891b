"""What MonitoredTrainingSession does without help when a task of its cluster is lost."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import headrace as tf
from tests.faults.clusters.processes import Cluster, free_ports
from tests.faults.clusters.unpickling import forbid_unpickling, noted


def last_saved(cluster):
    return cluster.events("saved")[-1][2]["step"]


def created(cluster, index, since):
    """The steps from which the sessions of a worker began since a time."""
    return [
        e["step"] for t, task, e in cluster.events("created") if t > since and task.index == index
    ]


def lost(cluster, since):
    return {task.name for t, task, _ in cluster.events("lost") if t > since}


@pytest.mark.timeout(300)
def test_tasks_that_are_lost_one_after_the_other(tmp_path):
    """Without device filters: each session has all tasks. No process unpickles anything."""
    environment = {
        "HEADRACE_HEARTBEATS_MISSED": "20",  # a busy machine loses nobody
        "PYTHONPATH": forbid_unpickling(tmp_path / "hook"),
    }
    with Cluster(tmp_path, 2, 2, {"filters": False}, **environment) as cluster:
        cluster.start_all()
        cluster.wait_applied(5, 0.0, limit=120)

        # A worker: the chief's session is not lost and restores nothing.
        at = cluster.kill("worker", 1)
        cluster.wait_applied(10, at, [0])
        cluster.start("worker", 1)
        cluster.wait_applied(5, at)
        assert not lost(cluster, at) and not created(cluster, 0, at)
        assert created(cluster, 1, at)[0] > 0  # the ps have kept their variables

        # The chief: the other worker goes on, and the new chief restores.
        at = cluster.kill("worker", 0)
        saved = last_saved(cluster)
        cluster.wait_applied(10, at, [1])
        assert not lost(cluster, at)
        cluster.start("worker", 0)
        cluster.wait_applied(5, at)
        restored = [line for line in cluster.tasks["worker", 0].errors if "Restoring" in line]
        assert restored[0].endswith(f"model.ckpt-{saved}")

        # A ps that is stopped: all sessions are lost, and the chief restores.
        at = cluster.kill("ps", 1, signal.SIGSTOP)
        cluster.wait(lambda: lost(cluster, at) == {"worker0", "worker1"}, "both notice")
        saved = last_saved(cluster)
        cluster.kill("ps", 1)
        cluster.start("ps", 1)
        cluster.wait_applied(5, time.monotonic())
        assert created(cluster, 0, at)[0] >= saved

        assert {task.pid for task in cluster.all} <= noted(tmp_path / "hook", "watched")
        assert not noted(tmp_path / "hook", "unpickled")


@pytest.mark.timeout(300)
def test_a_worker_that_starts_before_the_chief_says_what_it_waits_for(tmp_path):
    with Cluster(tmp_path, ps=1, workers=2) as cluster:
        early = cluster.start("worker", 1)
        told = lambda text: [line for line in early.errors if text in line]  # noqa: E731
        cluster.wait(lambda: told("job_name='ps', task_index=0"), "it waits for the ps")
        cluster.start("ps", 0)
        cluster.wait(lambda: told("waiting for the chief"), "it waits for the chief")
        assert not early.of("created")
        cluster.start("worker", 0)
        cluster.wait_applied(3, 0.0)


# -- Synchronous training --------------------------------------------------------------------------


class Synchronous:
    """Between-graph replication with accumulators: both workers' gradients make one update of
    variables on two ps, each of which counts the updates.
    """

    SIZE = 1 << 18  # elements: a save takes longer than a step

    def __init__(self, cluster, index):
        self.graph = tf.Graph()
        ps = [f"/job:ps/task:{i}" for i in range(2)]
        with self.graph.as_default():
            with tf.device(ps[0]):
                self.step = tf.train.get_or_create_global_step()
                # One for each worker: a fast one must not take the token of the other.
                tokens = [
                    tf.FIFOQueue(9, [tf.int64], [[]], shared_name=f"tokens{i}") for i in range(2)
                ]
            ones = tf.ones([self.SIZE]) * tf.cast(index * 2, tf.float32)  # mean of 0 and 2
            pushes, updates = [], []
            local = tf.placeholder(tf.int64, [])
            for i, device in enumerate(ps):
                with tf.device(device):
                    weights = tf.get_variable(
                        f"weights{i}", [self.SIZE], initializer=tf.zeros_initializer()
                    )
                    gradients = tf.ConditionalAccumulator(
                        tf.float32, [self.SIZE], shared_name=f"gradients{i}"
                    )
                    pushes.append(gradients.apply_grad(ones, local))
                    updates.append(tf.assign_add(weights, gradients.take_grad(2)))
            with tf.control_dependencies(updates):
                updated = tf.assign_add(self.step, 1)
            with tf.control_dependencies([updated]):
                self.update = tf.group(*(q.enqueue(tf.cast(updated, tf.int64)) for q in tokens))
            with tf.control_dependencies(pushes):
                self.train = tokens[index].dequeue()
            self.local = local
            self.saver = tf.train.Saver(sharded=True, max_to_keep=1000)
            self.initialise = tf.global_variables_initializer()


def test_sharded_checkpoints_of_synchronous_training_have_one_step(tmp_path):
    ports = [f"127.0.0.1:{port}" for port in free_ports(4)]
    cluster = {"ps": ports[:2], "worker": ports[2:]}
    servers = [tf.train.Server(cluster, job, i) for job in cluster for i in range(2)]
    wrong = []
    steps, every = 24, 3

    def work(index, model, session):
        now = 0
        for _ in range(steps):
            now = session.run(model.train, {model.local: now})
            if index == 0 and now % every == 0:
                model.saver.save(session, str(tmp_path / "model"), int(now), write_meta_graph=False)

    def guarded(function, *args):
        try:
            function(*args)
        except Exception as error:
            wrong.append(error)

    try:
        models = [Synchronous(cluster, i) for i in range(2)]
        sessions = [
            tf.Session(server.target, graph=model.graph)
            for server, model in zip(servers[2:], models, strict=True)
        ]
        sessions[0].run(models[0].initialise)
        update = lambda: [sessions[0].run(models[0].update) for _ in range(steps)]  # noqa: E731
        threads = [
            threading.Thread(target=guarded, args=(work, i, models[i], sessions[i]))
            for i in range(2)
        ]
        threads.append(threading.Thread(target=guarded, args=(update,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "it hangs"
        assert not wrong, wrong
        for session in sessions:
            session.close()
    finally:
        for server in servers:
            server.stop()
    saved = sorted(name for name in os.listdir(tmp_path) if name.endswith(".index"))
    assert len(saved) == steps // every
    for name in saved:
        reader = tf.train.load_checkpoint(str(tmp_path / name.removesuffix(".index")))
        step = reader.get_tensor("global_step")
        for variable in ("weights0", "weights1"):
            values = reader.get_tensor(variable)
            assert np.all(values == step), (name, variable, step, values)
