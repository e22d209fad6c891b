"""Ctrl-C at any point of a step on several devices: session.run raises it, no thread is left, and
the session stays fully usable.
"""

import threading
import time

import pytest

import headrace as tf
from tests.unit.session.devices import in_thread, on, session, working
from tests.unit.session.test_interrupts import Interrupting


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def plain(x, queue):
    with on(1):
        y = tf.tanh(x)
    with on(2):
        z = tf.square(y)
    with on(1):
        return y + z


def loop(x, queue):
    def body(i, a):
        with on(1):
            b = tf.tanh(a)
        with on(2):
            return i + 1, b * 2.0

    return tf.while_loop(lambda i, _: i < 2, body, [0, x])[1]


def waits(x, queue):
    with on(1):
        y = tf.tanh(x)
    with tf.control_dependencies([queue.enqueue(y)]):
        element = queue.dequeue()
    with on(2):
        return tf.ensure_shape(element, []) * 2.0


def python(x, queue):
    found = []
    for i in range(2):
        with on(i):
            found.append(tf.py_func(lambda v: v + 1, [x], tf.float32))
    with on(2):
        return tf.ensure_shape(found[0] * found[1], [])


FORMS = {"plain": plain, "loop": loop, "waits": waits, "python": python}


@pytest.mark.parametrize("form", FORMS)
def test_every_place(form):
    x = tf.placeholder(tf.float32, [])
    variable = tf.get_variable("variable", initializer=1.0)
    queue = tf.FIFOQueue(1, tf.float32, [[]])
    result = FORMS[form](x, queue)
    with on(0), tf.control_dependencies([result]):
        update = tf.assign_add(variable, result)
    step = [result, update]
    left, taken = queue.size(), queue.dequeue()
    with session() as run:
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

        every = max(1, whole.places // 150)
        for number in range(0, whole.places, every):
            with Interrupting(number) as interrupted:
                try:
                    run.run(step, {x: 2.0})
                except KeyboardInterrupt:
                    pass
                else:
                    assert interrupted.places <= number, number
            assert in_thread(again)() == wanted, number
    until = time.monotonic() + 10
    while working() and time.monotonic() < until:
        time.sleep(0.01)
    assert not working(), threading.enumerate()
