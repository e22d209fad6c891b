"""Small programs in the manner of TensorFlow 1: run(tf) builds one and yields numbers per step.

They run under TensorFlow 1.15.5 and under Headrace alike, so they stay valid Python 3.7. Data comes
from NumPy's RandomState and all seeds are set: both must give the same numbers.
"""

import importlib
import os
import time

NAMES = sorted(
    entry[:-3]
    for entry in os.listdir(os.path.dirname(__file__))
    if entry.endswith(".py") and entry != "__init__.py"
)


def run(tf, name):
    """Run a program in a graph of its own; returns its numbers and its seconds, per step."""
    program = importlib.import_module(__name__ + "." + name)
    numbers, seconds = [], []
    with tf.Graph().as_default():
        start = time.perf_counter()
        for step in program.run(tf):
            seconds.append(time.perf_counter() - start)
            numbers.append([float(number) for number in step])
            start = time.perf_counter()
    return numbers, seconds
