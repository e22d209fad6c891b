"""Changes of distinct rows: which steps get known sizes, and that their results don't change."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.pipeline import Options, compile_step

START = np.sin(np.arange(12.0)).reshape(6, 2).astype("f4")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def nodes(fetches, targets, feeds):
    """The types of the nodes that a step consists of after the optimiser."""
    seen = []

    def watch(name, flow):
        if name == "dead":
            seen[:] = [n.type for n in flow.nodes if n.constant is None]

    shapes = [tuple(f.shape.as_list()) for f in feeds]
    compile_step(fetches, targets, feeds, shapes, Options(jit="off"), watch)
    return seen


def embedding(optimizer, use_resource, rows=4):
    ids = tf.placeholder("int32", [rows], name="ids")
    table = tf.get_variable("table", initializer=START, use_resource=use_resource)
    loss = tf.reduce_sum(tf.square(tf.gather(table, ids) - 1.0))
    return ids, table, optimizer.minimize(loss)


def optimizers():
    return [
        tf.train.AdagradOptimizer(0.1),
        tf.train.AdamOptimizer(0.1),
        tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        tf.contrib.opt.LazyAdamOptimizer(0.1),
    ]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("use_resource", [False, True])
def test_no_sizes_are_left_open(number, use_resource):
    ids, _, train = embedding(optimizers()[number], use_resource)
    found = nodes([], [train], [ids])
    assert "_UniqueRows" in found
    assert "Unique" not in found


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("use_resource", [False, True])
def test_compiled_interpreted_and_as_they_are(number, use_resource):
    found = []
    for jit, level in ((0, -1), (-1, 0), (1, 0)):
        config = tf.ConfigProto()
        config.graph_options.optimizer_options.global_jit_level = jit
        config.graph_options.optimizer_options.opt_level = level
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            ids, _, train = embedding(optimizers()[number], use_resource)
            session.run(tf.global_variables_initializer())
            for rows in ([1, 4, 1, 1], [0, 4, 4, 2]):
                session.run(train, {ids: rows})
            found.append(session.run(tf.global_variables()))
    for plain, optimised, compiled in zip(*found, strict=True):
        np.testing.assert_array_equal(optimised, plain)
        np.testing.assert_allclose(compiled, plain, rtol=1e-6, atol=1e-7)
    assert (found[2][0][[3, 5]] == START[[3, 5]]).all()


@pytest.mark.parametrize("jit", [-1, 1])
def test_indices_out_of_range_are_refused(jit):
    rows = tf.placeholder("int32", [3])
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = jit
    table = tf.get_variable("table", initializer=START)
    slices = tf.IndexedSlices(tf.ones([3, 2]), rows)
    train = tf.train.AdagradOptimizer(0.1).apply_gradients([(slices, table)])
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        for bad in (6, -1):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"Index {bad} at offset 1"):
                session.run(train, {rows: [2, bad, 2]})
        np.testing.assert_array_equal(session.run(table), START)


def test_what_only_happens_to_be_the_number_of_rows_stays():
    ids = tf.placeholder("int32", [4], name="ids")
    distinct, positions = tf.unique(ids)
    table = tf.get_variable("table", initializer=START)
    sums = tf.math.unsorted_segment_sum(tf.ones([4, 2]), positions, tf.reduce_max(positions) + 1)
    train = tf.scatter_add(table, distinct, sums)
    assert "Unique" in nodes([], [train.op], [ids])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([distinct, train], {ids: [3, 1, 3, 3]})[0].tolist() == [3, 1]
        np.testing.assert_allclose(session.run(table)[[1, 3]], START[[1, 3]] + [[1], [3]])
