"""Loops and branches with state, queues, arrays and Python functions compute the same on several
devices as on one, wherever each operation is, and never hang.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from tests.property.test_partitioned import DEVICES, Scattered, config
from tests.property.watchdog import watched


class Program:
    """A program under construction: two variables, and placeholders for a vector and a count."""

    def __init__(self, draw):
        self.draw = draw
        self.v = self._variable([1, 2])
        self.w = self._variable(0.5)
        self.x = tf.placeholder_with_default(np.float32([0.3, -0.7]), [2])
        self.n = tf.placeholder_with_default(3, [])

    def _variable(self, value):
        return tf.Variable(np.float32(value), use_resource=self.draw(st.booleans()))

    def loop(self):
        """A loop whose iterations update a variable, branch, nest or call Python."""
        v, w = self.v, self.w
        kind = self.draw(st.sampled_from(["update", "branch", "nested", "python", "read"]))

        def body(i, a):
            if kind == "update":
                with tf.control_dependencies([v.assign_add(a * 0.1)]):
                    b = v.read_value() * w
            elif kind == "branch":
                b = tf.cond(tf.equal(i % 2, 0), lambda: a * w, lambda: v + a)
            elif kind == "nested":
                step = lambda j, c: (j + 1, c * 0.9 + w * 0.1)  # noqa: E731
                _, b = tf.while_loop(lambda j, _: j < i, step, [0, a])
            elif kind == "python":
                b = tf.ensure_shape(tf.py_func(lambda z: z * 2 - 1, [a], tf.float32), [2])
            else:
                b = tf.tanh(a) + tf.identity(v)
            return i + 1, b

        parallel = self.draw(st.sampled_from([1, 2, 10]))
        run = tf.while_loop(
            lambda i, _: i < self.n, body, [0, self.x * 1.0], parallel_iterations=parallel
        )
        return [run[1]]

    def queue(self):
        """A loop whose iterations pass a value through a queue."""
        queue = tf.FIFOQueue(10, tf.float32, [2])

        def body(i, a):
            with tf.control_dependencies([queue.enqueue(a * self.w)]):
                return i + 1, queue.dequeue() + self.x

        start = [0, self.x * 1.0]
        return [tf.while_loop(lambda i, _: i < self.n, body, start, parallel_iterations=1)[1]]

    def array(self):
        """A loop that fills a tensor array, and its gradients."""

        def body(i, a, array):
            return i + 1, a * self.w, array.write(i, a + self.v)

        array = tf.TensorArray(tf.float32, 3, element_shape=[2])
        filled = tf.while_loop(lambda i, *_: i < 3, body, [0, self.x * 1.0, array])[2]
        y = filled.stack()
        return [y, *tf.gradients(y, [self.x, self.w])]

    def scan(self):
        """Loops with branches inside, and their gradients."""
        w = self.w
        branch = lambda z: tf.cond(z > 0, lambda: z * w, lambda: z - 1.0)  # noqa: E731
        y = tf.map_fn(branch, tf.concat([self.x, self.x], 0))
        z = tf.scan(lambda a, b: a * w + b, y)
        return [y, z, *tf.gradients(z, [self.x, w])]

    def dead_loop(self):
        """A loop in a branch that may not be taken, and an update of what it gives."""
        x, v, w = self.x, self.v, self.w

        def grow():
            more = lambda a: a + tf.abs(w) + 0.5  # noqa: E731
            return tf.while_loop(lambda a: tf.reduce_sum(a) < 5.0, more, [x * 1.0])

        other = lambda: tf.cond(x[1] > 0, lambda: v * 2.0, lambda: x * w)  # noqa: E731
        y = tf.cond(x[0] > 0, grow, other)
        with tf.control_dependencies([y]):
            update = v.assign(y)
        with tf.control_dependencies([update]):
            return [y, v.read_value() + 0.0]


@pytest.mark.parametrize("kind", ["loop", "queue", "array", "scan", "dead_loop"])
def test_programs_with_state_equal_the_whole_bit_for_bit(kind):
    @given(st.data())
    @settings(max_examples=15 if kind == "loop" else 8)
    def check(data):
        with tf.Graph().as_default():
            with tf.device(Scattered(data.draw)):
                program = Program(data.draw)
                fetches = getattr(program, kind)()
                with tf.control_dependencies([tf.identity(f) for f in fetches]):
                    fetches.append(tf.identity(program.w.assign_add(0.25)))
            feeds = {}, {program.x: [-1.0, 0.5]}, {program.n: 0}, {program.n: 5}
            found = []
            for count in (1, DEVICES):
                with tf.Session(config=config(count, "off")) as session, watched(session):
                    session.run(tf.global_variables_initializer())
                    found.append([session.run(fetches, feed) for feed in feeds])
        for one, several in zip(*found, strict=True):
            for a, b in zip(one, several, strict=True):
                np.testing.assert_array_equal(b, a)

    check()
