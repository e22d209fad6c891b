"""Gradients against differences, graphs against each other, and running tests as a program."""

import subprocess
import sys

import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_both_jacobians(session):
    x, z = tf.constant([1.0, 2.0]), tf.constant([1.0])
    y = tf.concat([x, z], 0) * 2.0
    found = tf.test.compute_gradient([x, z], [[2], [1]], y, [3], delta=0.01)
    for (exact, numeric), wanted in zip(found, ([[2, 0, 0], [0, 2, 0]], [[0, 0, 2]]), strict=True):
        np.testing.assert_array_equal(exact, wanted)
        np.testing.assert_allclose(numeric, wanted, atol=1e-3)


def test_errors_are_small_unless_a_gradient_is_wrong(session):
    variable = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    fed = tf.placeholder(tf.float64, [2])
    x = tf.constant([1.0, 2.0], tf.float64)
    y = tf.cast(variable, tf.float64) * fed * x * x
    arguments = {"init_targets": [variable.initializer], "extra_feed_dict": {fed: [2.0, 3.0]}}
    assert tf.test.compute_gradient_error(x, [2], y, [2], **arguments) < 1e-6

    @tf.custom_gradient
    def wrong(v):
        return v * v, lambda g: g

    assert tf.test.compute_gradient_error(x, [2], wrong(x), [2], x_init_value=[1.0, 2.0]) > 0.9


def test_complex_numbers_and_rows(session):
    x = tf.constant([1 + 2j], tf.complex128)
    assert tf.test.compute_gradient_error(x, [1], x * x, [1]) < 1e-6
    assert tf.test.compute_gradient(x, [1], x * x, [1])[0].shape == (2, 2)
    table = tf.constant([[1.0], [2.0], [3.0]], tf.float64)
    assert tf.test.compute_gradient_error(table, [3, 1], tf.gather(table, [2, 0, 2]), [3, 1]) < 1e-6


def test_other_types_are_refused(session):
    with pytest.raises(AssertionError, match="Don't support type int32 for x"):
        tf.test.compute_gradient(tf.constant([1]), [1], tf.constant([1.0]), [1])


def test_graphs_are_compared_node_by_node():
    def graph(value, *more):
        with tf.Graph().as_default() as made:
            tf.constant(value, name="a")
            for name in more:
                tf.no_op(name=name)
        return made.as_graph_def()

    tf.test.assert_equal_graph_def(graph(1, "b", "c"), graph(1, "c", "b"))
    for found, wanted, message in (
        (graph(1, "b"), graph(1), "Found unexpected node 'b'"),
        (graph(1), graph(1, "b"), "Did not find expected node 'b'"),
        (graph(1), graph(2), "Node named 'a' has attr 'value'"),
    ):
        with pytest.raises(AssertionError, match=message):
            tf.test.assert_equal_graph_def(found, wanted)


def test_a_program_of_tests(tmp_path):
    program = tmp_path / "square_test.py"
    program.write_text(
        "import headrace as tf\n"
        "class SquareTest(tf.test.TestCase):\n"
        "    def testRight(self):\n"
        "        with self.test_session():\n"
        "            self.assertAllEqual(tf.square([1, 2]).eval(), [1, 4])\n"
        "    def testWrong(self):\n"
        "        self.assertAllEqual(tf.square([1, 2]), [1, 5])\n"
        "tf.test.main()\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "FAIL: testWrong" in done.stderr
    assert "FAILED (failures=1, skipped=1)" in done.stderr  # test_session, which is none
    assert not tf.test.is_gpu_available() and not tf.test.is_built_with_cuda()
    assert tf.test.mock.Mock()() is not None
