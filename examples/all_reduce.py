"""Train the digits network in several processes that average their gradients:

    headrace launch examples/all_reduce.py --ranks 2

Each process runs this file, in the manner of Horovod. Every rank has all variables, computes the
gradients of its own batches, and applies the average of all ranks' gradients, so the variables stay
equal. There is no parameter server: on one host the ranks reduce their gradients in shared memory,
between hosts in a ring (docs/all_reduce.md). Started without a launcher, it is the only rank.
"""

from __future__ import annotations

import numpy as np
from digits import data, network

import headrace as tf
import headrace.horovod as hvd

flags = tf.app.flags
flags.DEFINE_integer("steps", 400, "updates")
flags.DEFINE_integer("batch", 64, "examples of one update, of all ranks together")
FLAGS = flags.FLAGS


def main(argv: list[str]) -> None:
    hvd.init()
    images, labels, test_images, test_labels = data()
    x = tf.placeholder(tf.float32, [None, *images.shape[1:]])
    y = tf.placeholder(tf.int64, [None])
    keep = tf.placeholder_with_default(1.0, [])
    logits = network(x, keep)
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.1, 0.9))
    train = optimizer.minimize(loss)
    mean_loss = hvd.allreduce(loss)

    # Rank 0 has the initial values; each rank draws other batches.
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    chosen = np.random.default_rng(hvd.rank())
    share = max(1, FLAGS.batch // hvd.size())
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        for step in range(FLAGS.steps):
            rows = chosen.integers(0, len(images), share)
            _, value = session.run(
                [train, mean_loss], {x: images[rows], y: labels[rows], keep: 0.75}
            )
            if hvd.rank() == 0 and step % 100 == 99:
                print(f"step {step + 1}: loss {value:.3f}")
        right = session.run(accuracy, {x: test_images, y: test_labels})
    moved = hvd.bytes_moved()
    print(f"rank {hvd.rank()} of {hvd.size()}: accuracy {right:.3f}")
    if hvd.rank() == 0:
        print(f"moved {moved['shared'] + moved['sent']:,} bytes, none of them by a server")


if __name__ == "__main__":
    tf.app.run(main)
