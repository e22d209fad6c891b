"""Mixed precision: which nodes become narrow, and where the casts are."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.pipeline import Options, compile_step


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def types(fetches, feeds=(), targets=(), mixed=True):
    """The type of each operation's first result after the pass."""
    seen = {}

    def watch(name, flow):
        if name == "mix":
            seen.update({n.name: n.types[0].dtype.name for n in flow.nodes if n.types})

    shapes = [tuple(f.shape.as_list()) for f in feeds]
    compile_step(
        fetches, list(targets), list(feeds), shapes, Options(mixed=mixed, jit="off"), watch
    )
    return seen


def two_layers():
    x = tf.placeholder("float32", [4, 3], name="x")
    w = tf.get_variable("w", [3, 5])
    u = tf.get_variable("u", [5, 2])
    first = tf.matmul(x, w, name="first")
    h = tf.nn.relu(tf.tanh(first, name="tanh"), name="h")
    return x, w, tf.matmul(h, u, name="second")


def test_what_lies_between_products_is_narrow():
    x, _, second = two_layers()
    loss = tf.reduce_mean(tf.abs(second, name="abs"), name="loss")
    found = types([loss], [x])
    narrow = {"first", "tanh", "h", "second"}
    assert {n for n in narrow | {"abs", "loss"} if found[n] == "bfloat16"} == narrow
    assert types([loss], [x], mixed=False)["first"] == "float32"


def test_what_is_fetched_or_written_is_float32():
    x, w, second = two_layers()
    (slope,) = tf.gradients(tf.reduce_sum(second), w)
    train = tf.assign_sub(w, slope, name="train")
    found = types([second, slope], [x], [train.op])
    assert (
        found["second/0/float32"] == found["gradients/first_grad/MatMul_1/0/float32"] == "float32"
    )
    assert found["gradients/first_grad/MatMul_1"] == "bfloat16"
    assert found["w/read"] == "float32"


def test_between_sensitive_ops_all_stays_wide():
    x = tf.placeholder("float32", [4, 3], name="x")
    y = tf.matmul(x, tf.ones([3, 3]), name="first")
    centred = tf.subtract(y, tf.reduce_mean(y, 1, keepdims=True), name="centred")
    scale = tf.rsqrt(tf.reduce_mean(tf.square(centred), 1, keepdims=True))
    second = tf.matmul(centred * scale, tf.ones([3, 3]), name="second")
    found = types([second], [x])
    assert (found["first"], found["centred"], found["second"]) == (
        "bfloat16",
        "float32",
        "bfloat16",
    )


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64"])
def test_other_types_stay(dtype):
    x = tf.placeholder(dtype, [2, 2], name="x")
    assert types([tf.matmul(x, x, name="y")], [x])["y"] == dtype


def test_bodies_of_loops_too():
    x = tf.placeholder("float32", [2, 2], name="x")
    w = tf.constant(np.full((2, 2), 1.0 + 2.0**-9, "f4"))
    last = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.matmul(a, w)), [0, x])[1]
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.auto_mixed_precision = 1
    with tf.Session(config=config) as session:
        # In bfloat16 the weights are ones.
        assert session.run(last, {x: np.eye(2)}).tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_a_session_decides_for_itself(graph):
    x = tf.placeholder("float32", [1, 1])
    y = tf.matmul(x, x)
    value = 1.0 + 2.0**-9
    for asked, marked, right in [
        (0, False, value**2),
        (0, True, 1.0),
        (1, False, 1.0),
        (2, True, value**2),
    ]:
        graph.mixed_precision = marked
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.auto_mixed_precision = asked
        with tf.Session(config=config) as session:
            assert session.run(y, {x: [[value]]}) == np.float32(right)
