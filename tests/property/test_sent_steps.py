"""A step that went through a message computes the same, bit for bit: random steps with state,
loops, branches and gradients, interpreted, as they are, and compiled.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from tests.property import test_control_flow as control_flow
from tests.property import test_optimised as optimised
from tests.property.random_steps import IMAGES, MATRICES, Step
from tests.property.test_compiled import ARITHMETIC, DTYPES, MOVES, STATE, run
from tests.sent_steps import steps_are_sent


def bits(values):
    return [(np.shape(v), np.asarray(v).dtype, np.asarray(v).tobytes()) for v in values]


@pytest.mark.parametrize("compiled", [False, True])
def test_steps(compiled):
    @given(st.data())
    @settings(max_examples=12)
    def check(data):
        with tf.Graph().as_default():
            step = Step(data.draw)
            images = data.draw(st.booleans(), label="images")
            kinds = ["convolution", "pool"] if images else ["matmul", *MOVES]
            step.start([tf.float32] if images else DTYPES, IMAGES if images else MATRICES)
            for _ in range(data.draw(st.integers(3, 9), label="length")):
                step.grow([*kinds, *ARITHMETIC, *STATE])
            fetches = [data.draw(st.sampled_from(step.values)), step.values[-1]]
            expected = run(compiled, fetches, step.feeds, step)
            with steps_are_sent() as seen:
                found = run(compiled, fetches, step.feeds, step)
            assert seen and bits(found) == bits(expected)

    check()


@given(control_flow.programs, control_flow.starts)
@settings(max_examples=8)
def test_loops_and_branches(block, start):
    with tf.Graph().as_default():
        fed = [tf.placeholder(tf.float64, [2]) for _ in range(control_flow.VARIABLES + 1)]
        one = tf.placeholder(tf.int32, [])
        given = [np.array(v) for v in (*start, control_flow.OUTSIDE)]
        feeds = {**dict(zip(fed, given, strict=True)), one: 1}
        result = control_flow.nested(block, [tf.identity(t) for t in fed[:-1]], fed[-1], one)
        fetches = [*result, *control_flow.gradients(result, fed)]
        for form in (control_flow.PRIMITIVES, control_flow.STRUCTURED, control_flow.COMPILED):
            asked = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(**form))
            with tf.Session(config=tf.ConfigProto(graph_options=asked)) as session:
                expected = session.run(fetches, feeds)
            session = tf.Session(config=tf.ConfigProto(graph_options=asked))
            with session, steps_are_sent() as seen:
                found = session.run(fetches, feeds)
            assert seen and bits(found) == bits(expected)


@given(optimised.programs(), st.data())
@settings(max_examples=40)
def test_state(program, data):
    with tf.Graph().as_default():
        x, tensors, made, variables = optimised.build(program)
        start = tf.global_variables_initializer()
        wanted = data.draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=4, unique=True))
        targets = data.draw(st.lists(st.sampled_from(made[1:] or [start]), max_size=2, unique=True))
        feeds = {x: np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)}

        def outcomes(config):
            with tf.Session(config=config) as session:
                session.run(start)
                found = optimised.outcome(session, [*wanted, *targets], feeds)
                if isinstance(found, tuple):
                    return found[0], found[1].splitlines()[0]  # the rest says where it was made
                return found, optimised.outcome(session, variables)

        for config in (optimised.OPTIMISED, optimised.AS_IS):
            expected = outcomes(config)
            with steps_are_sent():
                assert outcomes(config) == expected
