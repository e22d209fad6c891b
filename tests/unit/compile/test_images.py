"""Networks on images: which kernels a training step consists of, and that both tiers agree."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.kernels.conv.conv_1x1 import Conv1x1, Conv1x1BackwardFilter
from headrace._src.compile.kernels.conv.conv_few import FewChannels
from headrace._src.compile.kernels.conv.conv_few_backward import FewChannelsBackwardFilter
from headrace._src.compile.kernels.conv.conv_onednn import OneDnnConvolution
from headrace._src.compile.kernels.conv.winograd.winograd_backward import WinogradBackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_forward import WinogradForward
from headrace._src.devices.target import host
from tests.unit.compile.steps import assert_tiers_agree, clusters, uniform

# window, filters, stride, max-pool of 2 x 2 behind it
CLASSIC = [(3, 16, 1, True), (3, 32, 1, False), (3, 32, 1, True)]
MODERN = [(7, 16, 2, False), (1, 32, 1, False), (5, 48, 1, False), (3, 16, 2, False)]


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


def step(layers):
    """A training step of a small network: (the fed photographs, what to fetch)."""
    x = tf.placeholder(tf.float32, [3, 16, 20, 3])
    y = x
    for i, (window, filters, stride, pool) in enumerate(layers):
        shape = (window, window, int(y.shape[3]), filters)
        scale = np.float32(np.sqrt(6 / np.prod(shape[:3])))
        w = tf.get_variable(f"w{i}", initializer=uniform(*shape, seed=i) * scale)
        b = tf.get_variable(f"b{i}", initializer=uniform(filters, seed=i) * np.float32(0.1))
        y = tf.nn.conv2d(y, w, [1, stride, stride, 1], "SAME")
        y = tf.nn.relu(tf.nn.bias_add(y, b))
        if pool:
            y = tf.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    loss = tf.reduce_mean(tf.square(y - 0.5))
    trained = tf.trainable_variables()
    changes = tf.gradients(loss, trained)
    updates = [tf.assign_sub(v, 0.1 * d) for v, d in zip(trained, changes, strict=True)]
    with tf.control_dependencies(updates):
        return x, tf.identity(loss)


def kernels(x, fetch):
    found = clusters([fetch], {x: uniform(3, 16, 20, 3)})
    return [call.kernel for cluster in found for call in cluster.plan.calls]


@pytest.mark.parametrize("layers", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_a_training_step_is_the_interpreters(layers):
    x, loss = step(layers)
    assert_tiers_agree([loss], {x: uniform(3, 16, 20, 3)}, steps=3)


@pytest.mark.needs_onednn
@pytest.mark.usefixtures("first_candidates")
def test_the_kernels_of_a_step():
    found = kernels(*step(MODERN))
    for kind in (FewChannels, FewChannelsBackwardFilter, Conv1x1, Conv1x1BackwardFilter):
        assert sum(isinstance(k, kind) for k in found) >= 1, kind
    # The 5 x 5 convolution and, where there is FMA, its images' gradient.
    by_tiles = sum(isinstance(k, WinogradForward) for k in found)
    assert by_tiles == 2 if host().fma else 1
    # 3 x 3 with stride 2, and the gradient of the 5 x 5 filter, of too few places for Winograd's.
    assert sum(isinstance(k, OneDnnConvolution) for k in found) == 6 - by_tiles


@pytest.mark.usefixtures("first_candidates")
def test_pools_are_part_of_the_convolutions_before_them():
    found = kernels(*step(CLASSIC))
    assert [k.pool for k in found if isinstance(k, FewChannels)] == [True]
    pooled = [k.pool for k in found if isinstance(k, WinogradForward)]
    assert sorted(pooled) == [False, False, False, True]
    updates = [k for k in found if isinstance(k, WinogradBackwardFilter)]
    assert [k.epilogue.operands for k in updates] == [("full",), ("full",)]
