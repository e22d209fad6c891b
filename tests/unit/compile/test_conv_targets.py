"""The same convolutions in fewer registers and narrower vectors, as other processors have them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.compile.kernels.conv_1x1 import Conv1x1, Conv1x1BackwardFilter
from headrace.compile.kernels.conv_few import FewChannels
from headrace.compile.kernels.conv_few_backward import FewChannelsBackwardFilter
from headrace.compile.kernels.conv_geometry import Geometry
from headrace.compile.kernels.winograd_backward import WinogradBackwardFilter
from headrace.compile.kernels.winograd_filter import WinogradFilter
from headrace.compile.kernels.winograd_forward import WinogradForward
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room
from tests.unit.compile.test_gemm_targets import TARGETS, narrow, run_on

THREE = Geometry(1, 9, 6, 16, 80, (3, 3), pads=((1, 1), (1, 1)))
ONE = Geometry(2, 7, 3, 32, 80, (1, 1))
PHOTO = Geometry(1, 12, 14, 3, 48, (5, 5), strides=(2, 2), pads=((1, 2), (2, 1)))


@pytest.fixture(params=TARGETS, ids=str)
def target(request):
    return narrow(*request.param)


def gradient(spec, x: np.ndarray, e: Example, target) -> np.ndarray:
    dw = room(*e.w.shape)
    run_on(target, spec, [x, blocked(e.dy), dw])
    return dw


@pytest.mark.parametrize("backward", [False, True])
def test_winograd(target, backward):
    e = Example(THREE)
    transform = WinogradFilter(16, 80, 4, 3, backward=backward)
    u = room(transform.layout.size)
    run_on(target, transform, [placed(e.w), u])
    given, expected = (e.dy, e.dx) if backward else (e.x, e.y)
    found = room(*blocked(expected).shape)
    spec = WinogradForward(THREE.backward_data() if backward else THREE, 4)
    run_on(target, spec, [blocked(given), u, found])
    assert error(plain(found), expected) < 5e-6


def test_1x1(target):
    e = Example(ONE)
    y, dx = room(*blocked(e.dy).shape), room(*blocked(e.x).shape)
    run_on(target, Conv1x1(ONE), [blocked(e.x), placed(e.w), y])
    assert error(plain(y), e.y) < 1e-6
    spec = Conv1x1(ONE.backward_data(), transposed=True)
    run_on(target, spec, [blocked(e.dy), placed(e.w), dx])
    assert error(plain(dx), e.dx) < 1e-6


def test_photographs(target):
    e = Example(PHOTO)
    y = room(*blocked(e.dy).shape)
    run_on(target, FewChannels(PHOTO), [placed(e.x), placed(e.w), y])
    assert error(plain(y), e.y) < 1e-6


def test_filters_gradients(target):
    three, one, photo = map(Example, (THREE, ONE, PHOTO))
    found = gradient(WinogradBackwardFilter(THREE, 4), blocked(three.x), three, target)
    assert error(found, three.dw) < 5e-6
    found = gradient(Conv1x1BackwardFilter(ONE), blocked(one.x), one, target)
    assert error(found, one.dw) < 1e-6
    found = gradient(FewChannelsBackwardFilter(PHOTO), placed(photo.x), photo, target)
    assert error(found, photo.dw) < 1e-6
