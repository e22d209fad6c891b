"""`tensorflow.examples.tutorials.mnist.mnist`: the network of TensorFlow's first tutorial."""

from __future__ import annotations

import itertools
import math
from typing import Any

import headrace as tf

__all__ = ["evaluation", "inference", "loss", "training"]

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images: Any, hidden1_units: int, hidden2_units: int) -> Any:
    """Return the logits of two hidden layers."""
    sizes = [IMAGE_PIXELS, hidden1_units, hidden2_units, NUM_CLASSES]
    value = images
    for scope, (rows, columns) in zip(
        ("hidden1", "hidden2", "softmax_linear"), itertools.pairwise(sizes), strict=True
    ):
        with tf.name_scope(scope):
            start = tf.truncated_normal([rows, columns], stddev=1.0 / math.sqrt(float(rows)))
            weights = tf.Variable(start, name="weights")
            biases = tf.Variable(tf.zeros([columns]), name="biases")
            value = tf.matmul(value, weights) + biases
            if scope != "softmax_linear":
                value = tf.nn.relu(value)
    return value


def loss(logits: Any, labels: Any) -> Any:
    """Return the mean cross entropy."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.to_int64(labels), logits=logits)


def training(loss: Any, learning_rate: float) -> Any:
    """Return a step of gradient descent, which writes a summary of the loss."""
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step)


def evaluation(logits: Any, labels: Any) -> Any:
    """Return how many predictions are right."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))
