"""Models with loops and branches, compiled ahead of time."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.ahead import target_for
from headrace._src.compile.ahead.model import read_model
from headrace._src.pipeline.ahead import compile_model
from tests.unit.compile import ahead_runs
from tests.unit.compile.steps import uniform

ARCHITECTURES = ["x86_64", "aarch64", "wasm32"]


def checked(build, arrays, architecture, folder):
    """Compile what `build` makes of placeholders, run it where that's possible, and compare."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        inputs = [tf.placeholder(a.dtype, a.shape, name=n) for n, a in arrays.items()]
        y = tf.identity(build(*inputs), name="y")
        wanted = session.run(y, dict(zip(inputs, arrays.values(), strict=True)))
        model = read_model(graph.as_graph_def(), outputs=["y"])
    target = target_for(architecture)
    artifact = compile_model(model, target, name="model", stem="model", origin="model")
    if ahead_runs.runs_here(architecture, target):
        (found,) = ahead_runs.run(artifact, architecture, arrays, folder)
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def recurrent(x, steps):
    """Rows of a tensor array, some of which a loop makes of the rows before."""
    weights = tf.constant(uniform(4, 4))
    rows = tf.TensorArray(tf.float32, 6, element_shape=[2, 4]).unstack(x)
    made = tf.TensorArray(tf.float32, 6, element_shape=[2, 4])

    def body(i, state, made):
        state = tf.tanh(tf.matmul(state, weights) + rows.read(i))
        return i + 1, state, made.write(i, tf.where(i < steps, state, 0.0 * state))

    _, state, made = tf.while_loop(lambda i, *_: i < 6, body, [0, tf.zeros([2, 4]), made])
    return tf.reduce_sum(made.stack() * state, 0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_loop_over_rows(architecture, tmp_path):
    arrays = {"x": uniform(6, 2, 4), "steps": np.array(4, np.int32)}
    checked(recurrent, arrays, architecture, tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("sign", [1, -1])
def test_branches(architecture, sign, tmp_path):
    def build(x):
        positive = tf.reduce_sum(x) > 0
        small = tf.cond(x[0] < 2.0, lambda: x + 1.0, lambda: x - 1.0)
        return tf.cond(positive, lambda: tf.exp(small), lambda: x * 3.0)

    checked(build, {"x": sign * np.arange(1, 6, dtype=np.float32)}, architecture, tmp_path)


@pytest.mark.parametrize(("row", "status"), [(5, 0), (6, 3), (-1, 3)])
def test_a_wrong_row_ends_the_loop(row, status, tmp_path):
    with tf.Graph().as_default() as graph:
        start = tf.placeholder(tf.int32, [], name="start")
        rows = tf.TensorArray(tf.float32, 6, element_shape=[]).unstack(uniform(6))
        # Without the row that isn't there, nothing would end it.
        loop = tf.while_loop(
            lambda total, _: total < 9.0,
            lambda total, i: (total + 10.0 + rows.read(i), i),
            [0.0, start],
        )
        tf.multiply(loop[0], 2.0, name="y")
        model = read_model(graph.as_graph_def(), outputs=["y"])
    target = target_for("x86_64")
    artifact = compile_model(model, target, name="model", stem="model", origin="model")
    if ahead_runs.runs_here("x86_64", target):
        given = {"start": np.array(row, np.int32)}
        assert ahead_runs.status(artifact, "x86_64", given, tmp_path) == status


def test_control_flow_that_does_not_nest_is_refused():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], name="x")
        tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: tf.exp(x), name="y")
        model = read_model(graph.as_graph_def(), outputs=["y/Merge:1"])
    with pytest.raises(ValueError, match=r"can't be compiled ahead of time: .*'y/Merge'"):
        compile_model(model, target_for("x86_64"), name="m", stem="m", origin="m")


def test_which_way_a_branch_was_reached_is_no_output():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], name="x")
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: tf.exp(x))
        frozen = tf.graph_util.extract_sub_graph(graph.as_graph_def(), [y.op.name])
    assert [t.name for t in read_model(frozen).outputs] == [y.name]
