"""Native loops that change what outlives a step: random generators and variables."""

import threading

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import clusters, results, session, uniform
from tests.unit.compile.test_native_loops import assert_one_call as assert_one_native_call
from tests.unit.compile.test_native_loops import loop


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(7)
        yield graph


def assert_one_call(fetches, feeds=None):
    assert_one_native_call(fetches, feeds, beside=["_Generator"])


class TestRandomNumbers:
    @pytest.mark.parametrize("shape", [[], [5], [130, 3]])
    def test_are_the_interpreter_s_to_the_last_bit_and_go_on_in_the_next_step(self, shape):
        def body(i, y):
            whole = tf.random_uniform(shape, -100, 100, tf.int32)
            return tf.random_uniform(shape) + tf.random_normal(shape) + tf.to_float(whole)

        found = loop(4, body, tf.zeros(shape))
        assert_one_call([found])
        native, interpreted = (results(jit, [found], {}, steps=3)[0] for jit in (True, False))
        np.testing.assert_array_equal(native, interpreted)
        assert not np.array_equal(native[0], native[1])

    def test_every_iteration_draws_anew(self):
        rows = tf.map_fn(lambda i: tf.truncated_normal([3]) * 2.0, tf.range(50), tf.float32)
        assert_one_call([rows])
        (found,), _ = results(True, [rows], {}, steps=1)
        assert len(np.unique(found)) == 150

    def test_in_branches_and_loops_in_loops(self):
        x = tf.get_variable("x", initializer=uniform(4))

        def body(i, y):
            inner = loop(i, lambda j, z: z * tf.random_uniform([4]), y)
            return tf.cond(i % 2 > 0, lambda: inner + tf.random_normal([4]), lambda: inner)

        assert_one_call([loop(6, body, x)])

    @pytest.mark.parametrize("length", [0, 3, 100])
    def test_gradients_take_the_numbers_that_were_drawn(self, length):
        """100 is more than there is room for at first: the second run must draw the same."""
        x, count = tf.get_variable("x", initializer=uniform(7)), tf.placeholder("int32", [])
        found = loop(count, lambda i, y: tf.nn.dropout(tf.sin(y) + x, rate=0.3), x)
        assert_one_call([found, *tf.gradients(found, x)], {count: length})

    def test_a_language_model(self):
        words, lengths = tf.placeholder("int32", [4, 6]), tf.placeholder("int32", [4])
        table = tf.get_variable("table", initializer=uniform(9, 5))
        cells = [
            tf.nn.rnn_cell.DropoutWrapper(
                tf.nn.rnn_cell.BasicLSTMCell(5), 0.9, 0.8, state_keep_prob=0.7
            )
            for _ in range(2)
        ]
        cell = tf.nn.rnn_cell.MultiRNNCell(cells)
        inputs = tf.nn.dropout(tf.gather(table, words), rate=0.2)
        outputs, _ = tf.nn.dynamic_rnn(cell, inputs, lengths, dtype="float32")
        cost = tf.reduce_sum(outputs * outputs)
        fetches = [cost, *tf.gradients(cost, tf.trainable_variables()[1:])]
        feeds = {words: np.arange(24).reshape(4, 6) % 9, lengths: [6, 2, 0, 5]}
        beside = ["_Generator", "_Reserve", "Assert"]
        assert_one_native_call(fetches, feeds, beside)

    def test_an_error_in_the_loop_leaves_the_generator_to_the_interpreter(self):
        table = tf.get_variable("table", initializer=uniform(5))
        count = tf.placeholder("int32", [])
        found = loop(
            count, lambda i, y: y + tf.gather(table, i) * tf.random_uniform([]), tf.zeros([])
        )
        runs = []
        for jit in (True, False):
            with session(jit) as run:
                run.run(tf.global_variables_initializer())
                with pytest.raises(tf.errors.InvalidArgumentError, match="5"):
                    run.run(found, {count: 9})
                runs.append(run.run(found, {count: 3}))
        assert runs[0] == runs[1]

    def test_threads_never_draw_the_same(self):
        found = loop(20, lambda i, y: y + tf.random_uniform([]), tf.zeros([]))
        sums = []
        with session(True) as run:
            threads = [
                threading.Thread(target=lambda: sums.append(run.run(found))) for _ in range(4)
            ]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        (wanted,) = zip(*results(False, [found], {}, steps=4)[0], strict=True)
        np.testing.assert_allclose(sorted(sums), sorted(wanted), 1e-6)


@pytest.mark.parametrize("resource", [False, True])
class TestVariables:
    def test_a_counter(self, resource):
        counter = tf.get_variable("counter", initializer=0, use_resource=resource)

        def body(i, y):
            with tf.control_dependencies([tf.assign_add(counter, i)]):
                return y + tf.to_float(counter.read_value())

        found = loop(5, body, tf.zeros([3]))
        with tf.control_dependencies([found]):
            assert_one_call([found, counter.read_value() * 2])

    def test_training_in_the_graph(self, resource):
        """A matrix that the loop reads, changes and reads again, and that others need before."""
        w = tf.get_variable("w", initializer=uniform(4, 4), use_resource=resource)
        before = w.read_value() * 2.0

        def body(i, y):
            made = tf.tanh(tf.matmul(y, w.read_value()))
            with tf.control_dependencies([made, before]):
                change = tf.assign_sub(w, 0.1 * tf.matmul(y, y, transpose_a=True))
            with tf.control_dependencies([change]):
                return made + tf.matmul(y, w.read_value())

        found = loop(4, body, tf.constant(uniform(4, 4, seed=1)))
        with tf.control_dependencies([found]):
            after = w.read_value() + 1.0
        assert_one_call([before, found, after])

    def test_in_branches_and_loops_in_loops(self, resource):
        seen = tf.get_variable("seen", initializer=0, use_resource=resource)

        def body(i, y):
            return tf.cond(
                i % 2 > 0,
                lambda: y + tf.to_float(tf.assign_add(seen, i)),
                lambda: loop(2, lambda j, z: z * tf.to_float(tf.assign_add(seen, 1)), y),
            )

        assert_one_call([loop(5, body, tf.ones([2]))])

    def test_rows(self, resource):
        table = tf.get_variable("table", initializer=uniform(5, 3), use_resource=resource)
        count = tf.placeholder("int32", [])

        def body(i, y):
            rows = tf.IndexedSlices(tf.stack([y, y + 1]), tf.stack([i, (i * 3) % 5]))
            with tf.control_dependencies([table.scatter_add(rows)]):
                return y + table.read_value()[0]

        found = loop(count, body, tf.zeros([3]))
        with tf.control_dependencies([found]):
            last = table.read_value() * 2.0
        assert_one_call([found, last], {count: 5})
        for jit in (True, False):
            with session(jit) as run:
                run.run(tf.global_variables_initializer())
                with pytest.raises(tf.errors.InvalidArgumentError, match="5"):
                    run.run(found, {count: 6})

    def test_first_value(self, resource):
        v = tf.get_variable("v", initializer=0.0, use_resource=resource)
        count = tf.placeholder("int32", [])

        def body(i, y):
            with tf.control_dependencies([tf.assign(v, y)]):
                return y + 1.0

        found = loop(count, body, tf.zeros([]))
        assert any(c.has_loops for c in clusters([found], {count: 3}))
        with session(True) as run:
            assert run.run(found, {count: 0}) == 0.0
            with pytest.raises(tf.errors.FailedPreconditionError):
                run.run(v.read_value())
            assert run.run(found, {count: 3}) == 3.0
            assert run.run(v.read_value()) == 2.0
