"""Random ops in compiled steps: the numbers, and how generators move, are the interpreter's."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from tests.unit.compile.steps import clusters, results, session, uniform


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(7)
        yield graph


def kernels(fetches, feeds=None):
    found = clusters(fetches, feeds)
    return [type(call.kernel).__name__ for cluster in found for call in cluster.plan.calls]


def draws():
    """One op of each kind that is compiled, and feeds: the seed of stateless ops."""
    seed = tf.placeholder("int32", [2])
    floats = ("float32", "float16", "bfloat16")
    fetches = [
        *(tf.random_uniform([5, 33], dtype=dtype) for dtype in (*floats, "float64")),
        *(tf.random_normal([5, 33], dtype=dtype) for dtype in floats),
        *(tf.truncated_normal([5, 33], dtype=dtype) for dtype in floats),
        tf.random_uniform([41], -3, 17, "int32"),
        tf.random_uniform([41], -3, 1 << 40, "int64"),
        tf.random.stateless_uniform([33], seed),
        tf.random.stateless_truncated_normal([33], seed),
        tf.random.stateless_uniform([33], seed, 0, 9, tf.int32),
    ]
    return fetches, {seed: np.array([-5, 9])}


def assert_equal(found, wanted):
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(f, w)


def test_compiled_numbers_are_the_interpreted_ones():
    fetches, feeds = draws()
    assert kernels(fetches, feeds).count("RandomNumbers") == len(fetches)
    found, wanted = (results(jit, fetches, feeds, 3)[0] for jit in (True, False))
    for f, w in zip(found, wanted, strict=True):
        assert_equal(f, w)


def test_a_step_goes_on_where_the_other_tier_stopped():
    """By default the first run is interpreted and the second compiled."""
    fetches, feeds = draws()
    wanted = results(False, fetches, feeds, 4)[0]
    with tf.Session() as run:
        for expected in wanted:
            assert_equal(run.run(fetches, feeds), expected)


def test_steps_share_the_generator_of_an_op():
    x = tf.random_uniform([10])
    wanted = [r[0] for r in results(False, [x], None, 4)[0]]
    with session(True) as run:
        found = [run.run(f) for f in (x, [x, x + 1], x * 1, [x])]
    assert_equal([np.ravel(f[0] if isinstance(f, list) else f) for f in found], wanted)


def test_threads_take_disjoint_numbers():
    x = tf.random_uniform([1000])
    wanted = np.sort([r[0] for r in results(False, [x], None, 16)[0]], axis=0)
    with session(True) as run, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: run.run(x), range(16)))
    np.testing.assert_array_equal(np.sort(found, axis=0), wanted)


def test_dropout_is_two_kernels_and_its_gradient_has_the_same_mask():
    x = tf.placeholder("float32", [8, 100])
    y = tf.nn.dropout(tf.tanh(x), rate=0.4, seed=3)
    (dx,) = tf.gradients(y, x)
    value = uniform(8, 100) + 2
    assert kernels([y], {x: value}) == ["RandomNumbers", "Map"]
    with session(True) as run:
        got, slope = run.run([y, dx], {x: value})
    assert 0 < (got == 0).sum() < got.size
    np.testing.assert_array_equal(got == 0, slope == 0)


def test_bounds_that_are_wrong_or_not_known_are_for_the_op_itself():
    low = tf.placeholder("int32", [])
    drawn = tf.random_uniform([9], low, 5, "int32")
    assert "RandomNumbers" not in kernels([drawn], {low: 0})
    wrong = tf.random_uniform([9], 5, 5, "int32") * 2
    with session(True) as run, pytest.raises(InvalidArgumentError, match="minval"):
        run.run(wrong)


def test_a_generator_stays_where_it_is_when_what_it_waits_for_fails():
    ok = tf.placeholder("bool", [])
    with tf.control_dependencies([tf.Assert(ok, ["no"])]):
        x = tf.random_uniform([10])
    wanted = [r[0] for r in results(False, [x], {ok: True}, 2)[0]]
    with session(True) as run:
        found = [run.run(x, {ok: True})]
        with pytest.raises(InvalidArgumentError):
            run.run(x, {ok: False})
        found.append(run.run(x, {ok: True}))
    assert_equal(found, wanted)


def test_a_seed_may_be_computed_in_the_cluster():
    seed = tf.placeholder("int64", [2])
    x = tf.random.stateless_normal([100], seed * 2 + 1) * 3.0
    feeds = {seed: np.array([4, -7])}
    assert kernels([x], feeds)[1:3] == ["StreamOfSeed", "RandomNumbers"]
    found, wanted = (results(j, [x], feeds, 1)[0][0] for j in (True, False))
    assert_equal(found, wanted)
