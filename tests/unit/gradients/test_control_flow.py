"""Gradients through branches and loops: compared with finite differences, of any order, in all
forms of a step (primitives, structured, compiled), and the operations that they consist of.
"""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def session(form):
    options = tf.OptimizerOptions(
        opt_level=tf.OptimizerOptions.L0 if form == "primitives" else tf.OptimizerOptions.L1,
        global_jit_level={
            "structured": tf.OptimizerOptions.OFF,
            "compiled": tf.OptimizerOptions.ON_1,
        }.get(form, tf.OptimizerOptions.DEFAULT),
    )
    return tf.Session(
        config=tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=options))
    )


def run(fetches, feeds=None):
    """Return the results of a step in all forms, which must agree."""
    found = []
    for form in ("primitives", "structured", "compiled"):
        with session(form) as s:
            s.run(tf.global_variables_initializer())
            found.append(s.run(fetches, feeds))
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-6)
    return found[0]


def steps(n, body, start, **options):
    return tf.while_loop(
        lambda i, *_: i < n, lambda i, *v: (i + 1, *body(i, *v)), (0, *start), **options
    )[1:]


def loop(x):
    return steps(3, lambda i, y: [tf.sin(y) * x], [x])[0]


def branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * x, lambda: x * x * x)


def branch_in_loop(x):
    def body(i, y):
        return [tf.cond(tf.equal(i % 2, 0), lambda: tf.sin(y) * x, lambda: y * y + x)]

    return steps(4, body, [x])[0]


def loop_in_branch(x):
    return tf.cond(
        tf.reduce_sum(x) > 0, lambda: steps(3, lambda i, y: [y * tf.exp(-y) * x], [x])[0], lambda: x
    )


def loop_in_loop(x):
    def body(i, y):
        return steps(i + 1, lambda j, z: [tf.sin(z) * x + y * 0.1], [y])

    return steps(3, body, [x])[0]


def loop_in_branch_in_loop(x):
    def body(i, y):
        def inner():
            return steps(i, lambda j, z: [tf.sin(z) * x + y * 0.1], [y])[0]

        return [tf.cond(i > 1, inner, lambda: y * x)]

    return steps(4, body, [x])[0]


def branch_after_branch(x):
    first = tf.cond(x[0] > 0, lambda: x * x, lambda: x)
    return tf.cond(x[1] > 5, lambda: first, lambda: tf.sin(first) * x)


def scan(x):
    return tf.scan(lambda a, v: tf.sin(v) * a + v, x)


def growing(x):
    def body(y):
        return tf.concat([y * y[:1], x], 0)

    y = tf.while_loop(
        lambda y: tf.size(y) < 7, body, [x], shape_invariants=[tf.TensorShape([None])]
    )
    return y * tf.cast(tf.range(tf.size(y)), tf.float64)


def replaced(x):
    """The second variable has another shape in each iteration, and its history is dropped."""

    def body(y, z):
        return y * 2.0, tf.concat([tf.ones_like(z), y[:1]], 0)

    start = [x, tf.zeros([1], tf.float64)]
    shapes = [tf.TensorShape([2]), tf.TensorShape([None])]
    _, z = tf.while_loop(lambda y, z: tf.size(z) < 5, body, start, shape_invariants=shapes)
    return z * z


PROGRAMS = [
    loop,
    branch,
    branch_in_loop,
    loop_in_branch,
    loop_in_loop,
    loop_in_branch_in_loop,
    branch_after_branch,
    scan,
    growing,
    replaced,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_first_and_second_order(program):
    x = tf.placeholder(tf.float64, [2])
    point, weights = np.array([0.7, 0.2]), np.array([1.0, -2.0])
    first = tf.gradients(program(x), [x])[0]
    second = tf.gradients(tf.reduce_sum(first * weights), [x])[0]
    if second is None:
        second = tf.zeros_like(x)
    found = run(tf.stack([first, second]), {x: point})
    along = [tf.reduce_sum(program(x)), tf.reduce_sum(first * weights)]
    expected = np.zeros([2, 2])
    with session("structured") as s:
        for i, step in enumerate(1e-6 * np.eye(2)):
            ahead, behind = (s.run(along, {x: point + d}) for d in (step, -step))
            expected[:, i] = (np.array(ahead) - behind) / 2e-6
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_shapes_that_only_the_step_knows():
    x = tf.placeholder(tf.float64, [None])

    def body(i, y):
        return [tf.cond(i > 0, lambda: tf.sin(y * y) * x, lambda: y * x)]

    first = tf.gradients(steps(3, body, [x])[0], [x])[0]
    second = tf.gradients(first, [x])[0]
    point = np.array([0.3, 0.7, 0.2])
    found = run(second, {x: point})
    ahead, behind = (run(first, {x: point + d}) for d in (1e-6, -1e-6))
    np.testing.assert_allclose(found, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)


def test_fourth_order():
    x = tf.placeholder(tf.float64, [])
    y = steps(3, lambda i, y: [y * x], [x])[0]  # x to the fourth
    for _ in range(4):
        y = tf.gradients(y, [x])[0]
    assert run(y, {x: 1.5}) == 24


def test_a_loop_of_no_iterations_passes_gradients_on():
    n, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float64, [])
    along = tf.gradients(steps(n, lambda i, y: [y * x * 3.0], [x * x])[0], [x])[0]
    assert run(along, {n: 0, x: 2.0}) == 4
    assert run(along, {n: 1, x: 2.0}) == 36


def test_none_where_nothing_depends():
    x, w = tf.placeholder(tf.float64, []), tf.placeholder(tf.float64, [])
    y = steps(3, lambda i, y: [y * 2.0], [x])[0]
    z = tf.cond(x > 0, lambda: tf.ones_like(x), lambda: tf.zeros_like(x))
    assert tf.gradients(y, [w]) == [None]
    assert tf.gradients(z, [x, w]) == [None, None]
    assert tf.gradients(steps(3, lambda i, y: [y * x], [x], back_prop=False)[0], [x]) == [None]


@pytest.mark.parametrize("resource", [False, True])
def test_rows_of_a_table(resource):
    table = tf.get_variable("t", initializer=np.arange(8.0).reshape(4, 2), use_resource=resource)
    on = tf.placeholder(tf.bool, [])
    y = steps(3, lambda i, y: [y + tf.gather(table, [i, 3])], [tf.zeros([2, 2], tf.float64)])[0]
    z = tf.cond(on, lambda: tf.gather(table, [1, 1]), lambda: tf.ones([2, 2], tf.float64))
    in_loop, in_branch = tf.gradients(y, table)[0], tf.gradients(z, table)[0]
    assert isinstance(in_loop, tf.IndexedSlices)
    assert isinstance(in_branch, tf.IndexedSlices)
    dense = [tf.convert_to_tensor(g) for g in (in_loop, in_branch)]
    found = run(tf.stack(dense), {on: True})
    np.testing.assert_array_equal(found[0], np.transpose([[1, 1, 1, 3]] * 2))
    np.testing.assert_array_equal(found[1], np.transpose([[0, 2, 0, 0]] * 2))
    assert not run(dense[1], {on: False}).any()


def test_a_trained_loop():
    w = tf.get_variable("w", initializer=np.array([[0.5, 0.1], [0.2, 0.3]]), use_resource=True)
    c = tf.get_variable("c", initializer=np.float64(0.5), use_resource=True)

    def body(i, y):
        return [tf.cond(i > 1, lambda: tf.matmul(y, w), lambda: y * c)]

    y = steps(4, body, [tf.constant([[1.0, 2.0]], tf.float64)])[0]
    along = tf.gradients(y, [w, c])
    row = np.array([[1.0, 2.0]]) * 0.25
    weights = np.array([[0.5, 0.1], [0.2, 0.3]])
    right = row.T @ (weights @ np.ones([2, 1])).T + (row @ weights).T @ np.ones([1, 2])
    np.testing.assert_allclose(run(along[0]), right)
    np.testing.assert_allclose(run(along[1]), 4 * (row @ weights @ weights).sum())


def test_what_two_gradients_need_is_saved_once():
    x = tf.placeholder(tf.float64, [])
    y = steps(3, lambda i, y: [tf.sin(y) * x], [x])[0]

    def pushes():
        graph = tf.get_default_graph()
        return len([op for op in graph.get_operations() if op.type == "TensorListPushBack"])

    first = tf.gradients(y, [x])[0]
    before = pushes()
    second = tf.gradients(y * y, [x])[0]
    assert pushes() == before > 0
    value, a, b = run([y, first, second], {x: 1.3})
    np.testing.assert_allclose(b, 2 * value * a)


def test_of_an_imported_loop():
    x = tf.placeholder(tf.float64, [2], name="x")
    y = branch_in_loop(x)
    expected = run(tf.gradients(y, [x])[0], {x: [0.7, 0.2]})
    saved = tf.train.export_meta_graph()
    with tf.Graph().as_default() as graph:
        tf.train.import_meta_graph(saved)
        x, y = (graph.get_tensor_by_name(t.name) for t in (x, y))
        found = run(tf.gradients(y, [x])[0], {x: [0.7, 0.2]})
    np.testing.assert_allclose(found, expected)
