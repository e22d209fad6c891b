"""Under strict accuracy a sum has the same bits whatever is fused with it: values that a cluster
computes, reads through a view, or gets from another device.
"""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.clusters import backend
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel
from headrace._src.compile.regions import groups
from headrace._src.compile.rewrite import rewrites
from headrace._src.lowering.pointwise import Pointwise, record


@pytest.fixture
def strict(monkeypatch):
    for module in (backend, groups, rewrites):
        found = replace(module.settings(), accuracy="strict")
        monkeypatch.setattr(module, "settings", lambda found=found: found)


# What is fused with a sum: views of x, of shape [A, B, C], and programs on it.
BEFORE = {
    "slice": lambda x: x[1:, :-1, 2:],
    "reversed": lambda x: tf.reverse(x, [1, 2]),
    "strided": lambda x: x[::2, :, ::3],
    "transposed": lambda x: tf.transpose(x, [2, 0, 1]),
    "broadcast": lambda x: tf.broadcast_to(x[:, :1, :], x.shape),
    "repeated": lambda x: tf.broadcast_to(x[:1], x.shape),
    "row of numbers": lambda x: x * tf.constant(np.linspace(0.1, 3.0, x.shape[2], dtype="f")),
    "heavy": lambda x: tf.exp(tf.sin(tf.tanh(x))),
    "double": lambda x: tf.cast(tf.sqrt(tf.cast(tf.abs(x), tf.float64)), tf.float32),
    "padded": lambda x: tf.pad(x, [[0, 0], [1, 2], [3, 1]]),
}
SHAPES = [(2, 3, 3), (5, 17, 40), (3, 130, 300), (24, 9, 24)]
AXES = [None, [0], [1], [2], [0, 1], [0, 2], [1, 2]]


def bits(build, feeds, devices):
    """Return the results of a compiled step on so many devices, as bytes."""
    with tf.Graph().as_default():
        fetches, given = build()
        options = tf.OptimizerOptions(global_jit_level=tf.OptimizerOptions.ON_1)
        config = tf.ConfigProto(
            device_count={"CPU": devices},
            allow_soft_placement=True,
            graph_options=tf.GraphOptions(optimizer_options=options),
        )
        with tf.Session(config=config) as session:
            return [v.tobytes() for v in session.run(fetches, dict(zip(given, feeds, strict=True)))]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("before", BEFORE)
def test_sums_of_views_and_programs_have_the_bits_of_sums_of_plain_values(strict, before, shape):
    def build():
        with tf.device("/cpu:0"):
            x = tf.placeholder(tf.float32, shape)
            y = BEFORE[before](x)
        with tf.device("/cpu:1"):
            return [tf.reduce_sum(y, axes) for axes in AXES] + [tf.reduce_mean(y)], [x]

    x = np.random.default_rng(3).normal(size=shape).astype("f")
    assert bits(build, [x], 1) == bits(build, [x], 2)


def test_rows_that_are_normalised_have_the_same_sums(strict):
    def build():
        x = tf.placeholder(tf.float32, [40, 1000])
        with tf.device("/cpu:0"):
            e = tf.exp(x)
            total = tf.reduce_sum(e, 1, keepdims=True)
        with tf.device("/cpu:1"):
            p = e / total
            spread = tf.reduce_mean(tf.square(p - tf.reduce_mean(p, 1, keepdims=True)), 1)
        with tf.device("/cpu:0"):
            return [total, spread, tf.reduce_sum(p, 0)], [x]

    x = np.random.default_rng(4).normal(size=(40, 1000)).astype("f")
    assert bits(build, [x], 1) == bits(build, [x], 2)


def test_gradients_of_shared_weights_have_the_same_sums(strict):
    def build():
        x = tf.placeholder(tf.float32, [4, 8, 48])
        with tf.device("/cpu:0"):
            parts = [tf.matmul(x[i], x[i + 1, :, :24], transpose_a=True) for i in range(3)]
        with tf.device("/cpu:1"):
            return [tf.add_n(parts)], [x]

    x = np.random.default_rng(5).normal(size=(4, 8, 48)).astype("f")
    assert bits(build, [x], 1) == bits(build, [x], 2)


def test_pieces_that_are_padded_and_summed_keep_the_sign_of_zero(strict):
    def build():
        x = tf.placeholder(tf.float32, [2, 3, 8])
        with tf.device("/cpu:0"):
            parts = [tf.pad(x[0], [[0, 3], [0, 0]]), tf.pad(x[1], [[3, 0], [0, 0]])]
        with tf.device("/cpu:1"):
            return [tf.add_n(parts)], [x]

    x = np.full((2, 3, 8), -0.0, "f")
    assert bits(build, [x], 1) == bits(build, [x], 2) == [np.zeros((6, 8), "f").tobytes()]


def test_images_in_blocks_have_the_same_sums(strict):
    def build():
        x = tf.placeholder(tf.float32, [2, 12, 12, 16])
        filters = tf.constant(np.random.default_rng(6).normal(size=(3, 3, 16, 32)).astype("f"))
        with tf.device("/cpu:0"):
            y = tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME"))
        with tf.device("/cpu:1"):
            return [tf.reduce_sum(y, [0, 1, 2]), tf.reduce_mean(y, [1, 2]), tf.reduce_sum(y)], [x]

    x = np.random.default_rng(7).normal(size=(2, 12, 12, 16)).astype("f")
    assert bits(build, [x], 1) == bits(build, [x], 2)


def test_an_order_that_an_input_does_not_follow_is_refused():
    same = Pointwise(("float32",), (), (0,))
    copy = record(lambda e, x: x, ["float32"])
    result = (Access("float32", ()),)

    def kernel(strides):
        inputs = (Access("float32", strides),)
        return ReduceKernel((), (4, 5), same, ("sum",), copy, inputs, (), result, order=(5, 1))

    assert kernel((10, 2)).order == (5, 1)
    with pytest.raises(ValueError, match="order"):
        kernel((7, 1))
