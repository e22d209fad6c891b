"""Random steps with as little memory as possible: cheap values are recomputed, and results are the
same to the last bit, interpreted and compiled.
"""

from dataclasses import replace

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.compile.clusters.recompute import recompute
from headrace._src.graph.verify_flow import verify_dataflow
from headrace._src.pipeline import Options, finish, optimise, prepare
from headrace._src.runtime import Executable
from tests.property.random_steps import IMAGES, MATRICES, Step
from tests.unit.compile.steps import session

EVERYTHING = [
    *("matmul", "unary", "unary", "binary", "binary", "reduce", "reshape", "transpose", "slice"),
    *("concat", "spread", "update"),
]


def as_bytes(values):
    return [(v.shape, v.tobytes()) for v in map(np.asarray, values)]


def interpreted(flow, step):
    """What two runs of a flow give, and the variables at their end."""
    with session(False) as running:
        running.run(tf.global_variables_initializer())
        program = Executable(finish(flow, Options()), running._resources)
        found = [v for _ in range(2) for v in program.run(list(step.feeds.values()))]
        return as_bytes([*found, *running.run([v.value() for v in step.variables])])


def compiled(memory, fetches, step):
    with session(True) as running:
        running._options = replace(running._options, memory=memory)
        running.run(tf.global_variables_initializer())
        found = [running.run([*fetches, *step.updates], step.feeds) for _ in range(2)]
        values = [v for f in found for v in f[: len(fetches)]]
        return as_bytes([*values, *running.run([v.value() for v in step.variables])])


def train(data, step, layers):
    """Layers of a product (or none), an activation and sometimes a shortcut, and their updates."""
    y = step.values[-1]
    for _ in range(data.draw(st.integers(*layers), label="layers")):
        shape = tuple(y.shape.as_list())
        product = step.convolution if len(shape) == 4 else step.matmul
        made = product(y, shape) if data.draw(st.booleans(), label="a product") else y
        z = y if made is None else made
        for _ in range(data.draw(st.integers(1, 3), label="activations")):
            z = step.unary(z, shape) * data.draw(st.sampled_from([1.0, 0.5]))
        y = z + y if z.shape == y.shape and data.draw(st.booleans(), label="shortcut") else z
        step.values.append(y)
    loss = tf.reduce_mean(tf.square(y))
    sources = [*step.variables, *step.feeds]
    gradients = tf.gradients(loss, sources, unconnected_gradients="zero")
    for v, g in zip(step.variables, gradients, strict=False):
        step.updates.append(v.assign_sub(0.1 * g, read_value=False))
    return [loss, *gradients]


@given(st.data())
@settings(max_examples=20)
def test_the_pass_keeps_what_a_step_gives(data):
    with tf.Graph().as_default():
        step = Step(data.draw, smooth=True)
        step.start([tf.float32, tf.float64], data.draw(st.sampled_from([IMAGES, MATRICES])))
        for _ in range(data.draw(st.integers(0, 6), label="length")):
            step.grow(EVERYTHING)
        fetches = [data.draw(st.sampled_from(step.values)), *train(data, step, (3, 9))]
        targets = [getattr(u, "op", u) for u in step.updates]
        prepared = prepare(fetches, targets, list(step.feeds), Options())
        flow = optimise(prepared, [v.shape for v in step.feeds.values()], Options())
        made = recompute(flow, 0)
        verify_dataflow(made)
        event(f"computes again: {made is not flow}")
        assert interpreted(made, step) == interpreted(flow, step)


@given(st.data())
@settings(max_examples=10)
def test_compiled_training_is_the_same_to_the_last_bit(data):
    with tf.Graph().as_default():
        step = Step(data.draw, smooth=True)
        shapes = data.draw(st.sampled_from([IMAGES, MATRICES]), label="shapes")
        step.start([tf.float32], shapes)
        fetches = train(data, step, (4, 9))
        assert compiled(0, fetches, step) == compiled(1 << 62, fetches, step)
