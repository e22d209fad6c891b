"""Preparing steps with many control dependencies takes time linear in their size."""

import sys

import pytest

import headrace as tf
from headrace._src.pipeline import Options, compile_step

PASSES = ("compile/cluster.py", "optimize/states.py", "optimize/specialise.py")


def lines_run(function):
    """How many lines of the passes that look at what waits a call runs."""
    count = 0

    def on_call(frame, event, arg):
        file = frame.f_code.co_filename
        return on_line if file.endswith(PASSES) else None

    def on_line(frame, event, arg):
        nonlocal count
        count += event == "line"
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def step(dequeues, assigned):
    """As many values that come from queues, each followed by something to compile."""
    queue = tf.FIFOQueue(10, "float32", [[]])
    values = [tf.sin(queue.dequeue()) * 2.0 + 1.0 for _ in range(dequeues)]
    if assigned:
        values += [tf.assign_add(tf.get_variable("total", []), tf.add_n(values))]
    return tf.add_n(values)


@pytest.mark.parametrize("assigned", [False, True])
def test_work_is_linear(assigned):
    counts = []
    for dequeues in (10, 40, 80):
        with tf.Graph().as_default():
            result = step(dequeues, assigned)
            counts.append(
                lines_run(lambda: compile_step([result], [], [], [], Options(jit="always")))  # noqa: B023
            )
    assert counts[2] - counts[1] < 1.5 * (4 / 3) * (counts[1] - counts[0])
