"""Keep all devices of a split network busy by running several steps at once (white paper §7.3):

    python examples/pipeline.py --devices 2 --threads 3

Each device has some of the layers and one core. A step passes through the devices one after the
other, so one step at a time leaves all devices but one idle. Here threads run the same step for
the parts of a large batch: while one part is on the second device, the next is on the first. The
parts add their gradients to accumulators, and one update ends the batch, so the order in which the
parts pass does not matter: the program compares the losses with those of one step at a time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import headrace as tf


def batches(options: argparse.Namespace) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Batches of parts: random points, and a random function of them."""
    rng = np.random.default_rng(options.seed)
    weights = rng.standard_normal((options.units, 1), "float32") / options.units**0.5
    shape = (options.batches, options.parts, options.rows, options.units)
    points = rng.standard_normal(shape, "float32")
    return [[(x, np.sin(x @ weights)) for x in batch] for batch in points]


class Network:
    """Layers of tanh over devices, with accumulators beside the variables. `gradients`, which any
    number of threads may call, adds the gradients of a part and returns its loss.
    """

    def __init__(self, options: argparse.Namespace, devices: int) -> None:
        with tf.Graph().as_default():
            tf.set_random_seed(options.seed)
            x = h = tf.placeholder(tf.float32, [options.rows, options.units], name="x")
            y = tf.placeholder(tf.float32, [options.rows, 1], name="y")
            for layer in range(options.layers):
                with tf.device(f"/cpu:{layer * devices // options.layers}"):
                    last = layer == options.layers - 1
                    units = 1 if last else options.units
                    weights = tf.get_variable(f"weights{layer}", [options.units, units])
                    h = tf.matmul(h, weights)
                    h = h if last else tf.tanh(h)
            with tf.device(f"/cpu:{devices - 1}"):
                loss = tf.reduce_mean(tf.square(h - y))
            variables = tf.trainable_variables()
            found = tf.gradients(loss, variables, colocate_gradients_with_ops=True)
            add, update = [], []
            for variable, gradient in zip(variables, found, strict=True):
                with tf.device(variable.device):
                    zero = tf.zeros_like(variable.initial_value)
                    total = tf.Variable(zero, trainable=False, name=f"{variable.op.name}/total")
                    add.append(tf.assign_add(total, gradient, use_locking=True))
                    moved = tf.assign_sub(variable, total * (options.rate / options.parts))
                    with tf.control_dependencies([moved]):
                        update.append(tf.assign(total, tf.zeros_like(total)))
            # One thread for each cluster: then a device has one core, and devices work in parallel.
            config = tf.ConfigProto(device_count={"CPU": devices}, intra_op_parallelism_threads=1)
            session = tf.Session(config=config)
            session.run(tf.global_variables_initializer())
            run = session.make_callable([loss, tf.group(*add)], [x, y])
            self.gradients = lambda x, y: float(run(x, y)[0])
            self.update = session.make_callable(tf.group(*update))


class Trainer:
    """A network whose batches pass in some number of threads; `losses`, `seconds`: of each."""

    def __init__(self, options: argparse.Namespace, devices: int, threads: int) -> None:
        self.name = f"{devices} devices, {threads} steps at once"
        self._network = Network(options, devices)
        self._pool = ThreadPoolExecutor(threads)
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def train(self, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
        start = time.perf_counter()
        found = list(self._pool.map(lambda part: self._network.gradients(*part), parts))
        self._network.update()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(float(np.mean(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--threads", type=int, default=3, help="steps at the same time")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--rows", type=int, default=128, help="points in a part of a batch")
    parser.add_argument("--parts", type=int, default=8, help="parts of a batch")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    ways = ((1, 1), (options.devices, 1), (options.devices, options.threads))
    trainers = [Trainer(options, devices, threads) for devices, threads in ways]
    # They take turns, so that whatever else the machine does falls on all of them.
    for parts in batches(options):
        for trainer in trainers:
            trainer.train(parts)
    for t in trainers:
        rate = options.parts / statistics.median(t.seconds)
        print(f"{t.name}: loss {t.losses[0]:.6f} to {t.losses[-1]:.6f}, {rate:.1f} steps/s")
    one, single, several = trainers
    pairs = zip(one.losses, several.losses, strict=True)
    print(f"largest relative difference of the losses: {max(abs(a - b) / a for a, b in pairs):.2e}")
    gain = statistics.median(single.seconds) / statistics.median(several.seconds)
    print(f"the pipeline has {gain:.2f} times the throughput of one step at a time")


if __name__ == "__main__":
    main()
