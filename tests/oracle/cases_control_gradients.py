"""Gradients through tf.cond and tf.while_loop. The backward graphs differ (Headrace saves values in
lists, and branches as a whole); values, what has no gradient and what is sparse do not.
"""

from tests.oracle.case import case


def point(tf, *values):
    return tf.placeholder_with_default(tf.constant(values, tf.float64), [len(values)])


def described(tf, gradients):
    """Gradients as dense tensors, each after a word of what it is."""
    found = []
    for g in gradients:
        kind = "none" if g is None else "slices" if isinstance(g, tf.IndexedSlices) else "dense"
        found += [tf.constant(kind)] + ([] if g is None else [tf.convert_to_tensor(g)])
    return found


def steps(tf, n, body, start, **options):
    """A loop of `n` steps."""
    return tf.while_loop(
        lambda i, *_: i < n, lambda i, *v: (i + 1,) + tuple(body(i, *v)), (0,) + start, **options
    )[1:]


@case(graph=False)
def cond_of_each_side(tf):
    x, y = point(tf, 2.0, 3.0), point(tf, 5.0, 7.0)
    pair = [
        tf.cond(tf.reduce_sum(x) > limit, lambda: x * y + x, lambda: tf.sin(y))
        for limit in (1.0, 9.0)
    ]
    return [described(tf, tf.gradients(z, [x, y])) for z in pair]


@case(graph=False)
def cond_with_nothing_to_differentiate(tf):
    x, y = point(tf, 2.0), point(tf, 3.0)
    z = tf.cond(x[0] > 1.0, lambda: tf.ones_like(x), lambda: x * 0.5)
    count = tf.cond(x[0] > 1.0, lambda: tf.shape(x), lambda: tf.shape(y))
    return described(
        tf, tf.gradients(z, [x, y]) + tf.gradients(x * tf.cast(count[0], tf.float64), [x, y])
    )


@case(graph=False)
def nested_conds(tf):
    x = point(tf, 2.0, -3.0)

    def inner():
        return tf.cond(x[1] > 0, lambda: x * 3.0, lambda: x * x * x[0])

    z = tf.cond(x[0] > 1.0, inner, lambda: x)
    return described(tf, tf.gradients(tf.exp(z), [x, z]))


@case(graph=False)
def case_of_three(tf):
    x = point(tf, 2.0)
    z = tf.case(
        [(x[0] < 0.0, lambda: x), (x[0] < 5.0, lambda: x * x), (x[0] < 7.0, lambda: x * x * x)],
        default=lambda: -x,
    )
    return described(tf, tf.gradients(z, [x]))


@case(graph=False)
def loop_with_invariants(tf):
    x, w, unused = point(tf, 1.0, 2.0), point(tf, 0.5, 0.25), point(tf, 1.0)
    (y,) = steps(tf, 4, lambda i, y: [tf.tanh(y * w + x)], (x,))
    return described(tf, tf.gradients(y, [x, w, unused]))


@case(graph=False)
def loop_that_swaps_its_variables(tf):
    x = point(tf, 1.5)
    a, c = steps(tf, 3, lambda i, a, c: (c, a * c), (x, x * 2.0))
    return [described(tf, tf.gradients(t, [x])) for t in (a, c, [a, c])]


@case(graph=False)
def loop_without_iterations(tf):
    x, w = point(tf, 1.5), point(tf, 2.0)
    (y,) = steps(tf, 0, lambda i, y: [y * w], (x,))
    return described(tf, tf.gradients(y, [x, w]))


@case(graph=False)
def loop_that_stops_by_value(tf):
    x = point(tf, 1.3)
    y = tf.while_loop(lambda y: y[0] < 50.0, lambda y: y * y + x, [x], maximum_iterations=9)
    return described(tf, tf.gradients(y, [x]))


@case(graph=False)
def loop_with_integers(tf):
    x = point(tf, 1.3)
    n, y = steps(tf, 3, lambda i, n, y: (n * 2, y * tf.cast(n, tf.float64)), (tf.constant(2), x))
    return described(tf, tf.gradients(y, [x])) + [n]


@case(graph=False)
def cond_in_a_loop(tf):
    x = point(tf, 0.7, 0.2)

    def body(i, y):
        return [tf.cond(tf.equal(i % 2, 0), lambda: tf.sin(y) * x, lambda: y * y + x)]

    (y,) = steps(tf, 5, body, (x,))
    return described(tf, tf.gradients(y, [x]))


@case(graph=False)
def loop_in_a_cond(tf):
    x = point(tf, 0.7, 0.2)
    pair = [
        tf.cond(x[0] > limit, lambda: steps(tf, 3, lambda i, y: [y * y + x], (x,))[0], lambda: x)
        for limit in (0.0, 1.0)
    ]
    return [described(tf, tf.gradients(z, [x])) for z in pair]


@case(graph=False)
def loop_in_a_loop(tf):
    x = point(tf, 0.7, 0.2)

    def body(i, y):
        return steps(tf, i + 1, lambda j, z: [tf.sin(z) * x + y * 0.1], (y,))

    (y,) = steps(tf, 3, body, (x,))
    return described(tf, tf.gradients(y, [x]))


@case(graph=False)
def loop_in_a_cond_in_a_loop(tf):
    x = point(tf, 0.7, 0.2)

    def body(i, y):
        def inner():
            return steps(tf, i, lambda j, z: [tf.sin(z) * x + y * 0.1], (y,))[0]

        return [tf.cond(i > 1, inner, lambda: y * x)]

    (y,) = steps(tf, 4, body, (x,))
    return described(tf, tf.gradients(y, [x]))


@case(graph=False)
def without_back_prop(tf):
    x = point(tf, 1.5)
    (y,) = steps(tf, 3, lambda i, y: [y * x], (x,), back_prop=False)
    return described(tf, tf.gradients(y, [x]) + tf.gradients(y * x, [x]))


@case(graph=False)
def stopped(tf):
    x, w = point(tf, 1.5), point(tf, 2.0)
    v = x * w
    (y,) = steps(tf, 3, lambda i, y: [y * v + tf.stop_gradient(y) * x], (x,))
    return described(tf, tf.gradients(y, [x, w], stop_gradients=[v]))


@case(graph=False)
def options_of_gradients(tf):
    x = point(tf, 1.5, 0.5)
    (y,) = steps(tf, 3, lambda i, y: [y * tf.cond(i > 1, lambda: x, lambda: y) + x], (x,))
    grads = tf.gradients(
        y, [x], grad_ys=[tf.constant([2.0, 3.0], tf.float64)], colocate_gradients_with_ops=True,
        gate_gradients=True, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
    )  # fmt: skip
    return described(tf, grads)


def both_kinds(tf, build):
    """What `build` makes with variables of references, and with those of resources."""
    found = []
    for resource in (False, True):
        with tf.variable_scope("resource" if resource else "ref", use_resource=resource):
            found += build(resource)
    return found


def table_of(tf):
    return tf.get_variable("table", initializer=tf.ones([4, 2]) * 0.5)


@case(graph=False)
def rows_of_a_table_in_a_loop(tf):
    def build(_):
        table = table_of(tf)

        def body(i, y):
            return [y * tf.nn.embedding_lookup(table, [i, 3])]

        return described(tf, tf.gradients(steps(tf, 3, body, (tf.ones([2, 2]),)), [table]))

    return both_kinds(tf, build)


@case(graph=False)
def rows_of_a_table_in_a_branch(tf):
    on = tf.placeholder_with_default(True, [])

    def build(_):
        table = table_of(tf)
        both = tf.cond(on, lambda: tf.gather(table, [1, 3]) * 2.0, lambda: tf.gather(table, [0, 1]))
        one = tf.cond(on, lambda: tf.ones([2, 2]), lambda: tf.gather(table, [0, 1]))
        mixed = tf.cond(on, lambda: table * table, lambda: tf.gather(table, [0, 1, 2, 3]))
        return described(tf, [tf.gradients(y, [table])[0] for y in (both, one, mixed)])

    return both_kinds(tf, build)


@case(graph=False)
def variables_in_loops_and_branches(tf):
    def build(resource):
        w = tf.get_variable("w", initializer=tf.constant([[1.0, 0.5], [0.25, 2.0]]))
        c = tf.get_variable("c", initializer=tf.constant(0.5))
        unused = tf.get_variable("unused", initializer=tf.constant(0.5))

        def body(i, y):
            y = tf.matmul(y, w)
            return [y * c if resource else tf.cond(i > 1, lambda: y * w[0], lambda: y * c)]

        (y,) = steps(tf, 4, body, (tf.constant([[1.0, 2.0]]),))
        z = tf.cond(tf.reduce_sum(y) > 0, lambda: y * c, lambda: y)
        return described(tf, tf.gradients(z, [w, c, unused]))

    return both_kinds(tf, build)


@case(graph=False)
def arrays_in_a_loop(tf):
    x = point(tf, 1.3, 0.2, 0.3)
    rows = tf.TensorArray(tf.float64, 3, clear_after_read=False).unstack(x)
    out = tf.TensorArray(tf.float64, 3)

    def body(i, h, out):
        total = rows.read(i) + rows.read(2 - i)
        return tf.sin(h + total), out.write(i, h * total)

    h, out = steps(tf, 3, body, (x[0], out))
    picked = out.gather([2, 0]) * [2.0, 3.0]
    return described(tf, tf.gradients([picked, h], [x]))


@case(graph=False)
def arrays_of_a_loop_joined(tf):
    x = point(tf, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    parts = tf.TensorArray(tf.float64, 3, infer_shape=False).split(x, [1, 2, 3])
    out = tf.TensorArray(tf.float64, 3, infer_shape=False)

    def body(i, out):
        part = parts.read(i)
        return [out.write(i, part * part * tf.cast(i + 1, tf.float64))]

    (out,) = steps(tf, 3, body, (out,))
    return described(tf, tf.gradients(out.concat() * tf.range(6.0, dtype=tf.float64), [x]))


@case(graph=False)
def array_written_in_branches(tf):
    x = point(tf, 1.3, 0.2, 0.3)
    out = tf.TensorArray(tf.float64, 3)

    def body(i, h, out):
        row = tf.cond(tf.equal(i, 1), lambda: h * h, lambda: tf.sin(h) * x[0])
        return row, out.write(i, row + x)

    h, out = steps(tf, 3, body, (x[1], out))
    return described(tf, tf.gradients([out.stack(), h], [x]))


@case(graph=False)
def maps_and_scans(tf):
    x = point(tf, 1.3, 0.2, 0.3)
    mapped = tf.map_fn(lambda v: tf.sin(v) * v * x[0], x)
    scanned = tf.scan(lambda a, v: tf.cond(v > 0.25, lambda: a * v, lambda: a + v * v), x)
    folded = tf.foldr(lambda a, v: a * v + x[1], x)
    return [described(tf, tf.gradients(t, [x])) for t in (mapped, scanned, folded)]


@case(graph=False)
def of_a_maps_map(tf):
    x = tf.reshape(point(tf, 1.3, 0.2, 0.3, 0.6), [2, 2])
    y = tf.map_fn(lambda row: tf.map_fn(lambda v: tf.sin(v) * row[0], row), x)
    return described(tf, tf.gradients(y * y, [x]))


@case(graph=False)
def sequences_of_lengths(tf):
    x = tf.reshape(point(tf, 1.3, 0.2, 0.3, 0.6, 0.1, 0.4), [3, 2])
    lengths = tf.constant([1, 3])

    def body(i, h, kept):
        new = tf.tanh(h * 0.5 + x[i])

        def masked():
            return tf.where(i < lengths, new, h)

        h = tf.cond(i < tf.reduce_min(lengths), lambda: new, masked)
        return h, kept + h

    h, kept = steps(tf, tf.reduce_max(lengths), body, (tf.zeros([2], tf.float64),) * 2)
    return described(tf, tf.gradients([h, kept * kept], [x]))


@case(graph=False)
def twice_and_inside(tf):
    x = point(tf, 0.7, 0.2)

    def body(i, y):
        return [tf.gradients(tf.sin(y) * x, y)[0] + x]

    (y,) = steps(tf, 3, body, (x,))
    return described(tf, tf.gradients(y, [x]) + tf.gradients(y * y, [x]))
