"""A training program that dies at every change of a file while it saves, and is restarted each
time: it ends with exactly the parameters of an uninterrupted run.

Run by test_killed_saves.py, in a separate process; prints how often it died.
"""

import hashlib
import os
import shutil
import tempfile

import headrace as tf
from tests.faults.killing import survey
from tests.unit.train.test_exact_resume import dropout_model, train

STEPS = 3


def bits(directory, until):
    """Train on the interpreter: native code isn't for forked children."""
    values = train(dropout_model, directory, until, -1)
    return hashlib.sha256(b"".join(values)).hexdigest()


def main():
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where fsync costs nothing
    home = tempfile.mkdtemp(dir=memory)
    begun, tried = os.path.join(home, "begun"), os.path.join(home, "tried")
    whole = bits(os.path.join(home, "whole"), STEPS)
    bits(begun, 1)
    count = 0
    # The deaths add up: each child finds what the one before it has left.
    for survived in survey(lambda: bits(begun, 2)):
        count += not survived
        shutil.copytree(begun, tried)
        assert bits(tried, STEPS) == whole, f"after {count} deaths: {sorted(os.listdir(begun))}"
        shutil.rmtree(tried)
    latest = tf.train.latest_checkpoint(begun)
    assert latest is not None and latest.endswith("-2"), latest
    shutil.rmtree(home)
    print(count)


if __name__ == "__main__":
    main()
