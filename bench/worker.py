"""One framework as a worker process: reads the name of a case per line, answers with seconds per
call.

Run by bench/compare.py with each peer's own Python (3.7 for TensorFlow 1.15.5), so this file stays
valid Python 3.7:

    python bench/worker.py headrace|tensorflow|numpy MODULE

MODULE is a file of this folder with `CASES`: name -> function of (tf, np) that returns a function
to time.
"""

import importlib
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "src")]

import numpy as np  # noqa: E402


def framework(name):
    """The module to call tf, or None for plain NumPy."""
    if name == "numpy":
        return None
    tf = importlib.import_module(name)
    if name == "tensorflow" and tf.__version__.startswith("2"):
        tf = tf.compat.v1
        tf.disable_eager_execution()
    return tf


def seconds_per_call(call, budget):
    """The best of several rounds, each long enough to time well."""
    call()
    count, elapsed = 1, 0.0
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        elapsed = time.perf_counter() - start
        if elapsed > budget / 5 or count >= 100000:
            break
        count *= 2
    best = elapsed / count
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def main():
    name, module = sys.argv[1:3]
    answers = os.fdopen(
        os.dup(1), "w"
    )  # whatever the framework prints must not mix with the answers
    os.dup2(2, 1)
    tf = framework(name)
    cases = importlib.import_module(module).CASES
    calls = {}
    version = (
        "numpy " + np.__version__ if tf is None else getattr(tf, "HEADRACE_VERSION", tf.__version__)
    )
    answers.write("ready " + version + "\n")
    answers.flush()
    for line in sys.stdin:
        case, budget = line.split()
        try:
            if case not in calls:
                calls[case] = cases[case](tf, np)
            answer = (
                "none"
                if calls[case] is None
                else repr(seconds_per_call(calls[case], float(budget)))
            )
        except Exception as error:
            answer = "error {}: {}".format(type(error).__name__, str(error).split("\n")[0][:80])
        answers.write(answer + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
