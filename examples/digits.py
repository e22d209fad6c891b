"""Train a small convolutional network on real handwritten digits: `make demo`.

The data are the 1,797 scanned digits (8 x 8 pixels) that scikit-learn carries. Everything below is
a graph: the network, its gradients, and the optimizer, which is plain operations on variables
(OSDI'16 §4.1).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import headrace as tf


def data(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images in [0, 1] with their labels; a fifth is kept for the test."""
    digits = load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order], digits.target[order].astype(np.int32)
    held_out = len(images) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def layer(shape: list[int], name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """The weights and biases of a layer whose input has shape[:-1] values each."""
    with tf.variable_scope(name):
        fan_in = float(np.prod(shape[:-1]))
        initial = tf.truncated_normal_initializer(stddev=(2 / fan_in) ** 0.5)
        weights = tf.get_variable("weights", shape, initializer=initial)
        biases = tf.get_variable("biases", shape[-1:], initializer=tf.zeros_initializer())
    return weights, biases


def network(images: tf.Tensor, keep_prob: tf.Tensor) -> tf.Tensor:
    """Two convolutions with pooling, then two fully connected layers; returns logits."""
    x = images
    for name, shape in (("conv1", [3, 3, 1, 32]), ("conv2", [3, 3, 32, 64])):
        weights, biases = layer(shape, name)
        x = tf.nn.relu(tf.nn.conv2d(x, weights, [1, 1, 1, 1], "SAME") + biases)
        x = tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    x = tf.reshape(x, [-1, 2 * 2 * 64])
    weights, biases = layer([2 * 2 * 64, 128], "hidden")
    x = tf.nn.dropout(tf.nn.relu(tf.matmul(x, weights) + biases), rate=1 - keep_prob)
    weights, biases = layer([128, 10], "logits")
    return tf.matmul(x, weights) + biases


def momentum_step(loss: tf.Tensor, rate: tf.Tensor, momentum: float = 0.9) -> tf.Operation:
    """One step of stochastic gradient descent with momentum, as operations."""
    updates = []
    variables = tf.trainable_variables()
    for variable, gradient in zip(variables, tf.gradients(loss, variables), strict=True):
        velocity = tf.Variable(tf.zeros_like(variable.initial_value), trainable=False)
        moved = tf.assign(velocity, momentum * velocity + gradient)
        updates.append(tf.assign_sub(variable, rate * moved))
    return tf.group(*updates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    tf.set_random_seed(options.seed)
    train_x, train_y, test_x, test_y = data(options.seed)
    images = tf.placeholder(tf.float32, [None, 8, 8, 1], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    keep_prob = tf.placeholder_with_default(1.0, [], name="keep_prob")
    rate = tf.placeholder(tf.float32, [], name="rate")
    logits = network(images, keep_prob)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    step = momentum_step(loss, rate)

    steps_per_epoch = len(train_x) // options.batch
    total = options.epochs * steps_per_epoch
    rng = np.random.default_rng(options.seed)
    start = time.perf_counter()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with tqdm(total=total, unit="step", desc="training") as bar:
            for epoch in range(options.epochs):
                order = rng.permutation(len(train_x))
                decayed = 0.05 * 0.5 * (1 + np.cos(np.pi * epoch / options.epochs))
                for i in range(steps_per_epoch):
                    batch = order[i * options.batch : (i + 1) * options.batch]
                    feeds = {images: train_x[batch], labels: train_y[batch]}
                    feeds |= {keep_prob: 0.6, rate: decayed}
                    _, now = session.run([step, loss], feeds)
                    bar.update()
                bar.set_postfix(loss=f"{now:.4f}")
        score = session.run(accuracy, {images: test_x, labels: test_y})
        seconds = time.perf_counter() - start
        guesses = session.run(tf.argmax(logits, 1), {images: test_x})

    print(
        f"\nTest accuracy {score:.2%} on {len(test_x)} digits, after {seconds:.1f} s of training."
    )
    show_mistakes(test_x, test_y, guesses)
    print(
        "What to try next:\n"
        "  make demo ARGS='--epochs 60 --batch 32'     train longer\n"
        "  read ARCHITECTURE.md                        follow one step through the code\n"
        "  make test                                   every check that CI runs"
    )


def show_mistakes(images: np.ndarray, labels: np.ndarray, guesses: np.ndarray) -> None:
    """Draw the digits that the network got wrong, up to four."""
    wrong = np.flatnonzero(labels != guesses)[:4]
    if not len(wrong):
        print("It made no mistake.")
        return
    print("Some that it got wrong:")
    shades = " .:-=+*#%@"
    for row in range(8):
        pieces = []
        for i in wrong:
            pixels = images[i, row, :, 0]
            pieces.append("".join(2 * shades[int(p * (len(shades) - 1))] for p in pixels))
        print("   ".join(pieces))
    notes = [f"a {labels[i]}, read as {guesses[i]}".ljust(16) for i in wrong]
    print("   ".join(notes) + "\n")


if __name__ == "__main__":
    main()
