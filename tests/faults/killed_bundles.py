"""Bundles whose writers die at every change of a file: readers find the old or the new bundle.

Run by test_killed_saves.py, in a separate process; prints how often a writer died.
"""

import os
import shutil
import tempfile

import numpy as np

from headrace._src.checkpoint.bundle import NamedTensor, bundle_exists, merge_bundles, write_bundle
from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from tests.faults.killing import survey

OLD, NEW = 1, 2


def tensors(seed):
    values = np.random.default_rng(seed).normal(size=(3, 50)).astype(np.float32)
    return [NamedTensor(f"v{i}", row) for i, row in enumerate(values)]


def holds(prefix, seed):
    with open_checkpoint(prefix) as found:
        return all(found.read(t.name).tobytes() == t.value.tobytes() for t in tensors(seed))


def write_shards(prefix, seed, directory):
    shards = []
    for i, tensor in enumerate(tensors(seed)):
        shards.append(os.path.join(directory, f"part-{i}"))
        write_bundle(shards[-1], [tensor])
    merge_bundles(shards, prefix, delete_old_dirs=True)


def write(prefix, seed, directory):
    write_bundle(prefix, tensors(seed))


def deaths(save, overwrites):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where fsync costs nothing
    directory = tempfile.mkdtemp(dir=memory)
    prefix, aside = (os.path.join(directory, name) for name in ("model", "aside"))
    if overwrites:
        save(prefix, OLD, aside)
    count, taken = 0, False
    for survived in survey(lambda: save(prefix, NEW, aside)):
        count += not survived
        if overwrites or bundle_exists(prefix):
            taken = taken or not holds(prefix, OLD)
            assert holds(prefix, NEW if taken else OLD), "neither the old one nor the new one"
        if overwrites and taken and not survived:
            save(prefix, OLD, aside)  # on top of what the dead left: for the next one
            assert holds(prefix, OLD)
            taken = False
    assert holds(prefix, NEW)
    shutil.rmtree(directory)
    return count


print(sum(deaths(s, o) for s in (write, write_shards) for o in (False, True)))
