"""A training program whose saves die at every change of a file: it can always continue.

Run by test_killed_saves.py, in a separate process; prints how often a save died.
"""

import os
import shutil
import tempfile

import numpy as np

import headrace as tf
from headrace._src.train.saving.checkpoint_state import get_checkpoint_state
from tests.faults.killing import survey


def program():
    """A variable with random values, how to give it new ones, and its session."""
    values = tf.get_variable("values", [40], tf.float64)
    step = tf.train.get_or_create_global_step()
    renew = tf.group(values.assign(tf.random_normal([40], dtype=tf.float64)), step.assign_add(1))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return [values, step], renew, session


def bits(state):
    return [np.asarray(value).tobytes() for value in state]


def deaths(sharded, numbered):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where fsync costs nothing
    directory = tempfile.mkdtemp(dir=memory)
    prefix = os.path.join(directory, "model")
    count = 0
    with tf.Graph().as_default():
        state, renew, session = program()
        saver = tf.train.Saver(sharded=sharded, max_to_keep=1)

        def save():
            saver.save(session, prefix, global_step=state[1] if numbered else None)

        save()
        old = bits(session.run(state))
        session.run(renew)
        new = bits(session.run(state))
        for survived in survey(save):
            count += not survived
            latest = tf.train.latest_checkpoint(directory)
            assert latest is not None, os.listdir(directory)
            reader = tf.train.load_checkpoint(latest)
            found = bits(reader.get_tensor(name) for name in ("values", "global_step"))
            assert found in (old, new), f"{latest} is neither the old state nor the new one"
            assert get_checkpoint_state(directory).model_checkpoint_path == latest
        assert found == new
    shutil.rmtree(directory)
    return count


if __name__ == "__main__":
    print(sum(deaths(sharded, numbered) for sharded in (False, True) for numbered in (False, True)))
