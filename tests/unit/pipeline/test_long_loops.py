"""Loops that are compiled while they run: only the time shows it."""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.pipeline import Options, compile_at, long_loops, optimise, prepare, tiers
from tests.unit.compile.steps import assert_close, session
from tests.unit.session.devices import late

COUNT, BEFORE = 12, 5  # iterations, and how many of them are interpreted


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def compiled(monkeypatch):
    """The programs of the loops that were compiled while they ran."""
    monkeypatch.setattr(long_loops, "patience", lambda loop: BEFORE)
    found = []
    make = long_loops._alone

    def alone(loop):
        found.append(loop.name)
        return make(loop)

    monkeypatch.setattr(long_loops, "_alone", alone)
    return found


def loop(body, start, count):
    return tf.while_loop(lambda i, _: i < count, lambda i, x: (i + 1, body(i, x)), [0, start])[1]


def arithmetic(count, x):
    return loop(lambda i, y: tf.sin(y) * x + tf.reduce_mean(y), x, count)


def products(count, x):
    return loop(lambda i, y: tf.tanh(tf.matmul([y], tf.ones([3, 3])))[0], x, count)


def nested(count, x):
    return loop(lambda i, y: loop(lambda j, z: z * 0.9 + y, y, 2), x, count)


def branches(count, x):
    return loop(lambda i, y: tf.cond(i % 3 > 0, lambda: y * x, lambda: y - 1.0), x, count)


def random_numbers(count, x):
    return loop(lambda i, y: y + tf.random_uniform([3], seed=3), x, count)


def variables(count, x):
    seen = tf.get_variable("seen", initializer=1.0)
    table = tf.get_variable("table", initializer=np.float32([1, 2, 3]), use_resource=True)
    return loop(lambda i, y: y + table * tf.assign_add(seen, 1.5), x, count)


def tensor_array(count, x):
    array = tf.TensorArray("float32", COUNT, element_shape=[3])
    return loop(lambda i, a: a.write(i, x * tf.cast(i, "float32")), array, count).stack()


def gradient(count, x):
    return tf.gradients(arithmetic(count, x), x)[0]


def sizes_that_change(count, x):
    return tf.while_loop(
        lambda i, y: i < count,
        lambda i, y: (i + 1, tf.concat([y, x], 0)),
        [0, x],
        [tf.TensorShape([]), tf.TensorShape([None])],
    )[1]


def python(count, x):
    return loop(lambda i, y: tf.ensure_shape(tf.py_func(np.sin, [y], "float32"), [3]), x, count)


def strings(count, x):
    return loop(lambda i, s: s + tf.as_string(i), tf.constant("counted: "), count)


@pytest.mark.parametrize(
    "make",
    [
        *(arithmetic, products, nested, branches, random_numbers, variables, tensor_array),
        *(gradient, sizes_that_change, python, strings),
    ],
)
def test_results_are_the_interpreters(make, compiled):
    count, x = tf.placeholder(tf.int32, [], "count"), tf.placeholder(tf.float32, [3], "x")
    result = make(count, x)
    feeds = {count: COUNT, x: [0.5, -1.0, 2.0]}

    def run(session, steps=2):
        with session as run:
            run.run(tf.global_variables_initializer())
            found = [run.run(result, feeds) for _ in range(steps)]
            return [*found, *run.run([v.value() for v in tf.global_variables()])]

    wanted, found = run(session(False)), run(tf.Session())
    assert compiled
    for f, w in zip(found, wanted, strict=True):
        assert_close(np.asarray(f), np.asarray(w))


def test_it_is_compiled_when_it_is_due(compiled):
    count = tf.placeholder(tf.int32, [])
    result = loop(lambda i, y: y * 2.0, 1.0, count)
    with tf.Session() as run:
        assert run.run(result, {count: BEFORE - 1}) == 2.0 ** (BEFORE - 1) and not compiled
        assert run.run(result, {count: BEFORE}) == 2.0**BEFORE
    assert not compiled  # the second run is compiled whole
    for jit in (False, True):
        with session(jit) as run:
            run.run(result, {count: COUNT})
    assert not compiled


def test_an_inner_loop_counts_in_all_its_runs(compiled):
    count = tf.placeholder(tf.int32, [])
    with tf.Session() as run:
        found = run.run(loop(lambda i, y: loop(lambda j, z: z + 1, y, 2), 0, count), {count: 4})
    assert found == 8 and len(compiled) == 1


def test_its_errors_name_the_line(compiled):
    count = tf.placeholder(tf.int32, [])
    table = tf.constant([1.0] * 10)
    result = loop(lambda i, y: y + tf.gather(table, i, name="beyond"), 0.0, count)
    with tf.Session() as run:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_long_loops\.py") as caught:
            run.run(result, {count: COUNT})
        assert compiled and caught.value.op.name.endswith("beyond")


@pytest.mark.parametrize("state", [False, True])
def test_deadlines(state, compiled):
    seen = tf.get_variable("seen", initializer=1.0)
    step = (lambda i: i * 0.5 + tf.assign(seen, 0.0)) if state else (lambda i: i * 0.5)
    endless = tf.while_loop(lambda i: i < 1.0, step, [0.0], name="endless")
    with tf.Session() as run:
        run.run(tf.global_variables_initializer())
        error = late(lambda t: run.run(endless, options=tf.RunOptions(timeout_in_ms=t)))
    assert "test_long_loops.py" in str(error)
    assert compiled


def test_closing_the_session(compiled, monkeypatch):
    begun, make = threading.Event(), long_loops._alone
    monkeypatch.setattr(long_loops, "_alone", lambda loop: begun.set() or make(loop))
    endless = tf.while_loop(lambda i: i < 1.0, lambda i: i * 0.5, [0.0])
    run = tf.Session()
    closer = threading.Thread(target=lambda: begun.wait() and run.close())
    closer.start()
    with pytest.raises(tf.errors.CancelledError):
        run.run(endless)
    closer.join()


def test_interrupting_the_compiler(compiled, monkeypatch):
    count = tf.placeholder(tf.int32, [])
    inner = loop(lambda i, y: loop(lambda j, z: z + 1, y, 2), 0, count)
    make = long_loops._alone

    def interrupted(loop):
        monkeypatch.setattr(long_loops, "_alone", make)
        raise KeyboardInterrupt

    monkeypatch.setattr(long_loops, "_alone", interrupted)
    with tf.Session() as run:
        with pytest.raises(KeyboardInterrupt):
            run.run(inner, {count: COUNT})
        assert run.run(inner, {count: COUNT}) == 2 * COUNT


def when(result, feeds=(), shapes=()):
    return compile_at(
        optimise(prepare([result], [], feeds, Options()), shapes, Options()), "second"
    )


@pytest.mark.parametrize(("length", "expected"), [(20, 2), (5000, 1)])
def test_long_sequences_are_heavy(length, expected):
    x = tf.placeholder(tf.float32, [32, None, 3])
    cell = tf.nn.rnn_cell.BasicLSTMCell(16)
    outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    assert when(tf.reduce_sum(outputs), [x], [(32, length, 3)]) == expected


def test_patience_goes_by_what_an_iteration_does():
    def patience(size):
        result = loop(lambda i, y: tf.matmul(y, y), tf.ones([size, size]), 3)
        flow = optimise(prepare([result], [], [], Options()), [], Options())
        (node,) = (n for n in flow.nodes if n.type == "_While")
        return tiers.patience(node)

    assert patience(2000) == 1
    assert 1 < patience(200) < patience(20) < 1e5
