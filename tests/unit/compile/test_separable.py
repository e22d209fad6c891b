"""Depthwise convolutions and local response normalisation in steps: which kernels, which layouts,
and that both tiers agree.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.kernels.conv.conv_general import GeneralConv
from headrace._src.compile.kernels.conv.conv_onednn import OneDnnConvolution
from headrace._src.compile.kernels.conv.direct_windows import DirectDepthwise
from headrace._src.compile.kernels.images.conv_geometry import layout_of
from headrace._src.compile.kernels.images.pooling_loops import Depthwise, DepthwiseGradient
from headrace._src.devices.target import host
from tests.unit.compile.steps import assert_tiers_agree, clusters, uniform


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def first_candidates(monkeypatch):
    """The first candidate is chosen, not the fastest one here."""
    monkeypatch.setattr(
        "headrace._src.compile.kernels.conv.convolutions.fastest",
        lambda key, ways, threads: next(iter(ways)),
    )


def kernels(fetches, feeds):
    return [call.kernel for c in clusters(fetches, feeds) for call in c.plan.calls]


def weights(*shape):
    return tf.Variable(uniform(*shape, seed=len(tf.global_variables())))


def depthwise(x, multiplier, stride=1, rate=1):
    w = weights(3, 3, int(x.shape[3]), multiplier)
    return tf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], "SAME", rate=[rate, rate])


def gradients(y):
    slope = uniform(*y.shape.as_list(), seed=9)
    return tf.gradients(y * slope, tf.trainable_variables())


@pytest.mark.needs_onednn
@pytest.mark.parametrize("stride", [1, 2])
def test_between_convolutions_images_stay_in_blocks(first_candidates, stride):
    x = tf.placeholder(tf.float32, [2, 9, 8, 32])
    y = tf.nn.conv2d(x, weights(1, 1, 32, 16), [1, 1, 1, 1], "SAME")
    y = tf.nn.relu6(tf.nn.bias_add(depthwise(tf.nn.relu(y), 1, stride), weights(16)))
    y = tf.nn.conv2d(y, weights(1, 1, 16, 32), [1, 1, 1, 1], "SAME")
    feeds = {x: uniform(2, 9, 8, 32)}
    found = kernels([y], feeds)
    (kernel,) = (k for k in found if isinstance(k, Depthwise))
    assert kernel.epilogue.operands == ("channel",)
    assert [s.opcode for s in kernel.epilogue.program.steps if s.operands] == ["add", "max", "min"]
    fetches = [y, *gradients(y)]
    found = kernels(fetches, feeds)
    assert sum(isinstance(k, DepthwiseGradient) for k in found) == 1
    kinds = OneDnnConvolution | GeneralConv
    (of_filter,) = (k for k in found if isinstance(k, kinds) and k.geometry.depthwise)
    assert of_filter.direction == "backward_filter" and of_filter.source == layout_of(host().block)
    assert_tiers_agree(fetches, feeds)


@pytest.mark.parametrize(("channels", "multiplier"), [(16, 1), (16, 2), (5, 1), (3, 4)])
@pytest.mark.parametrize(("stride", "rate"), [(1, 1), (2, 1), (1, 2)])
def test_alone_images_stay_plain(first_candidates, channels, multiplier, stride, rate):
    x = tf.placeholder(tf.float32, [2, 9, 8, channels])
    y = tf.nn.relu(depthwise(tf.tanh(x), multiplier, stride, rate))
    feeds = {x: uniform(2, 9, 8, channels)}
    assert any(isinstance(k, DirectDepthwise) for k in kernels([y], feeds))
    assert_tiers_agree([y, *gradients(y), *tf.gradients(y, x)], feeds)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("radius", [0, 2, 7, 17])
@pytest.mark.parametrize("beta", [0.5, 0.75, 0.9])
def test_local_response_normalisation(radius, beta, dtype):
    """Windows wider than the image's channels too; the widest are interpreted."""
    x = tf.placeholder(dtype, [2, 3, 4, 6])
    y = tf.nn.lrn(tf.tanh(x), depth_radius=radius, bias=1.5, alpha=0.4, beta=beta)
    feeds = {x: uniform(2, 3, 4, 6).astype(dtype)}
    assert bool(clusters([y], feeds)) == (radius <= 16)
    assert_tiers_agree([y, *tf.gradients(y, x)], feeds)


def test_the_window_ends_with_the_channels():
    x = tf.placeholder(tf.float32, [1, 1, 2, 4])
    y = tf.nn.lrn(x, depth_radius=1, bias=0.0, alpha=1.0, beta=0.5)
    value = np.array([[3, 4, 0, 5], [1, 0, 0, 2]], np.float32).reshape(1, 1, 2, 4)
    with tf.Session() as session:
        found = [session.run(y, {x: value}) for _ in range(2)][1]
    wanted = [[0.6, 0.8, 0, 1], [1, 0, 0, 1]]
    np.testing.assert_allclose(found.reshape(2, 4), wanted, 1e-6)
