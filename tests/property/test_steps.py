"""Random graphs: every way of running a step agrees with NumPy, gradients with differences."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import headrace as tf

UNARY = {
    "square": (tf.square, np.square),
    "tanh": (tf.tanh, np.tanh),
    "negative": (tf.negative, np.negative),
    "identity": (tf.identity, lambda v: v),
}
BINARY = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "max": (tf.maximum, np.maximum),
}


@st.composite
def programs(draw):
    """Instructions (function name, operand numbers), each adding a value to the two inputs."""
    steps = []
    for i in range(draw(st.integers(1, 12))):
        operands = st.integers(0, i + 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(sorted(UNARY))), (draw(operands),)))
        else:
            steps.append((draw(st.sampled_from(sorted(BINARY))), (draw(operands), draw(operands))))
    return steps


def build(steps, inputs):
    values = list(inputs)
    for name, operands in steps:
        values.append({**UNARY, **BINARY}[name][0](*[values[i] for i in operands]))
    return values


def plain(steps, inputs):
    values = list(inputs)
    for name, operands in steps:
        values.append({**UNARY, **BINARY}[name][1](*[values[i] for i in operands]))
    return values


# Native code may differ from NumPy in the last bit.
INTERPRETED = tf.ConfigProto(
    graph_options=tf.GraphOptions(
        optimizer_options=tf.OptimizerOptions(global_jit_level=tf.OptimizerOptions.OFF)
    )
)


@given(programs(), st.integers(0, 2**32 - 1), st.data())
def test_every_way_of_running_agrees_with_numpy(steps, seed, data):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, (3, 1)), rng.uniform(-1, 1, (4,))
    with np.errstate(all="ignore"):
        expected = plain(steps, [a, b])
    with tf.Graph().as_default(), tf.Session(config=INTERPRETED) as session:
        x, y = tf.placeholder(tf.float64, [None, 1]), tf.placeholder(tf.float64, [None])
        tensors = build(steps, [x, y])
        wanted = data.draw(st.lists(st.sampled_from(range(len(tensors))), min_size=1, unique=True))
        fetches = [tensors[i] for i in wanted]
        feeds = {x: a, y: b}
        results = [
            session.run(fetches, feeds),
            session.run(fetches, feeds, options=tf.RunOptions(timeout_in_ms=60_000)),
            session.make_callable(fetches, [x, y])(a, b),
        ]
        handle = session.partial_run_setup(fetches, [x, y])
        first = session.partial_run(handle, fetches[0], feeds)
        rest = session.partial_run(handle, fetches[1:]) if fetches[1:] else []
        results.append([first, *rest])
        for values in results:
            for i, value in zip(wanted, values, strict=True):
                # Not a bit more: a step that comes back is compiled, with a tanh of its own.
                np.testing.assert_allclose(value, expected[i], rtol=1e-12, atol=1e-300)


@given(programs(), st.integers(0, 2**32 - 1))
def test_gradients_are_finite_differences(steps, seed):
    steps = [(name, operands) for name, operands in steps if name != "max"]
    count = len(steps)
    steps = [(name, tuple(min(i, k + 1) for i in o)) for k, (name, o) in enumerate(steps)]
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-0.7, 0.7, (2, 1)), rng.uniform(-0.7, 0.7, (3,))

    def loss(a, b):
        return plain(steps, [a, b])[count + 1].sum()

    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.constant(a), tf.constant(b)
        found = tf.gradients(build(steps, [x, y])[count + 1], [x, y], unconnected_gradients="zero")
        for index, gradient in enumerate(session.run(found)):
            for i in np.ndindex(gradient.shape):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = [np.array(a), np.array(b)]
                    moved[index][i] += step
                    ends.append(loss(*moved))
                expected = (ends[0] - ends[1]) / 2e-5
                assert abs(gradient[i] - expected) <= 1e-4 * max(1, abs(expected))
