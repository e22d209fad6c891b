"""Which tensors of a frozen graph are a compiled model's inputs and outputs, and their sizes."""

from __future__ import annotations

import pytest

import headrace as tf
from headrace._src.compile.ahead.model import Model, read_model
from headrace._src.core import proto


def graph_def() -> proto.GraphDef:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", [None, 4], name="x")
        k = tf.placeholder("float32", [], name="k")
        tf.placeholder("float32", [None], name="labels")
        first, second = tf.split(x * k, 2, axis=1, name="halves")
        tf.nn.softmax(first, name="probabilities")
        tf.identity(second, name="rest")
        return graph.as_graph_def()


def described(model: Model) -> tuple[list[str], list[str]]:
    return [str(p) for p in model.input_ports], [t.name for t in model.outputs]


def test_defaults():
    model = read_model(graph_def(), batch=3)
    assert described(model) == (
        ["x float32[3,4]", "k float32[]"],
        ["probabilities:0", "rest:0"],
    )


def test_named_ends():
    model = read_model(graph_def(), ["mul:2,4"], ["halves:1", "mul"])
    assert described(model) == (["mul float32[2,4]"], ["halves:1", "mul:0"])


@pytest.mark.parametrize("text", ["x:0:5,4", "x:5,4"])
def test_sizes(text):
    assert described(read_model(graph_def(), [text, "k"]))[0][0] == "x float32[5,4]"


def test_scalars_may_say_so():
    assert read_model(graph_def(), ["x:1,4", "k:"]).sizes == ((1, 4), ())


@pytest.mark.parametrize(
    ("inputs", "outputs", "batch", "message"),
    [
        ([], [], None, r"shape of input 'x' is \(\?, 4\): say --input x:SIZE,SIZE,…, or --batch N"),
        (["x:1,5"], [], None, r"can't have the sizes \(1, 5\)"),
        (["x:0,4"], [], None, r"can't have the sizes \(0, 4\)"),
        (["x:a"], [], None, "given as NAME or NAME:SIZE"),
        (["z:1"], [], None, "no tensor 'z'"),
        ([], ["y"], None, "no tensor 'y'"),
        ([], ["halves:2"], None, "no tensor 'halves:2'"),
        (["x:1,4", "x:0:1,4"], [], None, "more than once as an input: x:0"),
        ([], [], 0, "at least one element, not 0"),
    ],
)
def test_what_is_wrong_is_told(inputs, outputs, batch, message):
    with pytest.raises(ValueError, match=message):
        read_model(graph_def(), inputs, outputs, batch)


def test_an_unknown_rank():
    with tf.Graph().as_default() as graph:
        tf.identity(tf.placeholder("float32", name="x"))
        with pytest.raises(ValueError, match="the shape of input 'x' is unknown"):
            read_model(graph.as_graph_def(), batch=1)


def test_a_graph_without_outputs():
    with tf.Graph().as_default() as graph:
        tf.constant(1.0)
        with pytest.raises(ValueError, match="name them with --output"):
            read_model(graph.as_graph_def())


def test_an_unknown_op():
    broken = graph_def()
    broken.node[-1].op = "Nonsense"
    with pytest.raises(ValueError, match=r"can't be imported: .*Nonsense"):
        read_model(broken)
