"""A plan's executables: one per combination of feed shapes, up to a limit; never a wrong one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.session import specialisations


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def optimised(monkeypatch):
    """The shapes that steps were optimised for."""
    seen = []
    original = specialisations.optimise

    def note(step, shapes, options):
        seen.append(tuple(shapes))
        return original(step, shapes, options)

    monkeypatch.setattr(specialisations, "optimise", note)
    return seen


def test_each_combination_of_shapes_is_optimised_once(optimised):
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [3])
    total = tf.reduce_sum(x) + y
    with tf.Session() as session:
        for n in (1, 2, 1, 2):
            assert session.run(total, {x: np.ones(n), y: np.zeros(3)}).tolist() == [n] * 3
    assert optimised == [((1,), (3,)), ((2,), (3,))]


def test_past_the_limit_the_step_runs_as_it_is(optimised):
    x = tf.placeholder(tf.float32, [None])
    y = x * 1.0 + tf.cast(tf.size(x), tf.float32)
    with tf.Session() as session:
        session._options = replace(session._options, specialisations=2)
        for n in range(1, 6):
            assert session.run(y, {x: np.zeros(n)}).tolist() == [n] * n
    assert len(optimised) == 2


def test_all_ways_of_running_share_the_executables(optimised):
    x = tf.placeholder(tf.float32, [None])
    y = x * 2.0
    with tf.Session() as session:
        session.run(y, {x: [1]})
        session.run([y], {x: [1]})
        session.run(y, {x: [1]}, options=tf.RunOptions(timeout_in_ms=60_000))
        session.make_callable(y, [x])([1])
    assert len(optimised) == 1


def test_a_variable_that_got_another_shape_is_seen_before_anything_happens():
    v = tf.Variable([1.0, 2.0], use_resource=False)
    count = tf.Variable(0, use_resource=False)
    grown = tf.assign(v, tf.placeholder_with_default([1.0, 2.0, 3.0], [None]), validate_shape=False)
    step = tf.assign_add(count, 1)
    # Static shapes say that this is v itself.
    y = tf.reshape(v._ref(), [2]) * 1.0
    z = tf.reduce_sum(tf.reshape(v._ref(), [-1]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([step, z]) == [1, 3]
        session.run(grown)
        assert session.run([step, z]) == [2, 6]
        assert session.run([step, z], options=tf.RunOptions(timeout_in_ms=60_000)) == [3, 6]
        with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
            session.run(y)
        assert session.run(count) == 3


def test_a_resource_variable_that_got_another_shape():
    v = tf.Variable([1.0, 2.0], use_resource=True)
    x = tf.placeholder(tf.float32, None)
    z = tf.reduce_sum(v.read_value() * 1.0)
    grow = tf.raw_ops.AssignVariableOp(resource=v.handle, value=x)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(z) == 3
        session.run(grow, {x: [1.0, 2.0, 3.0]})
        assert session.run(z) == 6


def test_many_threads_may_be_the_first():
    x = tf.placeholder(tf.float32, [None])
    y = tf.reduce_sum(x * 2.0)
    with tf.Session() as session, ThreadPoolExecutor(8) as pool:
        sizes = [n % 12 for n in range(200)]
        found = list(pool.map(lambda n: session.run(y, {x: np.ones(n)}), sizes))
    assert found == [2 * n for n in sizes]


def test_a_session_may_optimise_nothing(optimised):
    options = tf.OptimizerOptions(opt_level=tf.OptimizerOptions.L0)
    config = tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=options))
    with tf.Session(config=config) as session:
        assert session.run(tf.constant(2.0) * 3.0) == 6
    assert not optimised
