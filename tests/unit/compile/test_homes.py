"""Pieces of joins are computed in place; epilogues read parts of arrays. Both tiers agree."""

from collections import Counter

import pytest

import headrace as tf
from tests.unit.compile.steps import assert_tiers_agree, clusters, uniform

ROWS, SIZE = 16, 32


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def feeds():
    """x and y."""
    return {
        tf.placeholder(tf.float32, [ROWS, SIZE], name=name): uniform(ROWS, SIZE, seed=i)
        for i, name in enumerate("xy")
    }


def labels(fetches, feeds):
    """How many calls with each label the step's one cluster makes; those of copies are "copy"."""
    (cluster,) = clusters([fetches], feeds)
    return Counter(call.label for call in cluster.plan.calls)


def product(x, seed):
    return tf.matmul(x, tf.constant(uniform(SIZE, SIZE, seed=seed)))


@pytest.mark.parametrize("axis", [0, 1])
def test_maps_make_their_pieces_in_place(feeds, axis):
    x, y = feeds
    joined = tf.concat([tf.tanh(x), tf.exp(y), tf.sin(x)], axis)
    fetch = tf.reduce_sum(tf.square(joined), 0)
    assert "copy" not in labels(fetch, feeds)
    assert_tiers_agree(fetch, feeds)


def test_products_make_rows_in_place_and_columns_are_copied(feeds):
    x, y = feeds
    pieces = [product(x, 2), tf.tanh(product(y, 3))]
    down, across = (tf.reduce_sum(tf.square(tf.concat(pieces, axis)), 0) for axis in (0, 1))
    assert "copy" not in labels(down, feeds)
    assert labels(across, feeds)["copy"] == 2
    assert_tiers_agree([down, across], feeds)


def test_a_piece_has_one_home_and_many_readers(feeds):
    x, y = feeds
    piece, other = tf.tanh(x), tf.exp(y)
    joins = [
        tf.concat([piece, other], 0),
        tf.concat([other, piece, piece], 0),
        tf.concat([piece, other], 1),
        tf.concat([other * 2.0, piece[:3]], 0),
    ]
    fetches = [tf.reduce_sum(tf.square(j), 0) for j in joins]
    fetches += [product(piece, 2), joins[0], other]
    assert_tiers_agree(fetches, feeds)


def test_joins_of_joins(feeds):
    x, y = feeds
    steps, h = [], x
    for i in range(3):
        h = tf.tanh(product(h, i) + y)
        gates = tf.concat([tf.sigmoid(h), tf.exp(h)], 1)
        steps.append(gates)
    joined = tf.concat(steps, 0)
    fetch = tf.matmul(joined, joined, transpose_a=True)
    assert labels(fetch, feeds)["copy"] == 6  # columns that products make
    assert_tiers_agree([fetch, h], feeds)


def test_reshaped_and_odd_pieces(feeds):
    x, y = feeds
    flat = tf.reshape(tf.tanh(x), [-1])
    odd = tf.concat([tf.exp(y)[0, :3], flat, tf.reduce_sum(tf.sin(x), 1)], 0)
    assert_tiers_agree([tf.square(odd), flat * 2.0], feeds)


def test_what_is_padded_is_stored_after_the_rest(feeds):
    x, _ = feeds
    padded = tf.pad(tf.tanh(x), [[1, 2], [3, 0]])
    assert_tiers_agree(tf.square(padded) + 1.0, feeds)


@pytest.mark.parametrize("given", ["computed", "fed", "variable"])
def test_products_add_parts_of_arrays(feeds, given):
    x, y = feeds
    long = {
        "computed": lambda: tf.concat([tf.tanh(x), tf.exp(y), y], 0) * 3.0,
        "fed": lambda: tf.placeholder(tf.float32, [3 * ROWS, SIZE]),
        "variable": lambda: tf.get_variable("v", initializer=uniform(3 * ROWS, SIZE, seed=9)),
    }[given]()
    if given == "fed":
        feeds[long] = uniform(3 * ROWS, SIZE, seed=9)
    parts = tf.split(long, 3, 0)
    fetches = [product(x, i) + part for i, part in enumerate(parts)]
    fetches.append(tf.nn.relu(product(y, 4) + long[2, :] * parts[1]))
    assert_tiers_agree(fetches, feeds)


def test_a_part_is_added_in_the_product(feeds):
    x, y = feeds
    above, below = tf.split(product(tf.concat([x, y], 0), 2), 2, 0)
    fetch = tf.tanh(product(tf.tanh(product(x, 3) + above), 4) + below)
    assert set(labels(fetch, feeds)) <= {"MatMul", "MatMul_1", "MatMul_2", "copy"}
    assert_tiers_agree(fetch, feeds)


def test_slopes_take_the_place_of_logits(feeds):
    x, y = feeds
    logits = product(x, 2) + y
    labels = tf.constant(list(range(ROWS)))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    (slope,) = tf.gradients(losses, [logits])
    fetches = [tf.reduce_sum(losses), tf.matmul(slope, slope, transpose_a=True)]
    (cluster,) = clusters(fetches, feeds)
    (loss,) = (c for c in cluster.plan.calls if type(c.kernel).__name__ == "Rows")
    given, _, _, made = (cluster.plan.buffers[b] for b in loss.buffers)
    assert (given.kind, given.offset) == (made.kind, made.offset) == ("arena", made.offset)
    assert_tiers_agree(fetches, feeds)


def test_slopes_spare_the_pieces_of_logits_that_others_read_later(feeds):
    x, y = feeds
    piece = tf.exp(x)
    logits = tf.concat([piece, tf.sin(y)], 0)
    labels = tf.constant(list(range(ROWS)) * 2)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    (slope,) = tf.gradients(losses, [logits])
    later = piece * tf.reduce_max(slope)
    assert_tiers_agree([losses, tf.matmul(slope, slope, transpose_a=True), later], feeds)
