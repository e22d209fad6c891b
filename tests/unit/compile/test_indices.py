"""Rows by indices that a step computes: compiled and interpreted steps agree, errors included."""

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import assert_tiers_agree, clusters, session, uniform

WORDS, SIZE = 12, 5


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def table(request):
    with tf.Graph().as_default():
        start = uniform(WORDS, SIZE)
        yield tf.get_variable("table", initializer=start, use_resource=request.param)


def lookup(table):
    """Rows of int32 and int64 words below each other, and gradient descent on just these."""
    words = tf.placeholder(tf.int32, [2, 3], name="words")
    drawn = tf.placeholder(tf.int64, [4], name="drawn")
    ids = tf.concat([tf.cast(tf.reshape(words, [-1]), tf.int64), drawn, [0, 11]], 0)
    rows = tf.nn.embedding_lookup(table, ids)
    loss = tf.reduce_sum(tf.square(rows))
    (slope,) = tf.gradients(loss, [table])
    train = tf.scatter_sub(table, slope.indices, 0.1 * slope.values)
    return words, drawn, [loss, train]


def fed(words, drawn):
    """Words of which some come twice."""
    return {words: np.array([[3, 1, 3], [11, 0, 7]]), drawn: np.array([3, 5, 5, 0])}


def test_rows_are_looked_up_and_updated_in_one_cluster(table):
    words, drawn, fetches = lookup(table)
    (cluster,) = clusters([fetches[0]], fed(words, drawn), [fetches[1].op])
    names = {type(call.kernel).__name__ for call in cluster.plan.calls}
    assert {"GatherRows", "ScatterRows"} <= names
    assert_tiers_agree(fetches, fed(words, drawn))


@pytest.mark.parametrize("bad", [-1, WORDS, 2**31 - 1])
@pytest.mark.parametrize("where", ["words", "drawn"])
def test_an_index_that_is_none_is_refused_before_anything_is_written(table, where, bad):
    words, drawn, fetches = lookup(table)
    feeds = fed(words, drawn)
    feeds[{"words": words, "drawn": drawn}[where]].flat[2] = bad
    messages = []
    for jit in (False, True):
        with session(jit) as run:
            run.run(tf.global_variables_initializer())
            with pytest.raises(tf.errors.InvalidArgumentError, match=str(bad)) as error:
                run.run(fetches, feeds)
            messages.append(error.value.message)
            assert np.array_equal(run.run(table), uniform(WORDS, SIZE))
    assert messages[0] == messages[1]


def test_constants_that_are_no_indices_stay_outside(table):
    words = tf.placeholder(tf.int32, [3])
    rows = tf.nn.embedding_lookup(table, tf.concat([words, [WORDS]], 0)) * 2.0
    with session(True) as run, pytest.raises(tf.errors.InvalidArgumentError, match=f"{WORDS}"):
        run.run(tf.global_variables_initializer())
        run.run(tf.reduce_sum(tf.square(rows)), {words: [0, 1, 2]})


def test_indices_that_are_computed_are_found_by_the_interpreter(table):
    words = tf.placeholder(tf.int32, [3])
    rows = tf.nn.embedding_lookup(table, words * 2 + 1)
    fetches = tf.reduce_sum(tf.square(rows), 1)
    feeds = {words: np.array([0, 5, 2])}
    kernels = [type(c.kernel).__name__ for k in clusters([fetches], feeds) for c in k.plan.calls]
    assert "GatherRows" not in kernels
    assert_tiers_agree(fetches, feeds)


def test_what_the_interpreter_needs_first_leaves_one_cluster():
    with tf.Graph().as_default():
        words = tf.placeholder(tf.int32, [6])
        x = tf.placeholder(tf.float32, [6, 4])
        w = tf.get_variable("w", initializer=uniform(4, 4))
        h = tf.tanh(tf.matmul(x, w))
        places = tf.where(tf.equal(tf.cast(words, tf.int64), 1))  # however many there are
        chosen = tf.scatter_nd(places, tf.ones_like(places[:, 0], tf.float32), [6])
        loss = tf.reduce_sum(tf.square(tf.matmul(h, w)) * chosen[:, None])
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        feeds = {words: np.array([1, 0, 1, 2, 1, 0]), x: uniform(6, 4)}
        assert len(clusters([loss], feeds, [train])) == 1
        assert_tiers_agree([loss, train], feeds)


def test_rows_that_rows_lead_to(table):
    """Each lookup asks once where its indices come from, not twice as often as the one before."""
    ids = tf.placeholder(tf.int32, [4])
    nexts = tf.constant([(5 * i + 1) % WORDS for i in range(WORDS)])
    for _ in range(40):
        ids = tf.gather(nexts, ids)
    fetch = tf.reduce_sum(tf.nn.embedding_lookup(table, ids), 1)
    start = next(op for op in fetch.graph.get_operations() if op.type == "Placeholder")
    assert_tiers_agree(fetch, {start.outputs[0]: np.array([0, 3, 11, 7])})
