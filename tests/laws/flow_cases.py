"""Loops and branches whose gradients are counted, under TensorFlow 1.15.5 and under Headrace alike:
this file must stay valid Python 3.7. A case is a function of `tf` that returns ys and xs.
"""

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def count(tf, name, gate):
    """How many operations tf.gradients adds to a case, by the graph's own count."""
    with tf.Graph().as_default() as graph:
        ys, xs = CASES[name](tf)
        before = graph._last_id
        tf.gradients(ys, xs, gate_gradients=gate)
        return graph._last_id - before


def count_twice(tf, graph_def, ys, xs):
    """How many operations tf.gradients adds to a graph when it's called, and called again."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        ys = [graph.get_tensor_by_name(name) for name in ys]
        xs = [graph.get_tensor_by_name(name) for name in xs]
        starts = [tf.placeholder(y.dtype, y.shape) if y.dtype.is_complex else None for y in ys]
        counts = [graph._last_id]
        for _ in range(2):
            tf.gradients(ys, xs, grad_ys=starts)
            counts.append(graph._last_id)
        return [counts[1] - counts[0], counts[2] - counts[1]]


def inputs(tf, *shapes):
    return [tf.placeholder(tf.float32, shape) for shape in shapes]


def repeat(tf, step, *start, **options):
    """Three iterations of a loop whose variables `step` maps to new ones."""
    found = tf.while_loop(
        lambda i, *_: i < 3, lambda i, *v: (i + 1,) + tuple(step(*v)), (0,) + start, **options
    )
    return found[1:]


def for_shapes(name, build, **shapes):
    """Register a case for each of several shapes of its inputs."""
    for kind, shape in shapes.items():
        CASES[name + "_" + kind] = lambda tf, shape=shape: build(tf, shape)


SHAPES = {"scalar": [], "vector": [2], "unknown_size": [None], "unknown_rank": None}


def unary_step(tf, shape):
    (x,) = inputs(tf, shape)
    return repeat(tf, lambda v: [tf.sin(v)], x), x


def invariant(tf, shape):
    x, w = inputs(tf, shape, shape)
    return repeat(tf, lambda v: [v * w], x), [x, w]


def only_the_invariant(tf, shape):
    x, w = inputs(tf, shape, shape)
    return repeat(tf, lambda v: [v * w], x), w


def unused_result(tf, shape):
    x, z = inputs(tf, shape, shape)
    return repeat(tf, lambda v, u: [tf.sin(v) * u, u + 1.0], x, z)[0], [x, z]


def unrelated_variable(tf, shape):
    x, z = inputs(tf, shape, shape)
    return repeat(tf, lambda v, u: [tf.sin(v), u * 2.0], x, z)[0], [x, z]


def value_used_twice(tf, shape):
    (x,) = inputs(tf, shape)
    return repeat(tf, lambda v: [tf.sin(v) * tf.exp(v) * 2.0 + v * v], x), x


def limited(tf, shape):
    (x,) = inputs(tf, shape)
    step = tf.while_loop(
        lambda v: tf.reduce_sum(v) < 3.0, lambda v: tf.sin(v) * v, [x], maximum_iterations=4
    )
    return step, x


def one_after_the_other(tf, shape):
    (x,) = inputs(tf, shape)
    (y,) = repeat(tf, lambda v: [tf.sin(v)], x)
    return repeat(tf, lambda v: [tf.exp(v)], y), x


def nested(tf, shape):
    x, w = inputs(tf, shape, shape)
    return repeat(tf, lambda v: repeat(tf, lambda u: [tf.sin(u) * v * w], v), x), [x, w]


def branches(tf, shape):
    x, w = inputs(tf, shape, shape)
    choice = tf.placeholder(tf.bool, [])
    return tf.cond(choice, lambda: tf.sin(x), lambda: x * w), [x, w]


def unused_of_branches(tf, shape):
    (x,) = inputs(tf, shape)
    choice = tf.placeholder(tf.bool, [])
    found = tf.cond(choice, lambda: (tf.sin(x), x), lambda: (x * 2.0, tf.exp(x)))
    return found[0], x


def branches_in_a_loop(tf, shape):
    (x,) = inputs(tf, shape)
    choice = tf.placeholder(tf.bool, [])
    step = lambda v: [tf.cond(choice, lambda: tf.sin(v) * v, lambda: v * 2.0)]  # noqa: E731
    return repeat(tf, step, x), x


def loop_in_a_branch(tf, shape):
    (x,) = inputs(tf, shape)
    choice = tf.placeholder(tf.bool, [])
    return tf.cond(choice, lambda: repeat(tf, lambda v: [tf.sin(v)], x)[0], lambda: x), x


for build in (
    unary_step,
    invariant,
    only_the_invariant,
    unused_result,
    unrelated_variable,
    value_used_twice,
    limited,
    one_after_the_other,
    nested,
    branches,
    unused_of_branches,
    branches_in_a_loop,
    loop_in_a_branch,
):
    for_shapes(build.__name__, build, **SHAPES)


@case
def rows_of_a_table_in_a_loop(tf):
    table = tf.get_variable("table", [5, 2])
    return (
        tf.while_loop(
            lambda i, _: i < 3,
            lambda i, v: (i + 1, v + tf.gather(table, i)),
            (0, tf.zeros([2])),
        ),
        table,
    )


@case
def rows_of_a_table_in_branches(tf):
    table = tf.get_variable("table", [5, 2])
    choice = tf.placeholder(tf.bool, [])
    return (
        tf.cond(choice, lambda: tf.gather(table, [1]), lambda: tf.gather(table, [2]) * 2.0),
        table,
    )


@case
def resource_variable_in_branches(tf):
    v = tf.get_variable("v", [2], use_resource=True)
    choice = tf.placeholder(tf.bool, [])
    return tf.cond(choice, lambda: v * v, lambda: v * 2.0), v


@case
def branches_in_a_branch(tf):
    (x,) = inputs(tf, [])
    outer, inner = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])
    found = tf.cond(outer, lambda: tf.cond(inner, lambda: tf.sin(x), lambda: x), lambda: x * 2.0)
    return found, x


for_shapes(
    "map_fn",
    lambda tf, shape: mapped(tf, shape),
    known=[3, 2],
    unknown=[None, 2],
)
for_shapes(
    "scan",
    lambda tf, shape: scanned(tf, shape),
    known=[3, 2],
    unknown=[None, 2],
)


def mapped(tf, shape):
    x, w = inputs(tf, shape, [2])
    return tf.map_fn(lambda row: tf.sin(row) * w, x), [x, w]


def scanned(tf, shape):
    x, w = inputs(tf, shape, [2])
    return tf.scan(lambda a, row: tf.sin(row) * w + a, x), [x, w]


def recurrent(tf, cell, shape, lengths=False, resource=False):
    (x,) = inputs(tf, shape)
    with tf.variable_scope("net", use_resource=resource):
        outputs, _ = tf.nn.dynamic_rnn(
            cell(tf.nn.rnn_cell),
            x,
            sequence_length=tf.placeholder(tf.int32, shape[:1]) if lengths else None,
            dtype=tf.float32,
        )
    return tf.reduce_sum(outputs), tf.trainable_variables()


CELLS = {
    "basic": lambda cells: cells.BasicRNNCell(5),
    "lstm": lambda cells: cells.BasicLSTMCell(5),
    "gru": lambda cells: cells.GRUCell(5),
    "layers": lambda cells: cells.MultiRNNCell([cells.LSTMCell(5), cells.LSTMCell(4)]),
}
for name, cell in CELLS.items():
    for kind, shape in (("known", [2, 3, 4]), ("unknown", [None, None, 4])):
        for lengths in (False, True):
            key = "_".join([name, kind] + ["with_lengths"] * lengths)
            CASES[key] = lambda tf, options=(cell, shape, lengths): recurrent(tf, *options)
CASES["lstm_resource"] = lambda tf: recurrent(tf, CELLS["lstm"], [None, None, 4], resource=True)
