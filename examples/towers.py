"""Train replicas of a network in one graph and average their gradients (white paper §7.1):

    python examples/towers.py --towers 2

Each tower has a device and computes the gradients of its share of the batch. The variables are on
/cpu:0, which averages the gradients and updates. One step with towers computes the same as one
step with the whole batch on one device: the program trains both ways and prints the losses.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import headrace as tf


def batches(options: argparse.Namespace) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random points, and the class of each by a fixed random network."""
    rng = np.random.default_rng(options.seed)
    first = rng.standard_normal((options.inputs, 32), "float32")
    second = rng.standard_normal((32, options.classes), "float32")
    points = rng.standard_normal((options.steps, options.rows, options.inputs), "float32")
    return [(x, (np.tanh(x @ first) @ second).argmax(1).astype("int32")) for x in points]


def tower_loss(options: argparse.Namespace, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The loss of a share of the batch; all towers use the same variables."""
    h = x
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
        for i, units in enumerate([options.units, options.units, options.classes]):
            with tf.device("/cpu:0"):
                fan_in = h.shape[1].value
                initial = tf.random_normal_initializer(stddev=fan_in**-0.5, seed=i)
                weights = tf.get_variable(f"weights{i}", [fan_in, units], initializer=initial)
                bias = tf.get_variable(f"bias{i}", [units], initializer=tf.zeros_initializer())
            h = tf.matmul(h if i == 0 else tf.nn.relu(h), weights) + bias
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h))


def average(gradients: list[tf.Tensor]) -> tf.Tensor:
    return gradients[0] if len(gradients) == 1 else tf.add_n(gradients) / len(gradients)


def trainer(options: argparse.Namespace, towers: int):
    """A function that trains on one batch and returns the loss."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [options.rows, options.inputs], name="x")
        labels = tf.placeholder(tf.int32, [options.rows], name="labels")
        shares = zip(tf.split(x, towers), tf.split(labels, towers), strict=True)
        losses, found = [], []
        for tower, share in enumerate(shares):
            with tf.device(f"/cpu:{tower}"), tf.name_scope(f"tower{tower}"):
                losses.append(tower_loss(options, *share))
                variables = tf.trainable_variables()
                found.append(tf.gradients(losses[-1], variables))
        with tf.device("/cpu:0"):
            averages = [average(list(each)) for each in zip(*found, strict=True)]
            loss = average(losses)
            # No tower reads a variable after its update.
            with tf.control_dependencies(averages):
                optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
                step = optimizer.apply_gradients(zip(averages, variables, strict=True))
        session = tf.Session(config=tf.ConfigProto(device_count={"CPU": towers}))
        session.run(tf.global_variables_initializer())
        run = session.make_callable([loss, step], [x, labels])
    return lambda points, classes: float(run(points, classes)[0])


def timed(function, *arguments) -> tuple[float, float]:
    """The result of a call, and its milliseconds."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--towers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=512, help="points in a batch")
    parser.add_argument("--inputs", type=int, default=64)
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    whole, split = trainer(options, 1), trainer(options, options.towers)
    # They take turns, so that whatever else the machine does falls on both.
    runs = [(timed(whole, *batch), timed(split, *batch)) for batch in batches(options)]
    every = max(1, options.steps // 5)
    for i in (*range(0, options.steps - 1, every), options.steps - 1):
        losses = f"loss {runs[i][0][0]:.6f} on one device, {runs[i][1][0]:.6f} in towers"
        print(f"step {i + 1:4}: {losses}")
    apart = max(abs(a[0] - b[0]) / abs(a[0]) for a, b in runs)
    print(f"largest relative difference of the losses: {apart:.2e}")
    one, several = (statistics.median(r[i][1] for r in runs) for i in (0, 1))
    print(f"a step takes {one:.2f} ms on one device, {several:.2f} ms in {options.towers} towers")


if __name__ == "__main__":
    main()
