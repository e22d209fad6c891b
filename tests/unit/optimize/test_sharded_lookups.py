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


def test_rows_of_all_shards_are_merged_by_their_keys():
    keys = tf.placeholder(tf.int32, [6])
    found = lookup([0, 1, 2, 3, 4, 5], keys)
    made = after(simplify, flow(tf.exp(found), {keys: (6,)}))
    assert "_Undivide" in types(made)
    assert "DynamicStitch" not in types(made)
    with tf.Session() as session:
        expected = np.zeros([6, 4])
        expected[[0, 3]] = 1
        np.testing.assert_array_equal(session.run(found, {keys: [0, 1, 1, 0, 1, 1]}), expected)


@pytest.mark.parametrize(
    ("numbers", "merged"), [([0, 1, 2, 4, 3], None), ([0, 1, 2, 3, 4], [1, 0])]
)
def test_rows_in_another_order_are_merged_by_their_positions(numbers, merged):
    keys = tf.placeholder(tf.int32, [5])
    found = lookup(numbers, keys, merged)
    assert "_Undivide" not in types(after(simplify, flow(tf.exp(found), {keys: (5,)})))


def test_a_number_of_keys_that_is_not_known_is_left_to_the_partition():
    keys = tf.placeholder(tf.int32, [None])
    found = lookup([0, 1, 2, 3, 4], keys)
    assert "_Undivide" not in types(after(simplify, flow(tf.exp(found), {keys: None})))


def test_gradients_of_all_shards_are_divided_once():
    keys, x = tf.placeholder(tf.int32, [6]), tf.placeholder(tf.float32, [6, 4])
    places = tf.dynamic_partition(tf.range(6), keys, 2)
    parts = [tf.exp(part) for part in tf.dynamic_partition(x, keys, 2)]
    gradients = tf.gradients(tf.square(tf.dynamic_stitch(places, parts)), parts)
    made = after(simplify, flow([*gradients], {keys: (6,), x: (6, 4)}))
    assert "GatherV2" not in types(made)
    values = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    with tf.Session() as session:
        for found in ([0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1]):
            first, second = session.run(gradients, {keys: found, x: values})
            expected = 2 * np.exp(values)
            np.testing.assert_allclose(first, expected[np.array(found) == 0], rtol=1e-5)
            np.testing.assert_allclose(second, expected[np.array(found) == 1], rtol=1e-5)


@pytest.mark.parametrize("rows", [[2, 2], [1, 3]])
def test_parts_must_have_as_many_rows_as_keys(rows):
    keys = tf.placeholder(tf.int32, [4])
    places = tf.dynamic_partition(tf.range(4), keys, 2)
    parts = [tf.placeholder(tf.float32, [None, 2]) for _ in rows]
    merged = tf.dynamic_stitch(places, parts)
    fed = {part: np.ones([n, 2]) for part, n in zip(parts, rows, strict=True)}
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\.shape"):
            session.run(merged, {keys: [0, 0, 0, 1], **fed})
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"2 is not in \[0, 2\)"):
            session.run(merged, {keys: [0, 1, 2, 0], **fed})
