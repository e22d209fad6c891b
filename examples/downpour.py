"""Train replicas of a network as DistBelief's Downpour SGD did, in one plain graph:

    python examples/downpour.py --workers 3 --fetch 5 --push 5

The parameters are on /cpu:0, the parameter server, which updates them by Adagrad. Each worker has a
device with its own copies of them. It takes steps of SGD on its copies and adds up their gradients;
every `push` steps it sends the sum to the parameter server, every `fetch` steps it reads the
parameters again. Nobody waits for anybody: each worker is a thread that runs steps of one session.
DistBelief had this in its parameter server, in C++; here it is variables and assignments.
"""

from __future__ import annotations

import argparse
import threading
from typing import NamedTuple

import numpy as np

import headrace as tf


class Worker(NamedTuple):
    """The operations of a worker: one step on its copies, sending gradients, reading parameters."""

    x: tf.Tensor
    y: tf.Tensor
    step: tf.Operation
    push: tf.Operation
    fetch: tf.Operation


def loss_of(weights: list, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    hidden = tf.tanh(tf.matmul(x, weights[0]) + weights[1])
    return tf.reduce_mean(tf.square(tf.matmul(hidden, weights[2]) - y))


def parameters(options: argparse.Namespace) -> list[tf.Variable]:
    shapes = [(options.inputs, options.units), (options.units,), (options.units, 1)]
    return [
        tf.get_variable(
            f"parameter{i}", s, initializer=tf.random_normal_initializer(0, 0.3, seed=i)
        )
        for i, s in enumerate(shapes)
    ]


def worker_on(device: str, shared: list[tf.Variable], options: argparse.Namespace) -> Worker:
    """A worker's copies and sums, and what it does with them."""
    optimizer = tf.train.AdagradOptimizer(options.server_rate)
    with tf.device(device):
        x = tf.placeholder(tf.float32, [None, options.inputs])
        y = tf.placeholder(tf.float32, [None, 1])
        copies = [tf.Variable(tf.zeros(p.shape), trainable=False) for p in shared]  # fetched first
        sums = [tf.Variable(tf.zeros(p.shape), trainable=False) for p in shared]
        gradients = tf.gradients(loss_of(copies, x, y), copies)
        with tf.control_dependencies(gradients):  # all of them read the copies first
            step = [
                change
                for copy, total, g in zip(copies, sums, gradients, strict=True)
                for change in (tf.assign_sub(copy, options.rate * g), tf.assign_add(total, g))
            ]
        fetch = [tf.assign(copy, p) for copy, p in zip(copies, shared, strict=True)]
    with tf.device("/cpu:0"):
        sent = [tf.identity(total) for total in sums]
        push = optimizer.apply_gradients(zip(sent, shared, strict=True))
    with tf.device(device), tf.control_dependencies([push]):
        cleared = [tf.assign(total, tf.zeros_like(total)) for total in sums]
    return Worker(x, y, tf.group(*step), tf.group(*cleared), tf.group(*fetch))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--fetch", type=int, default=5, help="steps between two reads")
    parser.add_argument("--push", type=int, default=5, help="steps between two updates")
    parser.add_argument("--steps", type=int, default=300, help="of each worker")
    parser.add_argument("--rows", type=int, default=32, help="examples in a batch")
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--units", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.02, help="of a worker's own steps")
    parser.add_argument("--server_rate", type=float, default=0.05, help="of Adagrad")
    options = parser.parse_args()

    rng = np.random.default_rng(1)
    points = rng.standard_normal((2000, options.inputs), "float32")
    values = np.sin(0.4 * points @ rng.standard_normal((options.inputs, 1), "float32"))

    with tf.device("/cpu:0"):
        shared = parameters(options)
        all_x, all_y = tf.constant(points), tf.constant(values)
        loss = loss_of(shared, all_x, all_y)
    workers = [worker_on(f"/cpu:{i + 1}", shared, options) for i in range(options.workers)]
    pushes = [0] * options.workers

    def work(session: tf.Session, index: int) -> None:
        own, worker = np.random.default_rng(index), workers[index]
        for step in range(options.steps):
            if step % options.fetch == 0:
                session.run(worker.fetch)
            rows = own.integers(len(points), size=options.rows)
            session.run(worker.step, {worker.x: points[rows], worker.y: values[rows]})
            if step % options.push == options.push - 1:
                session.run(worker.push)
                pushes[index] += 1

    config = tf.ConfigProto(device_count={"CPU": options.workers + 1})
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        before = session.run(loss)
        threads = [threading.Thread(target=work, args=(session, i)) for i in range(options.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = session.run(loss)
    print(f"{options.workers} workers made {sum(pushes)} updates, without waiting for each other")
    print(f"loss from {before:.4f} to {after:.4f}")


if __name__ == "__main__":
    main()
