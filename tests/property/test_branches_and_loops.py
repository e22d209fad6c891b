"""Random nests of tf.cond and tf.while_loop compute what the same program computes in Python: both
raised to structured form and as primitives.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf

AS_IT_IS = tf.ConfigProto()
AS_IT_IS.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
VARIABLES = 3
variable = st.integers(0, VARIABLES - 1)


class Set(NamedTuple):
    """target = (left * factor + right + what is outside) % 11"""

    target: int
    left: int
    factor: int
    right: int
    outside: bool


class If(NamedTuple):
    """if variable > limit: then, else: otherwise"""

    variable: int
    limit: int
    then: list
    otherwise: list


class Loop(NamedTuple):
    """repeat the block (variable % 4) times, at most `most` times"""

    variable: int
    most: int | None
    block: list


def blocks(statement):
    return st.lists(statement, min_size=1, max_size=3)


assignment = st.builds(Set, variable, variable, st.integers(1, 3), variable, st.booleans())
statement = st.recursive(
    assignment,
    lambda inner: st.one_of(
        st.builds(If, variable, st.integers(0, 8), blocks(inner), blocks(inner)),
        st.builds(Loop, variable, st.none() | st.integers(0, 3), blocks(inner)),
    ),
    max_leaves=10,
)


def run_in_python(block, state):
    for s in block:
        if isinstance(s, Set):
            value = (state[s.left] * s.factor + state[s.right] + 5 * s.outside) % 11
            state = [value if i == s.target else v for i, v in enumerate(state)]
        elif isinstance(s, If):
            state = run_in_python(s.then if state[s.variable] > s.limit else s.otherwise, state)
        else:
            count = state[s.variable] % 4
            for _ in range(count if s.most is None else min(count, s.most)):
                state = run_in_python(s.block, state)
    return state


def build(block, state, outside):
    for s in block:
        if isinstance(s, Set):
            value = state[s.left] * s.factor + state[s.right]
            value = (value + outside if s.outside else value) % 11
            state = [value if i == s.target else v for i, v in enumerate(state)]
        elif isinstance(s, If):
            state = tf.cond(
                state[s.variable] > s.limit,
                lambda s=s, state=state: build(s.then, state, outside),
                lambda s=s, state=state: build(s.otherwise, state, outside),
            )
        else:
            count = state[s.variable] % 4
            state = tf.while_loop(
                lambda i, _, count=count: i < count,
                lambda i, inner, s=s: [i + 1, build(s.block, inner, outside)],
                [0, state],
                maximum_iterations=s.most,
            )[1]
    return state


@settings(max_examples=30)
@given(blocks(statement), st.lists(st.integers(0, 10), min_size=VARIABLES, max_size=VARIABLES))
def test_as_in_python(block, start):
    with tf.Graph().as_default() as graph:
        fed = [tf.placeholder(tf.int32, []) for _ in start]
        result = build(block, [tf.identity(t) for t in fed], tf.constant(5))
        names = [t.name for t in result]
        feeds = {t.name: v for t, v in zip(fed, start, strict=True)}
        with tf.Session() as session:
            found = session.run(names, feeds)
            again = session.run(names, feeds)
    expected = run_in_python(block, start)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again, expected)
    with tf.Graph().as_default():
        tf.import_graph_def(graph.as_graph_def(), name="")
        with tf.Session(config=AS_IT_IS) as session:
            np.testing.assert_array_equal(session.run(names, feeds), expected)
