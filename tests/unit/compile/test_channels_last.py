"""NCHW programs: convolutions and pools are compiled, and images turned only at the ends."""

from collections import Counter

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.rewrite.channels_last import channels_last
from headrace._src.pipeline import Options, compile_step
from tests.unit.compile.steps import assert_tiers_agree, clusters, uniform


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def along(order, height, width):
    """Sizes of a window along the axes of an image."""
    return [1, 1, height, width] if order == "NCHW" else [1, height, width, 1]


def weights(*shape):
    scale = np.float32(np.sqrt(3 / np.prod(shape[:-1])))
    return tf.Variable(uniform(*shape, seed=len(tf.global_variables())) * scale)


def conv(x, order, window, filters, stride=1):
    channels = int(x.shape[1 if order == "NCHW" else 3])
    w = weights(window, window, channels, filters)
    return tf.nn.conv2d(x, w, along(order, stride, stride), "SAME", data_format=order)


def bias(x, order):
    return tf.nn.bias_add(x, weights(int(x.shape[1 if order == "NCHW" else 3])), order)


def normalised(x, order):
    channels = int(x.shape[1 if order == "NCHW" else 3])
    scale, offset = tf.Variable(np.ones(channels, np.float32)), weights(channels)
    return tf.nn.fused_batch_norm(x, scale, offset, data_format=order)[0]


def network(order):
    """A training step of a small residual network: (the fed photographs, what to fetch)."""
    x = tf.placeholder(tf.float32, [3, 3, 16, 20] if order == "NCHW" else [3, 16, 20, 3])
    two = along(order, 2, 2)
    y = tf.nn.relu(bias(conv(x, order, 3, 16), order))
    y = first = tf.nn.max_pool(y, two, two, "VALID", data_format=order)
    y = tf.nn.relu(normalised(conv(y, order, 3, 16), order)) + first
    y = tf.nn.relu(normalised(conv(y, order, 3, 32, 2), order))
    y = tf.nn.avg_pool(y, two, two, "VALID", data_format=order)
    y = tf.reduce_mean(y, [2, 3] if order == "NCHW" else [1, 2])
    loss = tf.reduce_mean(tf.square(tf.matmul(y, weights(32, 10)) - 0.5))
    trained = tf.trainable_variables()
    changes = tf.gradients(loss, trained)
    updates = [tf.assign_sub(v, 0.1 * d) for v, d in zip(trained, changes, strict=True)]
    with tf.control_dependencies(updates):
        return x, tf.identity(loss)


def kernels(fetches, feeds):
    """How many calls of each kind the one cluster of a step makes."""
    (cluster,) = clusters(fetches, feeds)
    return Counter(type(c.kernel).__name__ for c in cluster.plan.calls)


def test_a_network_is_that_of_nhwc_with_its_photographs_turned():
    x, fetch = network("NCHW")
    feeds = {x: uniform(3, 3, 16, 20)}
    found = kernels([fetch], feeds)
    assert_tiers_agree(fetch, feeds)
    with tf.Graph().as_default():
        x, fetch = network("NHWC")
        expected = kernels([fetch], {x: uniform(3, 16, 20, 3)})
    assert found - expected == {"Map": 1} and not expected - found


def turned(fetches, feeds):
    """The transpositions that the compiler puts into a step."""
    seen = {}
    shapes = [np.shape(v) for v in feeds.values()]
    options = Options(jit="off")
    compile_step(fetches, [], list(feeds), shapes, options, lambda n, f: seen.update({n: f}))
    return [n.type for n in channels_last(seen["dead"]).nodes if n.type == "Transpose"]


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((2, 16, 16, 16), {"padding": "SAME"}),  # any order of these sizes is the same
        ((2, 3, 9, 7), {"padding": "VALID", "strides": [1, 1, 2, 3]}),
        ((2, 16, 9, 9), {"padding": "SAME", "dilations": [1, 1, 2, 1]}),
        ((1, 5, 8, 6), {"padding": [[0, 0], [0, 0], [2, 0], [1, 3]]}),
        ((1, 4, 1, 1), {"padding": "SAME"}),
    ],
)
def test_convolutions(sizes, options):
    x = tf.placeholder(tf.float32, sizes)
    w = weights(3, 3, sizes[1], 16)
    y = tf.nn.conv2d(x, w, **{"strides": [1, 1, 1, 1], **options}, data_format="NCHW")
    slope = uniform(*y.shape.as_list(), seed=5)
    feeds = {x: uniform(*sizes)}
    assert kernels([y], feeds)
    assert_tiers_agree([y, *tf.gradients(y * slope, [x, w])], feeds)


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_convolutions(multiplier):
    x = tf.placeholder(tf.float32, [2, 16, 9, 8])
    w = weights(3, 3, 16, multiplier)
    y = tf.nn.depthwise_conv2d(x, w, [1, 1, 2, 2], "SAME", data_format="NCHW")
    feeds = {x: uniform(2, 16, 9, 8)}
    assert kernels([y], feeds)
    assert_tiers_agree([y, *tf.gradients(tf.square(y), [x, w])], feeds)


@pytest.mark.parametrize("pool", [tf.nn.max_pool, tf.nn.avg_pool])
def test_pools(pool):
    x = tf.placeholder(tf.float32, [2, 32, 9, 7])
    y = pool(x, [1, 1, 3, 2], [1, 1, 2, 2], "SAME", data_format="NCHW")
    feeds = {x: uniform(2, 32, 9, 7)}
    assert kernels([y], feeds)
    assert_tiers_agree([y, *tf.gradients(tf.square(y), x)], feeds)


def test_what_lies_between_follows():
    """Operands of fewer dimensions, sums and identities need no image turned."""
    x = tf.placeholder(tf.float32, [2, 3, 8, 8])
    y = tf.identity(conv(x, "NCHW", 3, 16))
    y = y * weights(16, 1, 1) + weights(2, 1, 1, 1) - weights(1, 16, 1, 1)
    y = y * tf.constant(uniform(16, 8, 8)) * 0.5 + weights(8)
    y = y - tf.reduce_mean(y, [2, 3], keepdims=True)
    y = y / (1 + tf.reduce_max(y, 1, keepdims=True))
    y = conv(tf.nn.elu(y), "NCHW", 1, 16)
    fetches = [tf.reduce_sum(y, [0, 2, 3]), tf.reduce_sum(y, [2, 3]), tf.reduce_sum(y)]
    feeds = {x: uniform(2, 3, 8, 8)}
    assert turned(fetches, feeds) == ["Transpose"]  # x
    assert_tiers_agree(fetches, feeds)


def test_what_cannot_follow_gets_the_order_of_the_graph():
    x = tf.placeholder(tf.float32, [2, 16, 8, 8])
    y = tf.nn.relu(conv(x, "NCHW", 3, 16))
    fetches = [
        y,
        tf.concat([y, x], 1),
        tf.reduce_sum(y, [2]),  # channels come before the columns that are left
        tf.argmax(y, 1),
        tf.reshape(y, [2, -1]) * 2.0,
        tf.pad(y, [[0, 0], [0, 0], [1, 1], [1, 1]]),
    ]
    feeds = {x: uniform(2, 16, 8, 8)}
    assert turned(fetches, feeds) == ["Transpose", "Transpose"]  # x; y, once for all of them
    assert_tiers_agree(fetches, feeds)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_types(dtype):
    """float64 has no kernels: nothing is turned."""
    x = tf.placeholder(tf.float32, [2, 16, 8, 8])
    y = conv(tf.cast(x, tf.float32), "NCHW", 3, 16)
    w = tf.cast(weights(3, 3, 16, 16), dtype)
    y = tf.nn.conv2d(tf.cast(y, dtype), w, [1, 1, 1, 1], "SAME", data_format="NCHW")
    y = tf.nn.relu(tf.cast(y, tf.float32))
    assert_tiers_agree([tf.cast(y, "bfloat16")], {x: uniform(2, 16, 8, 8)}, steps=1)
