"""What a task of a test's cluster does: a parameter server waits; a worker trains, and prints what
happens.

The model is one variable per ps. Its first rows are parameters, the others are the log of the
updates that were applied to it: row (worker, batch) has the number of times and the sum of the
global steps. One operation adds to both, so a ps has an update with its log, or has neither. All
numbers are small integers: additions have exact results in any order.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time

import numpy as np

import headrace as tf
from headrace._src.core import faults
from headrace._src.transport.connect import close_all

PARAMETERS, WIDTH = 64, 8


def say(event, **about):
    print(json.dumps({"event": event, "t": time.monotonic(), **about}), flush=True)


def gradient(worker, batch, ps):
    """The integer-valued gradient of a batch, as tensors or numbers."""
    index = tf.range(PARAMETERS * WIDTH, dtype=tf.int64)
    mixed = tf.floormod(index * (batch + 1) + 3 * worker + 5 * ps, 7) - 3
    return tf.reshape(tf.cast(mixed, tf.float32), [PARAMETERS, WIDTH])


def variable(ps, workers, batches):
    shape = [PARAMETERS + workers * batches, WIDTH]
    return tf.get_variable(
        f"state{ps}", shape, initializer=tf.zeros_initializer(), use_resource=True
    )


def update(state, worker, batch, row, step, ps):
    """An operation that adds a batch's gradient, and the record of it in this row."""
    number = tf.cast(tf.stack([1, step, batch, worker]), tf.float32)
    record = tf.pad(tf.reshape(number, [1, 4]), [[0, 0], [0, WIDTH - 4]])
    rows = tf.concat([gradient(worker, batch, ps), record], 0)
    where = tf.concat([tf.range(PARAMETERS, dtype=tf.int64), [row]], 0)
    return state.scatter_add(tf.IndexedSlices(rows, where))


def replay(counts, ps):
    """Apply a log, {(worker, batch): times}, in this process; return the parameters."""
    with tf.Graph().as_default(), tf.Session() as session:
        worker, batch = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
        total = tf.get_variable("total", initializer=tf.zeros([PARAMETERS, WIDTH]))
        step = session.make_callable(
            tf.assign_add(total, gradient(worker, batch, ps)).op, [worker, batch]
        )
        session.run(total.initializer)
        for (worker_number, number), times in counts.items():
            for _ in range(times):
                step(np.int64(worker_number), np.int64(number))
        return session.run(total)


class _Losses(logging.Handler):
    def emit(self, record):
        text = record.getMessage()
        if "An error was raised" in text:
            say("lost", text=text.partition("Error: ")[2][:300])
        else:
            print(text, file=sys.stderr, flush=True)


class _Created(tf.train.SessionRunHook):
    """Tells when there is a session, and from where it goes on."""

    def __init__(self, step):
        self._step = step

    def after_create_session(self, session, coord):
        say("created", step=int(session.run(self._step)))


class _Saved(tf.train.CheckpointSaverListener):
    def before_save(self, session, global_step_value):
        say("saving", step=int(global_step_value))

    def after_save(self, session, global_step_value):
        say("saved", step=int(global_step_value))


class Commands:
    """What the test says: `arm` a fault, `break` all connections, `stop`."""

    def __init__(self):
        self.stopped = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in sys.stdin:
            command, _, rest = line.strip().partition(" ")
            if command == "arm":
                faults.arm(rest)
                say("armed", fault=rest)
            elif command == "break":
                close_all()
            elif command == "stop":
                self.stopped.set()
        os._exit(9)  # the test is gone


def serve(about):
    server = tf.train.Server(about["cluster"], about["job"], about["index"])
    say("up")
    server.join()
    say("joined")


def train(about, commands):
    cluster, index = about["cluster"], about["index"]
    server = tf.train.Server(cluster, "worker", index)
    say("up")
    setter = tf.train.replica_device_setter(
        cluster=cluster, worker_device=f"/job:worker/task:{index}"
    )
    workers = len(cluster["worker"])
    with tf.device(setter):
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
        batch = tf.placeholder(tf.int64, [], "batch")
        row = PARAMETERS + index * about["batches"] + batch
        states, updates = [], []
        for ps in range(len(cluster["ps"])):
            with tf.device(f"/job:ps/task:{ps}"):
                states.append(variable(ps, workers, about["batches"]))
                tokens = tf.FIFOQueue(100000, [tf.int64], [[]], shared_name=f"tokens{ps}_{index}")
            enqueue, token = tokens.enqueue(batch), tokens.dequeue()
            with tf.control_dependencies([enqueue, token]):
                now = tf.cast(step, tf.int64)
                updates.append(update(states[-1], index, batch, row, now, ps))
        with tf.control_dependencies(updates):
            applied = tf.assign_add(step, 1)
    scaffold = tf.train.Scaffold(saver=tf.train.Saver(sharded=True, max_to_keep=3))
    hooks = [_Created(step)]
    chief = index == 0
    if chief:
        saver = tf.train.CheckpointSaverHook(
            about["directory"],
            save_steps=about["save_steps"],
            scaffold=scaffold,
            listeners=[_Saved()],
        )
        hooks.append(saver)
    config = tf.ConfigProto()
    if about["filters"]:
        config.device_filters.extend(["/job:ps", f"/job:worker/task:{index}"])
    number = about["first"]
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=chief,
        checkpoint_dir=about["directory"] if chief else None,
        scaffold=scaffold,
        hooks=hooks,
        config=config,
        save_checkpoint_steps=None,
        save_checkpoint_secs=None,
        save_summaries_steps=None,
        log_step_count_steps=None,
    ) as session:
        while not commands.stopped.is_set():
            say("begun", batch=number)
            reached = session.run(applied, {batch: number})
            say("applied", batch=number, step=int(reached))
            number += 1
            time.sleep(about["pause"])
        if chief:
            found = session.run([*states, step])
            np.savez(os.path.join(about["directory"], "final.npz"), *found)
    say("ended")


def main():
    faulthandler.register(signal.SIGUSR1)  # to see where a process hangs
    tf.logging.set_verbosity(tf.logging.INFO)
    logging.getLogger().addHandler(_Losses())
    about = json.loads(sys.argv[1])
    commands = Commands()
    if about["job"] == "ps":
        serve(about)
    else:
        train(about, commands)


if __name__ == "__main__":
    main()
