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
    """Layers of tanh over devices, with accumulators beside the variables.

    gradients(x, y): add the gradients of one part of a batch, and return its loss. Any number of
    threads may call it. update(): move the variables and clear the accumulators.
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


def train(network: Network, data, threads: int) -> tuple[list[float], float]:
    """The loss of each batch, and the seconds of all but the first two, which are compiled."""
    losses = []
    with ThreadPoolExecutor(threads) as pool:
        for number, parts in enumerate(data):
            if number == min(2, len(data) - 1):
                start = time.perf_counter()
            losses.append(float(np.mean(list(pool.map(lambda p: network.gradients(*p), parts)))))
            network.update()
    return losses, time.perf_counter() - start


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

    data = batches(options)
    count = len(data[min(2, len(data) - 1) :]) * options.parts
    results = {}
    for name, devices, threads in (
        ("one device, one step at a time", 1, 1),
        (f"{options.devices} devices, one step at a time", options.devices, 1),
        (f"{options.devices} devices, {options.threads} steps at once", options.devices, options.threads),
    ):
        losses, seconds = results[name] = train(Network(options, devices), data, threads)
        print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, {count / seconds:.1f} steps/s")
    (first, _), (_, single), (last, several) = results.values()
    apart = max(abs(a - b) / abs(a) for a, b in zip(first, last, strict=True))
    print(f"largest relative difference of the losses: {apart:.2e}")
    print(f"the pipeline has {single / several:.2f} times the throughput of one step at a time")


if __name__ == "__main__":
    main()
