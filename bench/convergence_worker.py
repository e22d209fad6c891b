"""A task of bench/convergence.py: a parameter server, or a worker that trains the digits and tells
what it has seen. In: a request. Out: a dictionary.

A batch takes `batch_secs` seconds of the run's clock, by sleeping: on a machine with few cores,
workers that compute would measure each other. One batch of every ten, at a random place among them,
takes `slow` times as long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import headrace as tf
import headrace.horovod as hvd
from headrace._src.collectives.coordinator import CoordinatorService
from headrace._src.core.config import settings
from headrace._src.train.replicas import reexecution

_MEET = 300  # seconds: how long processes wait for each other on a busy host


@cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    order = np.random.default_rng(1).permutation(len(images))
    images, labels = images[order], digits.target[order].astype(np.int32)
    return images[360:], labels[360:], images[:360], labels[:360]


class Model:
    """The network. A batch takes its time between the read of the variables and the gradients.

    pause: the seconds of a batch, to be fed. images, labels: the batch. batch: the same images once
    the time has passed; to be fed instead where no time should pass.
    """

    def __init__(self, getter: Any, sleep: Any) -> None:
        self.pause = tf.placeholder(tf.float64, [])
        self.images = tf.placeholder(tf.float32, [None, 64])
        self.labels = tf.placeholder(tf.int32, [None])
        weights = []
        with tf.variable_scope("model", custom_getter=getter):
            for i, (rows, columns) in enumerate(((64, 64), (64, 10))):
                initial = tf.truncated_normal_initializer(stddev=rows**-0.5, seed=i)
                w = tf.get_variable(f"w{i}", [rows, columns], initializer=initial)
                bias = tf.get_variable(f"b{i}", [columns], initializer=tf.zeros_initializer())
                weights.append((w.read_value(), bias.read_value()))
        with tf.control_dependencies([value for pair in weights for value in pair]):
            slept = tf.py_func(sleep, [self.pause], tf.bool)
        with tf.control_dependencies([slept]):
            self.batch = x = tf.identity(self.images)
        for i, (w, bias) in enumerate(weights):
            x = tf.matmul(x if i == 0 else tf.nn.relu(x), w) + bias
        self.loss = tf.losses.sparse_softmax_cross_entropy(self.labels, x)
        right = tf.equal(tf.argmax(x, 1, output_type=tf.int32), self.labels)
        self.accuracy = tf.reduce_mean(tf.cast(right, tf.float32))


class Sleeper:
    """Sleeps, and knows how much longer that took than asked."""

    def __init__(self, clock: Any) -> None:
        self.clock, self.asked, self.slept = clock, 0.0, 0.0

    def __call__(self, seconds: Any) -> Any:
        began = self.clock.monotonic()
        self.clock.sleep(float(seconds))
        self.asked, self.slept = self.asked + seconds, self.slept + self.clock.monotonic() - began
        return np.True_


class Curve(tf.train.SessionRunHook):
    """Measures the accuracy on the test images several times per second, and at the end."""

    def __init__(self, accuracy: Any, feeds: Any, step: Any, clock: Any) -> None:
        self.fetches, self.feeds, self.clock = [accuracy, step], feeds, clock
        self.points: list[tuple[float, int, float]] = []
        self.began = self.last = float("inf")

    def begin_now(self) -> None:
        """Count the time from here."""
        self.began = self.last = self.clock.monotonic()

    def after_run(self, run_context, run_values):
        if self.clock.monotonic() - self.last > 0.2:
            self.look(run_context.session)

    def look(self, session):
        accuracy, step = session.run(self.fetches, self.feeds)
        self.last = self.clock.monotonic()
        self.points.append((self.last - self.began, int(step), float(accuracy)))

    def end(self, session):
        self.look(session)


class TimedReexecutionHook(tf.train.ReexecutionHook):
    """The hook, on a clock of ours."""

    def __init__(self, optimizer: Any, patience: float, clock: Any) -> None:
        super().__init__(optimizer, patience)
        self.clock = reexecution.time = clock

    def after_create_session(self, session, coord):
        super().after_create_session(session, TimedCoordinator(coord, self.clock))


class TimedCoordinator:
    """What the hook's thread needs of a coordinator, on a clock of ours."""

    def __init__(self, coord: Any, clock: Any) -> None:
        self.coord, self.clock = coord, clock

    def wait_for_stop(self, timeout: float) -> bool:
        if not self.coord.should_stop():
            self.clock.sleep(timeout)
        return self.coord.should_stop()


def optimizer_of(request: dict[str, Any], index: int, getter: Any, clock: Any) -> tuple[Any, Any]:
    """The optimizer of a way to train, and a function of its operation that makes its hooks."""
    workers, way, rate = request["workers"], request["way"], request["rate"]
    chief = index == 0
    if way == "average":
        inner = tf.train.GradientDescentOptimizer(rate)
        made = tf.contrib.opt.ModelAverageOptimizer(
            inner, workers, chief, getter, interval_steps=request["interval"]
        )
        return made, lambda train: [made.make_session_run_hook()]
    if way == "async":
        made = tf.train.GradientDescentOptimizer(rate)
        return made, lambda train: [tf.train.StalenessHook(train, every_n_steps=10**9)]
    # A mean of n gradients allows a rate that is n times as high, up to some n.
    needed = workers - request.get("backups", 0)
    inner = tf.train.GradientDescentOptimizer(min(rate * needed, request.get("most", np.inf)))
    if way == "allreduce":
        made = hvd.DistributedOptimizer(inner)
        return made, lambda train: [hvd.BroadcastGlobalVariablesHook(0)]
    made = tf.train.SyncReplicasOptimizer(inner, needed, workers)

    def hooks(train):
        found = [made.make_session_run_hook(chief, num_tokens=0)]
        if chief:
            found.append(tf.train.StalenessHook(train, every_n_steps=10**9, optimizer=made))
            if way == "reactive":
                found.append(TimedReexecutionHook(made, request["patience"], clock))
        return found

    return made, hooks


def durations(request: dict[str, Any], rng: np.random.Generator) -> Iterator[float]:
    """How long each batch of a worker takes."""
    while True:
        slow = rng.integers(10) if request["straggles"] else -1
        for i in range(10):
            yield request["batch_secs"] * (request["slow"] if i == slow else 1.0)


def work(
    request: dict[str, Any], index: int, target: str, together: Any, clock: Any
) -> dict[str, Any]:
    """Train. together: a barrier of all workers, so that they begin at the same time."""
    own = f"/job:worker/task:{index}"
    way, workers = request["way"], request["workers"]
    counted = way in ("average", "allreduce")  # each worker makes the same number of batches
    getter = tf.contrib.opt.ModelAverageCustomGetter(own) if way == "average" else None
    setter = tf.train.replica_device_setter(ps_tasks=request["ps"], worker_device=own)
    train_x, train_y, test_x, test_y = data()
    with tf.device(None if way == "allreduce" else setter):
        step = tf.train.get_or_create_global_step()
        sleep = Sleeper(clock)
        network = Model(getter, sleep)
        made, make_hooks = optimizer_of(request, index, getter, clock)
        train = made.minimize(network.loss, step)
    updates = request["batches"]
    if way != "async":
        updates //= workers - request.get("backups", 0)
    hooks = make_hooks(train)
    if not counted:
        hooks.append(tf.train.StopAtStepHook(last_step=updates))
    curve = Curve(network.accuracy, {network.batch: test_x, network.labels: test_y}, step, clock)
    rng = np.random.default_rng([request["seed"], index])
    waits, times = durations(request, rng), []
    with tf.train.MonitoredTrainingSession(
        target,
        is_chief=index == 0 or way == "allreduce",
        hooks=hooks + ([curve] if index == 0 else []),
        config=None if way == "allreduce" else tf.ConfigProto(device_filters=["/job:ps", own]),
        save_summaries_steps=None,
    ) as session:
        if together is not None:
            together.wait(_MEET)
        curve.begin_now()
        done = 0
        while not session.should_stop() and not (counted and done >= updates):
            if index == request.get("dies") and done == request["dies_at"]:
                os.kill(os.getpid(), signal.SIGKILL)
            began = clock.monotonic()
            rows = rng.integers(len(train_x), size=32)
            feeds = {network.images: train_x[rows], network.labels: train_y[rows]}
            session.run(train, {**feeds, network.pause: next(waits)})
            times.append(clock.monotonic() - began)
            done += 1
    found: dict[str, Any] = {"index": index, "done": done, "times": times, "curve": curve.points}
    found["overslept"] = sleep.slept / sleep.asked - 1
    for hook in hooks:
        if isinstance(hook, tf.train.StalenessHook):
            found["staleness"] = hook.mean
            found["dropped"] = hook.dropped
        elif isinstance(hook, tf.train.ReexecutionHook):
            found["repeated"] = hook.repeated
    return found


def work_elastically(
    request: dict[str, Any], index: int, together: Any, clock: Any
) -> dict[str, Any]:
    """Train by all-reduce, and go on without ranks that die. An update counts as many batches as
    there are ranks, and its rate is as many times the rate of one gradient.
    """
    train_x, train_y, test_x, test_y = data()
    step = tf.train.get_or_create_global_step()
    sleep = Sleeper(clock)
    network = Model(None, sleep)
    rate = tf.placeholder(tf.float32, [])
    made = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(rate))
    train = made.minimize(network.loss, step)
    curve = Curve(network.accuracy, {network.batch: test_x, network.labels: test_y}, step, clock)
    rng = np.random.default_rng([request["seed"], index])
    waits, times, epochs = durations(request, rng), [], []
    done = 0

    @hvd.elastic.run
    def go_on(state: Any) -> None:
        nonlocal done
        epochs.append((clock.monotonic() - curve.began, hvd.size(), state.counted))
        while state.counted < request["batches"]:
            if index == request.get("dies") and done == request["dies_at"]:
                os.kill(os.getpid(), signal.SIGKILL)
            began = clock.monotonic()
            rows = rng.integers(len(train_x), size=32)
            feeds = {network.images: train_x[rows], network.labels: train_y[rows]}
            feeds |= {network.pause: next(waits), rate: request["rate"] * hvd.size()}
            session.run(train, feeds)
            times.append(clock.monotonic() - began)
            done += 1
            state.counted += hvd.size()
            state.update += 1
            if index == 0 and clock.monotonic() - curve.last > 0.2:
                curve.look(session)
            if state.update % request["commit"] == 0:
                state.commit()

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, counted=0, update=0)
        if together is not None:
            together.wait(_MEET)
        curve.begin_now()
        go_on(state)
        if index == 0:
            curve.look(session)
    found = {"index": index, "done": done, "times": times, "curve": curve.points}
    return {**found, "overslept": sleep.slept / sleep.asked - 1, "epochs": epochs}


def run_task(request: dict[str, Any], answers: Any, together: Any, clock: Any) -> None:
    """Be a task, in a process that was forked for it."""
    index, target = request["index"], ""
    if request["job"] == "coordinator":
        CoordinatorService(request["cluster"]["coordinator"][0], request["workers"], least=1)
        threading.Event().wait()
    if "late" in request:
        clock.sleep(request["late"])
    if request["way"] in ("allreduce", "elastic"):
        # By TCP: ranks that share memory look at it fifty times a second while they wait, and the
        # processes would hardly ever be quiet on a busy host.
        os.environ.update(
            HEADRACE_RANK=str(index),
            HEADRACE_RANKS=str(request["workers"]),
            HEADRACE_RENDEZVOUS=request["cluster"]["worker"][0],
            HEADRACE_TRANSPORT="tcp",
        )
        if request["way"] == "elastic":
            os.environ.update(
                HEADRACE_RENDEZVOUS=request["cluster"]["coordinator"][0],
                HEADRACE_RENDEZVOUS_SERVED="1",
            )
        settings.cache_clear()
        hvd.init()
    else:
        server = tf.train.Server(request["cluster"], request["job"], index)
        if request["job"] == "ps":
            server.join()
            os._exit(0)
        target = server.target
    if request["way"] == "elastic":
        answers.send(work_elastically(request, index, together, clock))
    else:
        answers.send(work(request, index, target, together, clock))
    if hvd.is_initialized():
        with contextlib.suppress(Exception):  # the others may have left before
            hvd.shutdown()
    os._exit(0)  # nothing of the parent's is to be ended here
