"""Branches and loops: their graphs, node by node, and what they compute."""

import numpy as np

from tests.oracle.case import case
from tests.oracle.cases_array import dynamic, ramp


def truth(tf, value):
    return tf.placeholder_with_default(value, [], name="p")


@case
def cond_captures(tf):
    x = tf.constant(1.0, name="x")
    return tf.cond(truth(tf, True), lambda: x + 1, lambda: tf.constant(3.0))


@case
def cond_returns_outer(tf):
    x, y = tf.constant(1.0, name="x"), tf.constant([1, 2], name="y")
    p = truth(tf, False)
    return tf.cond(p, lambda: [x, y], lambda: [x * 2, y]), tf.cond(p, fn1=lambda: x, fn2=lambda: x)


@case
def cond_structures(tf):
    x = tf.constant(1.0, name="x")
    p = truth(tf, True)
    return [
        tf.cond(p, lambda: {"a": x, "b": (x, [2])}, lambda: {"a": 5.0, "b": (x + x, [3])}),
        tf.cond(p, lambda: [x], lambda: [2.0]),
        tf.cond(p, lambda: (x,), lambda: (2.0,), strict=True),
    ]


@case
def cond_operations(tf):
    v = tf.Variable(1.0, use_resource=False, name="v")
    w = tf.Variable(2.0, use_resource=True, name="w")
    done = tf.cond(truth(tf, False), tf.no_op, lambda: v.assign_add(4.0).op)
    with tf.control_dependencies([done]):
        return tf.cond(truth(tf, True), lambda: v.read_value() + w, w.read_value), v.read_value()


@case
def cond_sparse(tf):
    s = tf.SparseTensor([[0, 1], [2, 0]], [1.0, 2.0], [3, 4])
    t = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([1]))
    p = truth(tf, True)
    return [
        tf.cond(p, lambda: s, lambda: tf.SparseTensor([[1, 1]], [5.0], [3, 4])),
        tf.cond(p, lambda: t, lambda: tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([0]))),
    ]


@case
def cond_shapes(tf):
    x = dynamic(tf, ramp(tf, 2, 3), [None, 3])
    return tf.cond(truth(tf, False), lambda: ramp(tf, 4, 3), lambda: x), tf.cond(
        truth(tf, True), lambda: ramp(tf, 4), lambda: x
    )


@case
def cond_in_cond(tf):
    x = tf.constant(1.0, name="x")
    return tf.cond(truth(tf, True), lambda: tf.cond(x > 2, lambda: x + 1, lambda: x), lambda: 2.0)


@case
def cond_under_dependencies(tf):
    a, x = tf.constant(1, name="a"), tf.constant(1.0, name="x")
    with tf.control_dependencies([a]):
        y = tf.cond(x > 1, lambda: tf.constant(1), lambda: a)
    with tf.device("/cpu:0"), tf.name_scope("outer"):
        return y, tf.cond(x > 0, lambda: x * 2, lambda: x, name="named")


@case
def while_counts(tf):
    x = tf.constant(1.5, name="x")
    return tf.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, a * x), [0, 2.0])


@case
def while_single(tf):
    return [
        tf.while_loop(lambda i: i < 10, lambda i: i + 1, [0]),
        tf.while_loop(lambda i: i < 10, lambda i: [i + 1], [tf.constant(0)], name="named"),
        tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0], return_same_structure=True),
        tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0], parallel_iterations=1),
    ]


@case
def while_maximum(tf):
    return [
        tf.while_loop(lambda i: i < 10, lambda i: i + 1, [0], maximum_iterations=4),
        tf.while_loop(
            lambda i, j: i < 3,
            lambda i, j: [i + 1, j + i],
            [0, 1],
            maximum_iterations=tf.constant(7),
        ),
        tf.while_loop(
            lambda i: i < 3,
            lambda i: [i + 1],
            [0],
            None,
            maximum_iterations=9,
            return_same_structure=True,
        ),
    ]


@case
def while_structures(tf):
    def body(i, state):
        a, (b, c) = state["a"], state["b"]
        return i + 1, {"a": a + b, "b": (b * 2, c)}

    state = {"a": tf.zeros([2]), "b": (tf.constant([1.0, 2.0]), tf.constant("s"))}
    return tf.while_loop(lambda i, state: i < 3, body, (0, state))


@case
def while_invariants(tf):
    x = tf.constant([1.0])
    n = [tf.TensorShape([]), tf.TensorShape([None])]
    return [
        tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a, a], 0)), [0, x], n),
        tf.while_loop(
            lambda i, a: i < 3,
            lambda i, a: [i + 1, tf.concat([a, a], 0)],
            [0, x],
            n,
            maximum_iterations=2,
        ),
    ]


@case
def while_sparse(tf):
    s = tf.SparseTensor([[0, 1], [2, 0]], [1.0, 2.0], [3, 4])

    def body(i, s):
        return i + 1, tf.SparseTensor(s.indices, s.values * 2.0, s.dense_shape)

    return tf.while_loop(lambda i, s: i < 3, body, [0, s])


@case
def while_of_constants(tf):
    def body(i, a):
        return i + tf.constant(1), tf.constant(7.0) + tf.constant(1.0)

    return tf.while_loop(lambda i, a: i < tf.constant(3), body, [0, 0.0])


@case
def while_returns_outer(tf):
    x = tf.constant(5.0, name="x")
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, x), [0, x])


@case
def while_variables(tf):
    v = tf.Variable(1.0, use_resource=False, name="v")
    w = tf.Variable(2.0, use_resource=True, name="w")

    def body(i):
        with tf.control_dependencies([tf.assign_add(v, 1.0), w.assign_add(2.0)]):
            return tf.identity(i) + 1

    done = tf.while_loop(lambda i: i < 5, body, [0], parallel_iterations=1)
    with tf.control_dependencies([done]):
        return done, v.read_value(), w.read_value()


@case
def while_in_while(tf):
    x, y = tf.constant(2.0, name="x"), tf.constant(3, name="y")

    def body(i, a):
        inner = tf.while_loop(lambda j, b: j < y, lambda j, b: (j + 1, b * x + a), [i, x])
        return i + 1, inner[1]

    return tf.while_loop(lambda i, a: i < 4, body, [0, 1.0])


@case
def cond_in_while(tf):
    x = tf.constant(3.0, name="x")

    def body(i, a):
        return i + 1, tf.cond(i > 3, lambda: a * x, lambda: a + tf.constant(2.0))

    return tf.while_loop(lambda i, a: i < 10, body, [0, 2.0])


@case
def while_in_cond(tf):
    x = tf.constant(2.0, name="x")

    def loop():
        return tf.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, a * x), [0, x])

    return tf.cond(truth(tf, True), loop, lambda: (3, x))


@case
def while_in_cond_in_while(tf):
    x = tf.constant(2.0, name="x")

    def inner():
        return tf.while_loop(lambda j, b: j < 3, lambda j, b: (j + 1, b + x), [0, x])[1]

    def body(i, a):
        return i + 1, a + tf.cond(tf.equal(i % 2, 0), inner, lambda: x)

    return tf.while_loop(lambda i, a: i < 5, body, [0, 0.0])


@case
def while_under_dependencies(tf):
    a = tf.constant(1, name="a")
    with tf.control_dependencies([a]):
        return tf.while_loop(lambda i: i < 10, lambda i: i + tf.constant(1), [0])


@case
def while_with_dependencies(tf):
    x = tf.constant(1.0, name="x")

    def body(i):
        with tf.control_dependencies([x]):
            z = tf.constant(1)
        with tf.control_dependencies([z, i]):
            return i + tf.constant(2) + len(tf.no_op().outputs)

    return tf.while_loop(lambda i: i < 10, body, [0])


@case
def nested_under_dependencies(tf):
    a = tf.constant(1, name="a")

    def body(i):
        with tf.control_dependencies([i]):
            j = tf.while_loop(lambda j: j < 3, lambda j: j + 1, [a])
            return tf.cond(j > 2, lambda: i + tf.constant(1), lambda: tf.constant(100))

    return tf.while_loop(lambda i: i < 3, body, [0])


@case
def while_leaves_context(tf):
    def body(i):
        with tf.control_dependencies(None):
            x = tf.constant(2, name="outside")
        with tf.init_scope():
            y = tf.constant(3, name="also_outside")
        return i + x * y

    return tf.while_loop(lambda i: i < 3, body, [0])


@case
def variables_in_contexts(tf):
    def body(i):
        with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
            v = tf.get_variable("v", [], tf.int32, tf.ones_initializer(), use_resource=False)
            w = tf.get_variable("w", [], tf.int32, tf.ones_initializer(), use_resource=True)
        return i + v + w

    x = tf.while_loop(lambda i: i < 3, body, [0])
    return x, tf.cond(truth(tf, True), lambda: body(x), lambda: x)


@case
def devices_in_loops(tf):
    x = tf.constant(1.0, name="x")

    def body(i, a):
        with tf.device("/cpu:0"):
            b = a + x
        with tf.colocate_with(i):
            return i + 1, b * 2.0

    return tf.while_loop(lambda i, a: i < 3, body, [0, 1.0])


@case
def groups_in_contexts(tf):
    v = tf.Variable(1.0, use_resource=False, name="v")

    def update():
        return tf.group(v.assign_add(1.0), tf.no_op())

    def body(i):
        with tf.control_dependencies([tf.cond(i > 1, update, tf.no_op)]):
            return tf.tuple([i + 1, i])[0]

    return tf.while_loop(lambda i: i < 5, body, [0])


@case
def while_tensor_arrays(tf):
    xs = tf.TensorArray(tf.float32, 4, name="xs").unstack(ramp(tf, 4, 2))

    def body(i, total, ys):
        total += xs.read(i)
        return i + 1, total, ys.write(i, total * 2)

    ys = tf.TensorArray(tf.float32, 4, name="ys")
    _, total, ys = tf.while_loop(lambda i, *_: i < 4, body, (0, tf.zeros([2]), ys))
    return total, ys.stack()


@case
def cond_tensor_arrays(tf):
    xs = tf.TensorArray(tf.float32, 2, name="xs").unstack(ramp(tf, 2, 2))
    return tf.cond(truth(tf, True), lambda: xs, lambda: xs.identity()).stack()


@case
def asserts(tf):
    x = dynamic(tf, tf.constant([2.0, 3.0]))
    checks = [
        tf.Assert(tf.reduce_all(x > 1), [x, "bad"]),
        tf.Assert(True, [x], summarize=7),
        tf.Assert(True, ["text", 3]),
        tf.assert_equal(x, [2.0, 3.0]),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(x)


@case
def case_by_predicates(tf):
    x = dynamic(tf, tf.constant(1.5), [])
    return [
        tf.case([(x > 1, lambda: x), (x > 2, lambda: x + 1)], default=lambda: x * 2),
        tf.case([(x > 3, lambda: x), (x > 2, lambda: x + 1)], lambda: x * 2, exclusive=True),
        tf.case([(x > 2, lambda: x), (x > 1, lambda: x + 1)]),
        tf.case([(x > 2, lambda: x), (x > 1, lambda: x + 1)], exclusive=True, name="named"),
        tf.case({x > 1: lambda: x}, default=lambda: x * 2),
        tf.case(((x > 1, lambda: [x]),), default=lambda: [x * 2], strict=True),
    ]


@case(graph=False, imports=False)
def case_by_number(tf):
    i = dynamic(tf, tf.constant(1), [])
    branches = [lambda: 1.0, lambda: 2.0, lambda: 3.0]
    return [
        tf.switch_case(i, branches),
        tf.switch_case(i + 4, branches),
        tf.switch_case(i - 2, {1: lambda: 7.0, 0: lambda: 6.0}),
        tf.switch_case(i + 4, branches, default=lambda: 9.0),
    ]


@case
def maps(tf):
    x = ramp(tf, 3, 2)
    y = dynamic(tf, ramp(tf, 3, 4, name="y"), [None, 4])
    return [
        tf.map_fn(lambda row: row * 2, x),
        tf.map_fn(lambda e: e[0] + tf.reduce_sum(e[1]), (x, y), dtype=tf.float32),
        tf.map_fn(lambda row: (row, tf.cast(row, tf.int32)), y, dtype=(tf.float32, tf.int32)),
        tf.map_fn(lambda n: n + 1, tf.constant([1, 2, 3]), parallel_iterations=1, name="m"),
    ]


@case
def scans(tf):
    x = ramp(tf, 3, 2)
    y = dynamic(tf, ramp(tf, 4, 2, name="y"), [None, 2])
    return [
        tf.scan(lambda a, row: a + row, x),
        tf.scan(lambda a, row: a + row, y, tf.zeros([2]), reverse=True),
        tf.scan(lambda a, row: a * row, y, reverse=True),
        tf.scan(lambda a, e: (a[0] + e[0], a[1] - e[1]), (x, x), (np.zeros(2, "f"), tf.ones([2]))),
    ]


@case
def folds(tf):
    x = ramp(tf, 3, 2)
    y = dynamic(tf, ramp(tf, 4, 2, name="y"), [None, 2])
    return [
        tf.foldl(lambda a, row: a + row, x),
        tf.foldl(lambda a, row: a * 2 + row, y, tf.zeros([2])),
        tf.foldr(lambda a, row: a * 2 + row, y, tf.zeros([2])),
        tf.foldr(lambda a, row: a * 2 - row, x),
        tf.foldr(lambda a, row: a * 2 - row, y),
    ]


@case
def variables_in_maps(tf):
    def double(x):
        with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
            v = tf.get_variable("v", [], tf.float32, tf.ones_initializer(), use_resource=False)
            w = tf.get_variable("w", [], tf.float32, tf.ones_initializer(), use_resource=True)
        return x * (v + w)

    return tf.map_fn(double, ramp(tf, 3, 2))


@case
def initialized_values(tf):
    v = tf.Variable(3.0, use_resource=False, name="v")
    w = tf.Variable(4.0, use_resource=True, name="w")
    return v.initialized_value() * 2, w.initialized_value()
