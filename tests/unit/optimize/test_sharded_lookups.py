"""Lookups in tables that are sharded: what the optimiser makes of the rows of each shard."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.optimize.simplify import simplify
from tests.unit.optimize.flows import after, flow, node, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def lookup(numbers, keys, merged=None):
    """Rows of two shards, merged in the order in which they were asked for."""
    places = tf.dynamic_partition(tf.constant(numbers, tf.int32), keys, 2)
    ids = tf.dynamic_partition(tf.constant(np.arange(len(numbers)) % 3), keys, 2)
    shards = [tf.ones([3, 4]), tf.zeros([3, 4])]
    rows = [tf.gather(shard, each) for shard, each in zip(shards, ids)]
    if merged is not None:
        places, rows = [places[i] for i in merged], [rows[i] for i in merged]
    return tf.dynamic_stitch(places, rows, name="found")


@pytest.mark.parametrize("merged", [[0, 1], [1, 0], [0, 0, 1]])
def test_the_number_of_merged_rows_is_known(merged):
    keys = tf.placeholder(tf.int32, [6])
    found = lookup([0, 1, 2, 3, 4, 5], keys, merged)
    made = flow(tf.exp(found), {keys: (6,)})
    assert node(made, "found").types[0].sizes == (6, 4)
    assert found.shape.as_list() == [None, 4]  # as TensorFlow has it
    with tf.Session() as session:
        assert session.run(found, {keys: [0, 1, 1, 0, 1, 0]}).shape == (6, 4)


def test_numbers_may_leave_rows_out():
    keys = tf.placeholder(tf.int32, [3])
    found = lookup([0, 7, 2], keys)
    made = flow(tf.exp(found), {keys: (3,)})
    assert node(made, "found").types[0].sizes == (8, 4)
    with tf.Session() as session:
        assert session.run(found, {keys: [0, 1, 1]}).shape == (8, 4)


def test_the_number_of_rows_of_some_parts_is_not_known():
    keys = tf.placeholder(tf.int32, [6])
    found = lookup([0, 1, 2, 3, 4, 5], keys, [1])
    made = flow(tf.exp(found), {keys: (6,)})
    assert node(made, "found").types[0].sizes is None


def test_the_shape_of_a_lookup_is_not_asked_for():
    keys = tf.placeholder(tf.int32, [6])
    found = tf.reshape(lookup([0, 1, 2, 3, 4, 5], keys), [6, 4])
    (gradient,) = tf.gradients(tf.exp(found), [found.op.inputs[0]])
    made = after(simplify, flow(gradient, {keys: (6,)}))
    assert "Shape" not in types(made)
