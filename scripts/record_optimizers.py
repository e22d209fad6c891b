#!/usr/bin/env python3
"""Record a hundred steps of every optimizer of TensorFlow 1.15.5. Run by hand, with its Python 3.7:

    python3.7 scripts/record_optimizers.py

Writes tests/fixtures/optimizers.json.gz: per optimizer and kind of variables the names of the
nodes, the losses on the way, and all variables at the end.
"""

import gzip
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import tensorflow as tf  # noqa: E402

from tests.unit.train.optimizer_runs import runs, train  # noqa: E402


def main():
    found = {}
    for name, use_resource in runs():
        key = name + ("_resource" if use_resource else "_ref")
        found[key] = train(tf, name, use_resource)
    path = os.path.join(ROOT, "tests", "fixtures", "optimizers.json.gz")
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(json.dumps(found).encode())


if __name__ == "__main__":
    main()
