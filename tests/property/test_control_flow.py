"""Random nests of tf.cond and tf.while_loop have the values of the same program in Python, and the
gradients, of first and second order, of the graph that it unrolls to: as primitives, in structured
form and compiled.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf

VARIABLES = 3
variable = st.integers(0, VARIABLES - 1)


class Set(NamedTuple):
    """target = sin(left * factor) * right (+ what is outside)"""

    target: int
    left: int
    factor: float
    right: int
    outside: bool


class If(NamedTuple):
    """if sum(variable) > limit: then, else: otherwise"""

    variable: int
    limit: float
    then: list
    otherwise: list


class Loop(NamedTuple):
    """repeat the block `count` times, which only the step knows"""

    count: int
    block: list


def blocks(statement):
    return st.lists(statement, min_size=1, max_size=2)


factor = st.sampled_from([0.5, 1.25, -2.0])
assignment = st.builds(Set, variable, variable, factor, variable, st.booleans())
limit = st.sampled_from([-0.8123, 0.1237, 0.9171])
statement = st.recursive(
    assignment,
    lambda inner: st.one_of(
        st.builds(If, variable, limit, blocks(inner), blocks(inner)),
        st.builds(Loop, st.integers(0, 3), blocks(inner)),
    ),
    max_leaves=6,
)
programs = blocks(statement)
values = st.sampled_from([0.3, -0.7, 1.1, 0.05])
starts = st.lists(st.tuples(values, values), min_size=VARIABLES, max_size=VARIABLES)
OUTSIDE = np.array([0.4, -0.3])


def with_changed(state, i, value):
    return [value if k == i else v for k, v in enumerate(state)]


def unrolled(block, state, outside):
    """The values after a block, in Python, and beside each the same as a tensor."""
    for s in block:
        if isinstance(s, Set):
            pair = []
            for way, sin in enumerate((np.sin, tf.sin)):
                value = sin(state[s.left][way] * s.factor) * state[s.right][way]
                pair.append(value + outside[way] if s.outside else value)
            state = with_changed(state, s.target, pair)
        elif isinstance(s, If):
            taken = s.then if state[s.variable][0].sum() > s.limit else s.otherwise
            state = unrolled(taken, state, outside)
        else:
            for _ in range(s.count):
                state = unrolled(s.block, state, outside)
    return state


def nested(block, state, outside, one):
    for s in block:
        if isinstance(s, Set):
            value = tf.sin(state[s.left] * s.factor) * state[s.right]
            state = with_changed(state, s.target, value + outside if s.outside else value)
        elif isinstance(s, If):
            state = tf.cond(
                tf.reduce_sum(state[s.variable]) > s.limit,
                lambda s=s, state=state: nested(s.then, state, outside, one),
                lambda s=s, state=state: nested(s.otherwise, state, outside, one),
            )
        else:
            count = one * s.count
            state = tf.while_loop(
                lambda i, _, count=count: i < count,
                lambda i, inner, s=s: [i + 1, nested(s.block, inner, outside, one)],
                [0, state],
            )[1]
    return state


def gradients(state, xs):
    """Those of first order, and those of their weighted sum."""
    weights = np.array([1.0, -2.0])
    first = tf.gradients(state, xs, unconnected_gradients="zero")
    total = sum(tf.reduce_sum(g * weights * (i + 1)) for i, g in enumerate(first))
    return [*first, *tf.gradients(total, xs, unconnected_gradients="zero")]


def check(block, start, *forms):
    with tf.Graph().as_default():
        fed = [tf.placeholder(tf.float64, [2]) for _ in range(VARIABLES + 1)]
        one = tf.placeholder(tf.int32, [])
        given = [np.array(v) for v in (*start, OUTSIDE)]
        feeds = {**dict(zip(fed, given, strict=True)), one: 1}
        pairs = list(zip(given, fed, strict=True))
        straight = unrolled(block, pairs[:-1], pairs[-1])
        result = nested(block, [tf.identity(t) for t in fed[:-1]], fed[-1], one)
        with tf.Session() as session:
            right = session.run(gradients([t for _, t in straight], fed), feeds)
        expected = [*(v for v, _ in straight), *right]
        fetches = [*result, *gradients(result, fed)]
        for options in forms:
            graph_options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(**options))
            with tf.Session(config=tf.ConfigProto(graph_options=graph_options)) as session:
                found = session.run(fetches, feeds)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


PRIMITIVES = {"opt_level": tf.OptimizerOptions.L0}
STRUCTURED = {"global_jit_level": tf.OptimizerOptions.OFF}
COMPILED = {"global_jit_level": tf.OptimizerOptions.ON_1}


@settings(max_examples=12)
@given(programs, starts)
def test_interpreted(block, start):
    check(block, start, PRIMITIVES, STRUCTURED)


@settings(max_examples=4)
@given(programs, starts)
def test_compiled(block, start):
    check(block, start, COMPILED)
