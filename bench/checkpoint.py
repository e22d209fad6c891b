"""What saving costs a training program, and how fast it is beside the disk: python
bench/checkpoint.py [--megabytes 400] [--rounds 5] [--batch 64]

Prints the time of 20 training steps without saving, with a save among them, and with an
asynchronous one; then the bytes per second of a save, of a restore, and of plain writes with fsync.
"""

import argparse
import os
import shutil
import tempfile
import time

import numpy as np

import headrace as tf

STEPS, MATRICES = 20, 25


def model(megabytes, batch):
    """Variables of so many megabytes, and a training step on so many rows."""
    size = int((megabytes * 2**20 / 4 / MATRICES) ** 0.5)
    x = tf.constant(np.random.default_rng(0).normal(size=(batch, size)).astype(np.float32))
    for i in range(MATRICES):
        w = tf.get_variable(f"w{i}", [size, size])
        x = tf.tanh(tf.matmul(x, w))
    step = tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean(tf.square(x)))
    return step, MATRICES * size * size * 4


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def plain_write(directory, size):
    chunk = bytes(2**20)
    with open(os.path.join(directory, "plain"), "wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(chunk)
        os.fsync(file.fileno())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=400, help="of variables")
    parser.add_argument("--rounds", type=int, default=5, help="of each way, in turn")
    parser.add_argument("--batch", type=int, default=64, help="rows per step")
    parser.add_argument("--directory", help="where to save; a temporary one by default")
    return parser.parse_args()


def main():
    options = arguments()
    directory = tempfile.mkdtemp(dir=options.directory)
    step, size = model(options.megabytes, options.batch)
    savers = {"saving": tf.train.Saver(max_to_keep=1)}
    savers["asynchronous"] = tf.train.Saver(max_to_keep=1, asynchronous=True)
    session = tf.Session()
    session.run(tf.global_variables_initializer())

    def steps(saver=None, count=STEPS):
        for i in range(count):
            session.run(step)
            if saver is not None and i == 0:
                saver.save(session, os.path.join(directory, "m"), write_meta_graph=False)

    steps(count=3)
    # Interleaved: what else the machine does meets all of them alike.
    times = {"none": [], "saving": [], "asynchronous": []}
    for _ in range(options.rounds):
        for name, found in times.items():
            found.append(timed(lambda: steps(savers.get(name))))  # noqa: B023
            savers["asynchronous"].wait()
    base = float(np.median(times["none"]))
    print(f"{size / 2**20:.0f} MB of variables, batch {options.batch}, a save every {STEPS} steps")
    for name, found in times.items():
        median = float(np.median(found))
        cost = f"{median / base - 1:+7.1%}, {(median - base) * 1e3:+6.0f} ms a save"
        print(f"{name:>14}: {median / STEPS * 1e3:8.1f} ms a step  {cost}")

    saver, path = savers["saving"], os.path.join(directory, "m")
    for name, function in (
        ("save", lambda: saver.save(session, path, write_meta_graph=False)),
        ("restore", lambda: saver.restore(session, path)),
        ("plain write", lambda: plain_write(directory, size)),
    ):
        best = min(timed(function) for _ in range(3))
        print(f"{name:>14}: {size / best / 1e9:8.2f} GB/s")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
