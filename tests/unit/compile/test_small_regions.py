"""Which regions of few operations are compiled, and how many threads run those of few elements."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices import openmp
from tests.unit.compile.steps import clusters


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_two_operations_are_compiled_if_one_passes_a_large_array_to_the_other(size):
    x = tf.placeholder(tf.float32, [size])
    found = clusters([tf.square(x) + x], {x: np.zeros(size, np.float32)})
    assert len(found) == (size > 1000)


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_one_thread_runs_a_region_of_few_elements(size):
    x = tf.placeholder(tf.float32, [size])
    (found,) = clusters([tf.tanh(tf.square(x) + x) * 2.0], {x: np.zeros(size, np.float32)})
    most = 1 if openmp.library() is None else openmp.thread_count()
    assert found._cluster.threads == (1 if size == 1000 else most)


@pytest.mark.parametrize("rows", [32, 1 << 12])
def test_one_thread_takes_few_rows_of_a_large_table(rows):
    shape = [1 << 12, 256]
    table = tf.get_variable("table", shape, initializer=tf.zeros_initializer(), use_resource=True)
    places = tf.placeholder(tf.int32, [rows])
    (found,) = clusters([tf.gather(table, places)], {places: np.zeros(rows, np.int32)})
    most = 1 if openmp.library() is None else openmp.thread_count()
    assert found._cluster.threads == (1 if rows == 32 else most)
