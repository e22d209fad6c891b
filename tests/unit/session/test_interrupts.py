"""Ctrl-C at any point of a step where Python may see it: session.run always raises it, and the
session, its locks and queues included, stays fully usable.
"""

import sys
import threading
from pathlib import Path

import pytest

import headrace as tf
from tests.unit.compile.steps import session

ROOMS = Path(tf.__file__).parent / "_src"
OURS = tuple(str(ROOMS / room) for room in ("session", "runtime", "graph", "compile"))
CHECKS = "kernels.py"  # where results are checked, which is done in tests only


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


class Interrupting:
    """Count where in our files Python could see a signal inside the with-block, which is where a
    function begins and where a built-in one has ended; at place `number` press Ctrl-C.
    """

    def __init__(self, number=-1):
        self.number = number
        self.places = 0

    def __enter__(self):
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _event(self, frame, event, arg):
        file = frame.f_code.co_filename
        if event in ("call", "c_return") and file.startswith(OURS) and not file.endswith(CHECKS):
            self.places += 1
            if self.places - 1 == self.number:
                raise KeyboardInterrupt


def interpreted(x, variable, queue):
    """A structured loop."""
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y * x), [0, x])[1] + variable


def primitives(x, variable, queue):
    """A loop that can't be raised, since something in it may wait."""

    def body(i, y):
        with tf.control_dependencies([queue.enqueue(y * x)]):
            return i + 1, queue.dequeue()

    return tf.while_loop(lambda i, _: i < 2, body, [0, x])[1] + variable


def waits(x, variable, queue):
    element = queue.dequeue()
    with tf.control_dependencies([queue.enqueue(x * variable)]):
        return element + 0.0


def python(x, variable, queue):
    """Functions of which each may wait for the other."""
    found = [tf.py_func(lambda v: v + 1, [x], tf.float32) for _ in range(2)]
    return tf.ensure_shape(found[0] * found[1], []) + variable


FORMS = {
    "python": (python, False),
    "interpreted": (interpreted, False),
    "primitives": (primitives, False),
    "waits": (waits, False),
    "native": (interpreted, True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_place(form):
    make, jit = FORMS[form]
    x = tf.placeholder(tf.float32, [])
    variable = tf.get_variable("variable", initializer=1.0)
    queue = tf.FIFOQueue(1, tf.float32, [[]])
    step = [make(x, variable, queue), tf.assign_add(variable, 1.0)]
    left, taken = queue.size(), queue.dequeue()
    with session(jit) as run:
        run.run(variable.initializer)
        wanted = run.run(step, {x: 2.0})
        with Interrupting() as whole:
            run.run(step, {x: 2.0})
        assert whole.places > 20

        def again():
            if run.run(left):  # what the step that was interrupted has put there
                run.run(taken)
            run.run(variable.initializer)
            return run.run(step, {x: 2.0})

        reached = 0
        for number in range(whole.places):
            with Interrupting(number) as cut:
                try:
                    run.run(step, {x: 2.0})
                except KeyboardInterrupt:
                    reached += 1
                else:  # a thread of the pool was quicker, so this one passed fewer places
                    assert form == "python" and cut.places <= number
            assert in_thread(again) == wanted, number
        assert reached > 20


def in_thread(function):
    """Return the result of a function in another thread; None if it never ends, for example because
    it waits for a lock that is never released.
    """
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(60)
    return results[0] if results else None
