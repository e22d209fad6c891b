"""The compiler says why it leaves a node to the interpreter."""

import re

import numpy as np
import pytest

import headrace as tf
from headrace._src.pipeline import Options, finish, optimise, prepare

pytestmark = pytest.mark.needs_llvm


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def reasons(fetches, feeds=None):
    """Why nodes of a step are not compiled, by name."""
    feeds = feeds or {}
    told = {}
    options = Options(jit="always", tell=lambda node, reason: told.update({node.name: reason}))
    tensors = [t for t in fetches if isinstance(t, tf.Tensor)]
    targets = [t for t in fetches if not isinstance(t, tf.Tensor)]
    step = prepare(tensors, targets, list(feeds), options)
    finish(optimise(step, [np.shape(v) for v in feeds.values()], options), options, compiled=True)
    return told


def test_types_that_native_code_has_not():
    x = tf.placeholder(tf.complex64, [3], name="x")
    assert reasons([x + x], {x: np.ones(3)})["add"] == "native code has no complex64: x:0"


def test_arrays_without_elements():
    x = tf.placeholder(tf.float32, [0, 3], name="x")
    y = tf.exp(x, name="y")
    assert reasons([y], {x: np.ones([0, 3])})["y"] == "x:0 has no elements: float32[0,3]"


def test_shapes_that_depend_on_values():
    x = tf.placeholder(tf.float32, [3], name="x")
    some = tf.boolean_mask(x, x > 0)
    told = reasons([tf.exp(some, name="y")], {x: np.ones(3)})
    assert re.fullmatch(r"the shape of \S+ is not known before it runs: float32\[\?\]", told["y"])


def test_indices_that_the_step_computes():
    x = tf.placeholder(tf.float32, [5], name="x")
    table = tf.constant(np.arange(10, dtype=np.float32))
    row = tf.gather(table, tf.cast(x * 2.0, tf.int32), name="row")
    told = reasons([row, tf.exp(x) * tf.tanh(x) + x], {x: np.ones(5)})
    assert "are computed, and can't be checked before" in told["row"]
    outside = tf.gather(table, [3, 11], name="outside")
    assert "is not in [0, 10)" in reasons([tf.exp(outside)])["outside"]


def test_few_nodes_are_not_worth_a_call():
    x = tf.placeholder(tf.float32, [5], name="x")
    assert reasons([tf.exp(x, name="y")], {x: np.ones(5)}) == {
        "y": "too little work for a native call"
    }


def test_variables_that_only_others_read():
    v = tf.get_variable("v", [3], use_resource=True)
    told = reasons([tf.strings.as_string(v.read_value(), name="text")])
    assert "no compiled node reads it: outside it costs nothing" in told.values()


def test_a_list_takes_all_that_use_it_along():
    x = tf.placeholder(tf.float32, [3], name="x")
    array = tf.TensorArray(tf.float32, 2, infer_shape=False, name="rows").write(0, tf.exp(x))
    row = tf.boolean_mask(x, x > 0)
    told = reasons([array.write(1, row, name="last").read(0, name="row")], {x: np.ones(3)})
    known = "last/last, which works on the same list, is not compiled"
    assert [r for name, r in told.items() if "last" not in name].count(known) >= 2, told


def test_what_prevents_a_loop():
    n = tf.placeholder(tf.int32, [], name="n")

    def body(i, x):
        return i + 1, tf.strings.to_number(tf.strings.as_string(x), name="number") + 1.0

    _, x = tf.while_loop(lambda i, x: i < n, body, [0, tf.zeros([])], name="turns")
    told = reasons([x], {n: np.int32(3)})
    loops = [r for r in told.values() if r.startswith("in its body: turns/")]
    assert loops, told
    assert "no lowering rule" in loops[0]


def test_what_is_compiled_is_not_told():
    x = tf.placeholder(tf.float32, [5], name="x")
    assert reasons([tf.exp(tf.tanh(x) * 2.0 + 1.0)], {x: np.ones(5)}) == {}
