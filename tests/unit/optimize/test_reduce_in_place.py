"""Which collectives may put their results into the memory of their inputs."""

import pytest

import headrace as tf
import headrace.horovod as hvd
from headrace._src.optimize.reduce_in_place import reduce_in_place
from tests.unit.optimize.flows import after, flow


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def in_place(fetches, feeds=None):
    made = after(reduce_in_place, flow(fetches, feeds))
    return [n.attrs["in_place"] for n in made.nodes if n.definition.shares]


def product(x):
    return tf.matmul(x, x)


def test_a_product_that_nothing_else_reads():
    x = tf.placeholder("float32", [3, 3])
    reduced = hvd.allreduce(product(x))
    assert in_place(reduced + 1.0, {x: (3, 3)}) == [True]


def test_the_next_one_reads_the_result_of_the_first():
    """A collective's result may be what another rank still reads."""
    x = tf.placeholder("float32", [3, 3])
    assert in_place(hvd.allreduce(hvd.allreduce(product(x))), {x: (3, 3)}) == [True, False]


@pytest.mark.parametrize("other", [lambda p: p, tf.identity, tf.square])
def test_something_else_reads_the_input(other):
    x = tf.placeholder("float32", [3, 3])
    made = product(x)
    assert in_place([hvd.allreduce(made), other(made)], {x: (3, 3)}) == [False]


@pytest.mark.parametrize("kind", ["feed", "variable", "constant", "view"])
def test_memory_that_is_somebody_elses(kind):
    x = tf.placeholder("float32", [3, 3])
    given = {
        "feed": lambda: x,
        "variable": lambda: tf.get_variable("v", [3, 3]),
        "constant": lambda: tf.constant([1.0, 2.0]),
        "view": lambda: tf.reshape(product(x), [9]),
    }[kind]()
    assert in_place(hvd.allreduce(given), {x: (3, 3)}) == [False]


def test_one_tensor_twice():
    x = tf.placeholder("float32", [3, 3])
    made = product(x)
    found = hvd.allreduce(made), hvd.allreduce(made, average=False)
    assert in_place(list(found), {x: (3, 3)}) == [False, False]
