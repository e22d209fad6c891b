"""Every way to run a step runs it compiled as well: partial runs, traces, callables, deadlines."""

import threading

import numpy as np
import pytest

import headrace as tf
from tests.unit.compile.steps import assert_close, assert_tiers_agree, clusters, session, uniform


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def chain(x):
    """A few operations: enough to be worth compiling."""
    return tf.sqrt(tf.square(tf.tanh(x * 2)) + 1)


class TestWays:
    def test_partial_runs(self):
        x, y = tf.placeholder(tf.float32, [5]), tf.placeholder(tf.float32, [5])
        first = chain(x)
        second = chain(first * y)
        a, b = uniform(5), uniform(5, seed=1)
        with session(jit=True) as run, session(jit=False) as plain:
            handle = run.partial_run_setup([first, second], [x, y])
            assert_close(run.partial_run(handle, first, {x: a}), plain.run(first, {x: a}))
            wanted = plain.run(second, {x: a, y: b})
            assert_close(run.partial_run(handle, second, {y: b}), wanted)

    def test_traces_show_the_cluster(self):
        x = tf.placeholder(tf.float32, [5])
        y = chain(x)
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        with session(jit=True) as run:
            run.run(y, {x: uniform(5)}, options=options, run_metadata=metadata)
        names = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
        assert any(name.endswith("/cluster") for name in names), names

    def test_callables_and_deadlines(self):
        x = tf.placeholder(tf.float32, [None])
        y = chain(x)
        with session(jit=True) as run:
            function = run.make_callable(y, [x])
            for n in (1, 3, 1):
                a = uniform(n)
                wanted = np.sqrt(np.tanh(a * 2) ** 2 + 1)
                assert_close(function(a), wanted)
                limited = run.run(y, {x: a}, options=tf.RunOptions(timeout_in_ms=60_000))
                assert_close(limited, wanted)

    def test_more_shapes_than_are_specialised_for(self):
        x = tf.placeholder(tf.float32, [None, None])
        y = tf.reduce_sum(chain(x), 0)
        with session(jit=True) as run:
            for _ in range(2):
                for n in range(1, 13):
                    a = uniform(n, 13 - n)
                    wanted = np.sqrt(np.tanh(a * 2) ** 2 + 1).sum(0)
                    assert_close(run.run(y, {x: a}), wanted)

    def test_threads_share_a_session(self):
        x = tf.placeholder(tf.float32, [64])
        v = tf.Variable(np.zeros(64, np.float32))
        update = v.assign_add(chain(x) * 0 + 1).op
        failures = []

        def work(run):
            try:
                for _ in range(50):
                    run.run(update, {x: np.ones(64)})
            except Exception as error:
                failures.append(error)

        with session(jit=True) as run:
            run.run(v.initializer)
            threads = [threading.Thread(target=work, args=(run,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures
            assert run.run(v).tolist() == [200.0] * 64


class TestValues:
    @pytest.mark.parametrize("rank", range(7))
    @pytest.mark.parametrize("dtype", [tf.float64, tf.int32, tf.float16])
    def test_ranks(self, rank, dtype):
        shape = [2, 3, 1, 5, 2, 2][:rank]
        x = tf.placeholder(dtype, shape)
        order = list(range(rank))[::-1]
        y = tf.transpose(x * x + x, order) + tf.cast(rank + 1, dtype)
        fed = (uniform(*shape) * 9).astype(dtype.as_numpy_dtype)
        fetches = [y, tf.reduce_max(y), tf.reduce_sum(x, list(range(0, rank, 2)), keepdims=True)]
        assert clusters(fetches, {x: fed})
        assert_tiers_agree(fetches, {x: fed})

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 2)])
    def test_nothing_among_something(self, shape):
        x, y = tf.placeholder(tf.float32, shape), tf.placeholder(tf.float32, [4, shape[-1]])
        empty = chain(x)
        fetches = [empty, tf.reduce_sum(empty, 0), tf.reduce_max(empty), chain(y)]
        fetches += [tf.concat([tf.reshape(empty, [-1]), tf.reshape(chain(y), [-1])], 0)]
        assert_tiers_agree(fetches, {x: np.zeros(shape), y: uniform(4, shape[-1])})

    def test_a_feed_is_never_written(self):
        x = tf.placeholder(tf.float32, [64])
        a = uniform(64)
        before = a.copy()
        y = chain(x)
        with session(jit=True) as run:
            first = run.run([x, y], {x: a})
            second = run.run([x, y], {x: a * 2})
        assert np.array_equal(a, before)
        assert not np.array_equal(first[1], second[1])
