"""Equal nodes become one; reads only if nothing was written between."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.optimize.common import merge_common
from tests.unit.optimize.flows import after, flow, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def merged(*args, **kwargs):
    return types(after(merge_common, flow(*args, **kwargs)))


def test_equal_nodes_are_one_and_commutative_operands_have_no_order():
    x, y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    feeds = {x: (2,), y: (2,)}
    assert merged([x * y, y * x, x * y], feeds) == ["Mul"]
    assert merged([x - y, y - x, x - y], feeds) == ["Sub", "Sub"]


def test_attributes_controls_and_constants_must_be_equal_too():
    x = tf.placeholder(tf.float32, [2, 3])
    feeds = {x: (2, 3)}
    assert merged([tf.nn.leaky_relu(x, 0.1), tf.nn.leaky_relu(x, 0.2)], feeds) == ["LeakyRelu"] * 2
    assert merged([tf.reduce_sum(x, 0), tf.reduce_sum(x, 0), tf.reduce_sum(x, 1)], feeds) == [
        "Sum",
        "Sum",
    ]
    assert merged([x + 0.0, x + np.float32(-0.0)], feeds) == ["AddV2"] * 2
    check = tf.Assert(tf.reduce_all(x > 0), [x])
    with tf.control_dependencies([check]):
        late = tf.negative(x)
    assert merged([tf.negative(x), late], feeds).count("Neg") == 2


def test_random_ops_and_the_worlds_time_are_never_merged():
    draws = [tf.random_uniform([2], seed=1), tf.random_uniform([2], seed=1)]
    assert merged(draws).count("RandomUniform") == 2
    assert merged([tf.timestamp(), tf.timestamp()]) == ["Timestamp"] * 2


@pytest.mark.parametrize("resource", [False, True])
def test_reads_merge_between_writes(resource):
    v = tf.Variable(1.0, use_resource=resource)
    kind = "ReadVariableOp" if resource else "_Read"
    reads = [v.read_value(), v.read_value()]
    assert merged(reads).count(kind) == 1
    write = v.assign(2.0)
    later = [v.read_value(), v.read_value()]
    write = write.op if isinstance(write, tf.Variable | tf.Tensor) else write
    assert merged([*reads, *later], targets=[write]).count(kind) == 2


def test_merged_fetches_are_copies_of_their_own():
    x = tf.placeholder(tf.float32, [2])
    with tf.Session() as session:
        a, b = session.run([x * 2.0, x * 2.0], {x: [1, 2]})
        a[0] = 100
        assert b.tolist() == [2, 4]
