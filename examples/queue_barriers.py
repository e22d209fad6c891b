"""Train synchronously with queues as barriers (OSDI'16 §4.4, figure 4b), in one plain graph:

    python examples/queue_barriers.py --workers 3

Each worker is a thread that runs steps of one session. It takes a token from its queue, reads the
parameters, computes the gradients of its share of the batch and puts them into the queue of
gradients. A further thread, the chief, takes as many gradients as there are workers, applies their
mean, and puts a token into each worker's queue. So no worker begins a step before the update of the
last one, and no update happens before all gradients are there. The program compares the losses with
training on the whole batch in one step.

tf.train.SyncReplicasOptimizer does this between processes, with one queue of tokens for all
workers: there, a quick worker may take the token of a slow one and compute two shares of a step.
"""

from __future__ import annotations

import argparse
import threading

import numpy as np

import headrace as tf

RATE = 0.1


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


def alone(options: argparse.Namespace, batches: list) -> list[float]:
    """The loss of each step with the whole batch."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, options.inputs])
        y = tf.placeholder(tf.float32, [None, 1])
        shared = parameters(options)
        loss = loss_of(shared, x, y)
        gradients = tf.gradients(loss, shared)
        with tf.control_dependencies([loss, *gradients]):
            pairs = zip(gradients, shared, strict=True)
            step = tf.train.GradientDescentOptimizer(RATE).apply_gradients(pairs)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            return [float(session.run([loss, step], {x: a, y: b})[0]) for a, b in batches]


def together(options: argparse.Namespace, batches: list) -> list[float]:
    """The mean loss of each step of all workers, each with its share of the batch."""
    count = options.workers
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            shared = parameters(options)
            tokens = [tf.FIFOQueue(1, tf.int32, [[]], name=f"tokens{i}") for i in range(count)]
            sent = tf.FIFOQueue(
                count, [p.dtype.base_dtype for p in shared], [p.shape for p in shared], name="sent"
            )
            # The chief's step: the mean of all workers' gradients, then the tokens.
            means = [tf.reduce_mean(g, 0) for g in sent.dequeue_many(count)]
            pairs = zip(means, shared, strict=True)
            update = tf.train.GradientDescentOptimizer(RATE).apply_gradients(pairs)
            release = tf.group(*(queue.enqueue(0) for queue in tokens))
            with tf.control_dependencies([update]):
                next_step = tf.group(*(queue.enqueue(0) for queue in tokens))
        steps = []
        for i in range(count):
            with tf.device(f"/cpu:{i + 1}"):
                x = tf.placeholder(tf.float32, [None, options.inputs])
                y = tf.placeholder(tf.float32, [None, 1])
                with tf.control_dependencies([tokens[i].dequeue()]):
                    read = [p.read_value() for p in shared]
                loss = loss_of(read, x, y)
                send = sent.enqueue(tf.gradients(loss, read))
            steps.append((x, y, loss, send))
        losses = np.zeros([len(batches), count])

        def work(session: tf.Session, index: int) -> None:
            x, y, loss, send = steps[index]
            for number, (points, values) in enumerate(batches):
                mine = slice(index * len(points) // count, (index + 1) * len(points) // count)
                feeds = {x: points[mine], y: values[mine]}
                losses[number, index] = session.run([loss, send], feeds)[0]

        def lead(session: tf.Session) -> None:
            for _ in batches:
                session.run(next_step)

        with tf.Session(config=tf.ConfigProto(device_count={"CPU": count + 1})) as session:
            session.run(tf.global_variables_initializer())
            threads = [threading.Thread(target=work, args=(session, i)) for i in range(count)]
            threads.append(threading.Thread(target=lead, args=(session,)))
            for thread in threads:
                thread.start()
            session.run(release)  # of the first step
            for thread in threads:
                thread.join()
        return losses.mean(1).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=96, help="examples in a batch of all workers")
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--units", type=int, default=16)
    options = parser.parse_args()
    if options.rows % options.workers:
        parser.error("rows must be a multiple of workers, so that all shares count the same")

    rng = np.random.default_rng(1)
    direction = rng.standard_normal((options.inputs, 1), "float32")
    points = rng.standard_normal((options.steps, options.rows, options.inputs), "float32")
    batches = [(x, np.sin(0.4 * x @ direction)) for x in points]
    one, several = alone(options, batches), together(options, batches)
    for i in sorted({0, options.steps // 2, options.steps - 1}):
        print(f"step {i + 1:4}: loss {one[i]:.6f} alone, {several[i]:.6f} by {options.workers}")
    apart = max(abs(a - b) / abs(a) for a, b in zip(one, several, strict=True))
    print(f"largest relative difference of the losses: {apart:.2e}")


if __name__ == "__main__":
    main()
