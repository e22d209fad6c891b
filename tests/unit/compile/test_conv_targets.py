"""The same convolutions in fewer registers and narrower vectors, as other processors have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace._src.compile.kernels.conv.conv_1x1 import Conv1x1, Conv1x1BackwardFilter
from headrace._src.compile.kernels.conv.conv_few import FewChannels
from headrace._src.compile.kernels.conv.conv_few_backward import FewChannelsBackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_backward import WinogradBackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_filter import WinogradFilter
from headrace._src.compile.kernels.conv.winograd.winograd_forward import WinogradForward
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import AveragePool, MaxPool, MaxPoolGradient
from headrace._src.devices.target import Target
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room
from tests.unit.compile.targets import TARGETS, run_on

THREE = Geometry.of(1, 9, 6, 16, 80, (3, 3), pads=((1, 1), (1, 1)))
ONE = Geometry.of(2, 7, 3, 32, 80, (1, 1))
POOL = Geometry.of(2, 6, 8, 16, 16, (2, 2), strides=(2, 2))
PHOTO = Geometry.of(1, 12, 14, 3, 48, (5, 5), strides=(2, 2), pads=((1, 2), (2, 1)))


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
def target(request) -> Target:
    return request.param


@pytest.fixture(params=[True, False], ids=["own blocks", "blocks of 16"])
def example(request, target):
    """Makes examples in blocks of the target's own size, and in others."""

    def make(geometry: Geometry) -> Example:
        return Example(replace(geometry, block=target.block) if request.param else geometry)

    return make


def in_blocks(e: Example, array: np.ndarray) -> np.ndarray:
    return blocked(array, e.geometry.block)


def like(e: Example, array: np.ndarray) -> np.ndarray:
    return room(*in_blocks(e, array).shape)


@pytest.mark.parametrize("accurate", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_winograd(target, example, backward, accurate):
    e = example(THREE)
    g = e.geometry
    transform = WinogradFilter(g.channels, g.filters, 4, 3, accurate, backward, g.block)
    u = room(transform.layout.size)
    run_on(target, transform, [placed(e.w), u])
    given, expected = (e.dy, e.dx) if backward else (e.x, e.y)
    found = like(e, expected)
    spec = WinogradForward(g.backward_data() if backward else g, 4, accurate)
    run_on(target, spec, [in_blocks(e, given), u, found])
    assert error(plain(found), expected) < (1e-6 if accurate else 5e-6)


def test_1x1(target, example):
    e = example(ONE)
    y, dx = like(e, e.dy), like(e, e.x)
    run_on(target, Conv1x1(e.geometry), [in_blocks(e, e.x), placed(e.w), y])
    assert error(plain(y), e.y) < 1e-6
    spec = Conv1x1(e.geometry.backward_data(), transposed=True)
    run_on(target, spec, [in_blocks(e, e.dy), placed(e.w), dx])
    assert error(plain(dx), e.dx) < 1e-6


def test_photographs(target, example):
    e = example(PHOTO)
    y = like(e, e.dy)
    run_on(target, FewChannels(e.geometry), [placed(e.x), placed(e.w), y])
    assert error(plain(y), e.y) < 1e-6


def test_filters_gradients(target, example):
    def gradient(e: Example, spec, x: np.ndarray) -> np.ndarray:
        dw = room(*e.w.shape)
        run_on(target, spec, [x, in_blocks(e, e.dy), dw])
        return dw

    three, one, photo = map(example, (THREE, ONE, PHOTO))
    found = gradient(three, WinogradBackwardFilter(three.geometry, 4), in_blocks(three, three.x))
    assert error(found, three.dw) < 5e-6
    found = gradient(one, Conv1x1BackwardFilter(one.geometry), in_blocks(one, one.x))
    assert error(found, one.dw) < 1e-6
    found = gradient(photo, FewChannelsBackwardFilter(photo.geometry), placed(photo.x))
    assert error(found, photo.dw) < 1e-6


@pytest.mark.parametrize("kind", [MaxPool, AveragePool])
def test_pools(target, example, kind):
    e = example(POOL)
    x, y = in_blocks(e, e.x), like(e, e.dy)
    run_on(target, kind(e.geometry), [x, y])
    windows = np.lib.stride_tricks.sliding_window_view(e.x.astype("f"), (2, 2), (1, 2))
    reduce = np.max if kind is MaxPool else np.mean
    np.testing.assert_allclose(plain(y), reduce(windows[:, ::2, ::2], (-1, -2)), rtol=1e-6)


def test_gradients_of_pools(target, example):
    e = example(POOL)
    x, y, dy, dx = in_blocks(e, e.x), like(e, e.dy), in_blocks(e, e.dy), like(e, e.x)
    argmax = room(*y.shape, dtype=np.uint8)
    run_on(target, MaxPool(e.geometry, argmax=True), [x, y, argmax])
    run_on(target, MaxPoolGradient(e.geometry), [dy, argmax, dx])
    tall = np.repeat(np.repeat(plain(y), 2, 1), 2, 2)
    expected = np.where(tall == plain(x), np.repeat(np.repeat(plain(dy), 2, 1), 2, 2), 0)
    np.testing.assert_array_equal(plain(dx), expected)
