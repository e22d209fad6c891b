"""Split a stack of LSTM layers over devices, layer by layer (white paper §7.2, figure 8):

    python examples/model_parallel_lstm.py --layers 4 --devices 2

Each layer, its weights and its gradients are on one device, which sends the layer's outputs
to the device of the next layer and receives their gradients. The network learns to repeat what it
read some steps ago. The program trains it on one device and split, and prints both.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import headrace as tf

DELAY = 3  # steps between a symbol and its repetition


def batches(options: argparse.Namespace) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random symbols, and the same ones later, as [rows, time]."""
    rng = np.random.default_rng(options.seed)
    shape = (options.rows, options.time + DELAY)
    texts = [rng.integers(0, options.symbols, shape, "int32") for _ in range(options.steps)]
    return [(text[:, DELAY:], text[:, :-DELAY]) for text in texts]


def device_of(layer: int, layers: int, devices: int) -> str:
    """The device of a layer: the first ones are on the first device, and so on."""
    return f"/cpu:{layer * devices // layers}"


def build(options: argparse.Namespace, devices: int):
    """The placeholders, the loss and the operation that trains."""
    last = f"/cpu:{devices - 1}"
    words = tf.placeholder(tf.int32, [options.rows, options.time], name="words")
    targets = tf.placeholder(tf.int32, [options.rows, options.time], name="targets")
    with tf.device("/cpu:0"):
        table = tf.get_variable("table", [options.symbols, options.units])
        x = tf.nn.embedding_lookup(table, words)
    for layer in range(options.layers):
        with tf.device(device_of(layer, options.layers, devices)):
            cell = tf.nn.rnn_cell.BasicLSTMCell(options.units)
            scope = f"layer{layer}"
            if options.loops:
                x, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, scope=scope)
            else:
                inputs = tf.unstack(x, axis=1)
                outputs, _ = tf.nn.static_rnn(cell, inputs, dtype=tf.float32, scope=scope)
                x = tf.stack(outputs, axis=1)
    with tf.device(last):
        weights = tf.get_variable("weights", [options.units, options.symbols])
        rows = tf.reshape(x, [options.time * options.rows, options.units])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(targets, [-1]), logits=tf.matmul(rows, weights)
        )
        loss = tf.reduce_mean(losses)
    # A gradient is computed where its operation is, and a variable is updated where it is.
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables, colocate_gradients_with_ops=True)
    optimizer = tf.train.AdamOptimizer(0.01)
    return words, targets, loss, optimizer.apply_gradients(zip(gradients, variables, strict=True))


def trainer(options: argparse.Namespace, devices: int):
    """A function that trains on one batch and returns the loss."""
    with tf.Graph().as_default():
        tf.set_random_seed(options.seed)
        words, targets, loss, step = build(options, devices)
        session = tf.Session(config=tf.ConfigProto(device_count={"CPU": devices}))
        session.run(tf.global_variables_initializer())
        run = session.make_callable([loss, step], [words, targets])
    return lambda read, wanted: float(run(read, wanted)[0])


def timed(function, *arguments) -> tuple[float, float]:
    """The result of a call, and its milliseconds."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--symbols", type=int, default=16)
    parser.add_argument("--time", type=int, default=20, help="length of a sequence")
    parser.add_argument("--rows", type=int, default=32, help="sequences in a batch")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--loops", action="store_true", help="layers are loops: dynamic_rnn")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    whole, split = trainer(options, 1), trainer(options, options.devices)
    for layer in range(options.layers):
        print(f"layer {layer} is on {device_of(layer, options.layers, options.devices)}")
    # They take turns, so that whatever else the machine does falls on both.
    runs = [(timed(whole, *batch), timed(split, *batch)) for batch in batches(options)]
    every = max(1, options.steps // 5)
    for i in (*range(0, options.steps - 1, every), options.steps - 1):
        print(f"step {i + 1:4}: loss {runs[i][0][0]:.6f} on one device, {runs[i][1][0]:.6f} split")
    print(f"largest difference of the losses: {max(abs(a[0] - b[0]) for a, b in runs):.2e}")
    one, several = (statistics.median(r[i][1] for r in runs) for i in (0, 1))
    print(f"a step takes {one:.2f} ms on one device, {several:.2f} ms on {options.devices}")
    size = options.time * options.rows * options.units * 4
    print(f"{size:,} bytes cross each cut, and as many come back as gradients")


if __name__ == "__main__":
    main()
