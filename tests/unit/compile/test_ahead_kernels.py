"""Ops that have kernels only ahead of time: transposed convolutions by phases, the largest
elements, volumes' poolings, and gathers by computed indices, each compared with the session.
"""

import itertools

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.ahead import target_for
from headrace._src.compile.ahead.model import read_model
from headrace._src.pipeline.ahead import compile_model
from tests.unit.compile import ahead_runs

pytestmark = pytest.mark.skipif(
    not ahead_runs.runs_here("x86_64", target_for("x86_64")), reason="it can't be run here"
)


def built(make, *given):
    """The model of what `make` builds of placeholders, and what the session computes."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        places = [tf.placeholder(a.dtype.name, a.shape, name=f"x{i}") for i, a in enumerate(given)]
        y = tf.identity(make(*places), name="y")
        expected = session.run(y, dict(zip(places, given, strict=True)))
        model = read_model(graph.as_graph_def(), outputs=["y"])
    artifact = compile_model(model, target_for("x86_64"), name="model", stem="model", origin="test")
    return artifact, {f"x{i}": a for i, a in enumerate(given)}, expected


def check(folder, make, *given):
    artifact, arrays, expected = built(make, *given)
    (y,) = ahead_runs.run(artifact, "x86_64", arrays, folder)
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def output_size(size, taps, stride, padding):
    return size * stride if padding == "SAME" else (size - 1) * stride + taps


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("taps", "strides"),
    [((3, 3), (2, 2)), ((1, 1), (2, 2)), ((2, 5), (3, 2)), ((4, 4), (2, 1)), ((3, 2), (1, 1))],
)
def test_transposed_convolutions(tmp_path, taps, strides, padding):
    """All phases: those without taps are zeros, and some places are reached by padding alone."""
    sizes = [output_size(n, t, s, padding) for n, t, s in zip((4, 3), taps, strides, strict=True)]
    filters, bias = numbers(*taps, 5, 6), numbers(5)

    def make(x):
        shape = [2, *sizes, 5]
        y = tf.nn.conv2d_transpose(x, filters, shape, [1, *strides, 1], padding)
        return tf.nn.relu(y + bias)

    check(tmp_path, make, numbers(2, 4, 3, 6))


def test_transposed_convolutions_with_computed_filters(tmp_path):
    def make(x, w):
        return tf.nn.conv2d_transpose(x, tf.tanh(w), [1, 7, 7, 4], [1, 2, 2, 1], "VALID")

    check(tmp_path, make, numbers(1, 3, 3, 2), numbers(3, 3, 4, 2))


def test_transposed_convolutions_with_dilations(tmp_path):
    def make(x):
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=[1, 9, 8, 3],
            filter=numbers(3, 2, 3, 4),
            out_backprop=x,
            strides=[1, 1, 1, 1],
            padding="SAME",
            dilations=[1, 2, 3, 1],
        )

    check(tmp_path, make, numbers(1, 9, 8, 4))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_poolings_of_volumes(tmp_path, kind, padding):
    function = {"max": tf.nn.max_pool3d, "avg": tf.nn.avg_pool3d}[kind]

    def make(x):
        return tf.exp(function(x, [1, 2, 3, 2, 1], [1, 2, 1, 3, 1], padding))

    check(tmp_path, make, numbers(2, 5, 6, 7, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_the_largest_elements(tmp_path, dtype, k):
    given = np.random.default_rng(0).integers(0, 5, (2, 3, 9)).astype(dtype)  # many are equal
    check(tmp_path, lambda x: tf.nn.top_k(x, k).values, given)
    check(tmp_path, lambda x: tf.nn.top_k(x, k).indices, given)


def test_a_nan_is_larger_than_any_number(tmp_path):
    given = np.array([[1, np.nan, 3, -np.inf, np.nan], [np.inf, 2, -np.inf, np.nan, 0]], np.float32)
    check(tmp_path, lambda x: tf.nn.top_k(x, 5).indices, given)


GATHERS = {
    "rows": lambda x: tf.gather(numbers(4, 3), tf.cast(x, "int32")),
    "columns": lambda x: tf.gather(numbers(2, 4, 3), tf.cast(x, "int64"), axis=1),
    "embeddings": lambda x: tf.nn.embedding_lookup(tf.constant(numbers(4, 3)), tf.cast(x, "int32")),
    "points": lambda x: tf.gather_nd(numbers(4, 4, 3), tf.cast(tf.stack([x, x], 1), "int32")),
    "elements": lambda x: tf.gather_nd(numbers(4, 4), tf.cast(tf.stack([x, x], 1), "int64")),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers_by_computed_indices(tmp_path, name):
    make = GATHERS[name]
    check(tmp_path, make, np.array([3, 0, 2], np.float32))
    artifact, arrays, _ = built(make, np.array([3, 0, 2], np.float32))
    for wrong in (4.0, -1.0):  # the call ends with a status, and nothing is read out of bounds
        arrays["x0"] = np.array([0, wrong, 1], np.float32)
        assert ahead_runs.status(artifact, "x86_64", arrays, tmp_path) == 3


def test_the_best_of_a_beam(tmp_path):
    """What decoders do: the largest scores, and the states that they come from."""

    def make(scores, states):
        best = tf.nn.top_k(scores, 2)
        chosen = tf.batch_gather(states, best.indices)
        return tf.concat([tf.expand_dims(best.values, 2), chosen], 2)

    check(tmp_path, make, numbers(3, 6), numbers(3, 6, 4))


@pytest.mark.parametrize("architecture", ["aarch64", "wasm32"])
def test_other_processors(tmp_path, architecture):
    def make(x):
        y = tf.nn.conv2d_transpose(x, numbers(3, 3, 4, 2), [1, 6, 6, 4], [1, 2, 2, 1], "SAME")
        best = tf.nn.top_k(tf.reshape(y, [6, 24]), 3)
        return best.values + tf.gather(numbers(24), best.indices)

    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder("float32", [1, 3, 3, 2], name="x")
        y, given = tf.identity(make(x), name="y"), numbers(1, 3, 3, 2)
        expected = session.run(y, {x: given})
        model = read_model(graph.as_graph_def(), outputs=["y"])
    target = target_for(architecture)
    artifact = compile_model(model, target, name="model", stem="model", origin="test")
    if ahead_runs.runs_here(architecture, target):
        (found,) = ahead_runs.run(artifact, architecture, {"x": given}, tmp_path)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_phases_cover_every_place_once():
    from headrace._src.compile.kernels.conv.transposed_conv import _phases
    from headrace._src.core.windows import Window

    for size, taps, stride, before in itertools.product((1, 5, 8), (1, 2, 3, 5), (1, 2, 3), (0, 1)):
        if before >= taps:
            continue
        out = max(1, (size + before - taps) // stride + 1)
        window = Window(size, taps, stride, 1, before, 0, out)
        places = [p.start + i * p.apart for p in _phases(window) for i in range(p.places)]
        assert len(places) == len(set(places)) and set(places) <= set(range(size))
