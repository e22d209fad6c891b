"""Random graphs with state, order and fed tensors: an optimised step agrees with the original, bit
for bit, run after run, errors included.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf

# What each instruction makes of one or two tensors of any known rank.
PURE = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: tf.maximum(a, b),
    "neg": lambda a, b: -a,
    "identity": lambda a, b: tf.identity(a),
    "stop": lambda a, b: tf.stop_gradient(a),
    "one": lambda a, b: a * 1.0,
    "zero": lambda a, b: a + 0.0,
    "negative_zero": lambda a, b: -0.0 + a,
    "less_zero": lambda a, b: a - 0.0,
    "over_one": lambda a, b: a / 1.0,
    "square": lambda a, b: a**2.0,
    "infinite": lambda a, b: a / tf.zeros_like(a),
    "flat": lambda a, b: tf.reshape(a, [-1]),
    "same": lambda a, b: tf.reshape(a, tf.shape(a)),
    "like": lambda a, b: tf.reshape(a, tf.shape(b)),
    "turned": lambda a, b: tf.transpose(a),
    "sum": lambda a, b: tf.reduce_sum(a),
    "rows": lambda a, b: tf.reduce_sum(a, axis=0, keepdims=True),
    "nothing": lambda a, b: tf.reduce_sum(a, axis=[]),
    "count": lambda a, b: a * tf.cast(tf.size(b), tf.float32),
    "zeros": lambda a, b: tf.zeros_like(a),
    "ones": lambda a, b: tf.ones_like(a),
    "halves": lambda a, b: tf.concat(tf.split(a, 1, axis=0), 0),
    "joined": lambda a, b: tf.split(tf.concat([a, a], 0), 2, axis=0)[1],
    "stacked": lambda a, b: tf.unstack(tf.stack([a, b]))[0],
    "whole": lambda a, b: a[:],
    "first": lambda a, b: a[:1],
    "padded": lambda a, b: tf.pad(a, tf.zeros([tf.rank(a), 2], tf.int32)),
    "chosen": lambda a, b: tf.where(tf.fill(tf.shape(a), True), a, tf.zeros_like(a)),
    "where": lambda a, b: tf.boolean_mask(a, a > 0),
    "random": lambda a, b: a + tf.random_uniform(tf.shape(a), seed=3),
    "default": lambda a, b: tf.placeholder_with_default(a, a.shape),
    "variable": lambda a, b: a,
}
# What changes a variable, given a tensor.
WRITES = {
    "assign": lambda v, a: tf.assign(v, tf.fill([3], tf.reduce_sum(a))),
    "assign_add": lambda v, a: tf.assign_add(v, tf.fill([3], tf.reduce_mean(a))),
    "assign_sub": lambda v, a: tf.assign_sub(v, [1.0, 2.0, 3.0]),
    "reshaped": lambda v, a: tf.assign(v, tf.reshape(a, [-1]), validate_shape=False),
    "check": lambda v, a: tf.Assert(tf.reduce_all(a < 1e4), [a]),
}


@st.composite
def programs(draw):
    """(name, operands, control inputs) by number; numbers count what was made before."""
    names = st.sampled_from([*PURE, *WRITES, "snapshot", "read", "dereferenced", "resource"])
    operand = st.integers(0, 30)
    controls = st.lists(operand, max_size=2)
    one = st.tuples(names, operand, operand, controls)
    return draw(st.lists(one, min_size=1, max_size=14))


def build(program):
    """The graph of a program: what is fed, the tensors that it makes, what initialises it."""
    x = tf.placeholder(tf.float32, [None, 3])
    plain = tf.Variable([1.0, 2.0, 3.0], use_resource=False)
    resource = tf.Variable([0.5, -1.0, 2.0], use_resource=True)
    tensors, made = [x, x * 2.0], [x.op]
    for name, i, j, controls in program:
        a, b = tensors[i % len(tensors)], tensors[j % len(tensors)]
        with tf.control_dependencies([made[c % len(made)] for c in controls]):
            try:
                if name in PURE:
                    new = PURE[name](a, b)
                elif name in WRITES:
                    target = resource if j % 2 and name.startswith("assign") else plain
                    new = WRITES[name](target, a)
                elif name == "snapshot":
                    new = plain.value() * 1.0
                elif name == "dereferenced":
                    new = tf.negative(plain._ref())
                else:
                    new = (plain if name == "read" else resource).read_value()
            except ValueError:
                continue  # shapes that can't go together
        if isinstance(new, tf.Tensor) and not new.dtype._is_ref_dtype:
            tensors.append(new)
        made.append(new if isinstance(new, tf.Operation) else new.op)
    return x, tensors, made, [plain, resource]


def outcome(session, fetches, feeds=None):
    """What a run gives: shapes and bytes, or an error."""
    try:
        values = session.run(fetches, feeds)
    except tf.errors.OpError as error:
        return type(error), str(error)
    return [None if v is None else (np.shape(v), np.asarray(v).tobytes()) for v in values]


def configured(**options):
    """The configuration of a session that interprets its steps."""
    asked = tf.OptimizerOptions(global_jit_level=tf.OptimizerOptions.OFF, **options)
    return tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=asked))


OPTIMISED = configured()
AS_IS = configured(opt_level=tf.OptimizerOptions.L0)


@settings(max_examples=150)
@given(programs(), st.data())
def test_an_optimised_step_is_the_step(program, data):
    with tf.Graph().as_default():
        x, tensors, made, variables = build(program)
        start = tf.global_variables_initializer()
        wanted = data.draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=4, unique=True))
        run = data.draw(st.lists(st.sampled_from(made[1:] or [start]), max_size=2, unique=True))
        fed = data.draw(st.sampled_from(tensors))
        with tf.Session(config=OPTIMISED) as optimised, tf.Session(config=AS_IS) as original:
            optimised.run(start)
            original.run(start)
            for rows in data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
                feeds = {x: np.linspace(-2, 3, rows * 3, dtype=np.float32).reshape(rows, 3)}
                if fed.shape.is_fully_defined():
                    feeds[fed] = np.full(fed.shape.as_list(), 7, np.float32)
                expected = outcome(original, [*wanted, *run], feeds)
                assert outcome(optimised, [*wanted, *run], feeds) == expected
                if isinstance(expected, tuple) and any(name == "check" for name, *_ in program):
                    break  # what ran before an error, where checks steer the step, isn't said
                assert outcome(optimised, variables) == outcome(original, variables)
