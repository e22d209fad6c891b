"""Train a recurrent network on sequences that are too long for memory (swap_memory):

    python examples/long_loop.py --folder /var/tmp

The gradient of a loop needs values from each iteration of the loop. Here, these take several times
the memory that the process may have. With `swap_memory=True`, and a folder in HEADRACE_SWAP_DIR,
they are in a file. The program trains the same network three times, each in a process of its own:
in memory without a limit, in memory with a limit, and with the limit and a file. It prints the
times, the memory and the losses, which are equal to the last bit.

The task is to add the two numbers of a long sequence that are marked.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

import headrace as tf

CASES = {
    "memory": "in memory, no limit",
    "limit": "in memory, with the limit",
    "swap": "in a file, with the limit",
}


def batch(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of (number, mark), and the sum of the numbers that are marked."""
    rng = np.random.default_rng(options.seed)
    x = np.zeros([options.time, options.rows, 2], np.float32)
    x[:, :, 0] = rng.uniform(size=x.shape[:2])
    rows = np.arange(options.rows)
    half = options.time // 2
    for start in (0, half):
        x[start + rng.integers(half, size=options.rows), rows, 1] = 1
    return x, (x[:, :, 0] * x[:, :, 1]).sum(0)


def network(options: argparse.Namespace, swap_memory: bool):
    """Return the loss, the training operation and the placeholders of one step."""
    tf.set_random_seed(options.seed)
    x = tf.placeholder(tf.float32, [options.time, options.rows, 2], name="x")
    wanted = tf.placeholder(tf.float32, [options.rows], name="wanted")
    cell = tf.nn.rnn_cell.LSTMCell(options.units)
    _, state = tf.nn.dynamic_rnn(
        cell, x, dtype=tf.float32, time_major=True, swap_memory=swap_memory
    )
    found = tf.layers.dense(state.h, 1)[:, 0]
    loss = tf.reduce_mean(tf.square(found - wanted))
    return loss, tf.train.AdamOptimizer(0.002).minimize(loss), x, wanted


def memory(name: str) -> int:
    """Return an entry of the process's memory, in bytes: VmData, which RLIMIT_DATA limits, RssAnon
    (private memory in use) or RssFile (memory in use that is a file's).
    """
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


def train(options: argparse.Namespace) -> dict[str, object]:
    """Train in this process, as one of the cases says."""
    loss, step, x, wanted = network(options, options.case == "swap")
    points, sums = batch(options)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = memory("RssAnon")
        if options.case != "memory":
            limit = memory("VmData") + (options.limit_mb << 20)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        losses, seconds = [], []
        for _ in range(options.steps):
            start = time.perf_counter()
            try:
                losses.append(float(session.run([loss, step], {x: points, wanted: sums})[0]))
            except tf.errors.ResourceExhaustedError as error:
                return {"error": f"ResourceExhaustedError: {error.message.splitlines()[0]}"}
            seconds.append(time.perf_counter() - start)
        private = memory("RssAnon") - before
        return {"losses": losses, "seconds": seconds, "private": private, "file": memory("RssFile")}


def run(options: argparse.Namespace, case: str) -> dict:
    """Run a case in a process of its own and show what it found."""
    given = [f"--{k}={v}" for k, v in vars(options).items() if k != "case" and v is not None]
    command = [sys.executable, __file__, *given, f"--case={case}"]
    environment = {**os.environ, "HEADRACE_SWAP_DIR": options.folder if case == "swap" else ""}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    if "error" in found:
        print(f"{CASES[case]}: {found['error']}")
        return found
    first, *others = found["seconds"]
    print(
        f"{CASES[case]}: {found['private'] >> 20} MB more of private memory after the steps, "
        f"first step {first:.2f} s, best step {min(others, default=first):.2f} s, "
        f"loss {found['losses'][0]:.6f} to {found['losses'][-1]:.6f}"
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time", type=int, default=10000, help="steps of the sequences")
    parser.add_argument("--rows", type=int, default=32, help="sequences of a batch")
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6, help="training steps")
    parser.add_argument("--limit_mb", type=int, default=256, help="memory for the training, in MiB")
    parser.add_argument("--folder", default="/var/tmp", help="where files go; not a tmpfs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=CASES, help="run only this, in this process")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(train(options)))
        return
    saved = 7 * 4 * options.time * options.rows * options.units >> 20
    print(f"about {saved} MB of saved values, {options.limit_mb} MB of memory for the training")
    plain, _, swapped = (run(options, case) for case in CASES)
    apart = np.subtract(plain["losses"], swapped["losses"])
    print(f"difference of the losses: {np.abs(apart).max()}")


if __name__ == "__main__":
    main()
