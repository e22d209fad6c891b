"""Convolutions of photographs against the NumPy kernels."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.conv.conv_few import FewChannels
from headrace._src.compile.kernels.conv.conv_few_backward import FewChannelsBackwardFilter
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room

CASES = [
    # geometry, threads
    (Geometry.of(2, 20, 22, 3, 64, (3, 3), pads=((1, 1), (1, 1))), 2),
    (Geometry.of(1, 37, 41, 3, 96, (11, 11), strides=(4, 4)), 1),
    (Geometry.of(2, 31, 30, 3, 32, (7, 7), strides=(2, 2), pads=((2, 3), (3, 2))), 2),
    (Geometry.of(3, 9, 4, 1, 16, (5, 3), pads=((2, 2), (0, 3))), 2),
    (Geometry.of(1, 12, 9, 5, 80, (1, 2), strides=(3, 1)), 2),
    (Geometry.of(1, 5, 3, 2, 48, (2, 2)), 1),
]
ODD = Geometry.of(1, 9, 8, 3, 16, (3, 3), pads=((1, 1), (1, 1)))
EVEN = Geometry.of(2, 12, 10, 3, 48, (3, 3), pads=((1, 1), (1, 1)))


@pytest.mark.parametrize(("geometry", "threads"), CASES)
def test_forward(geometry, threads):
    e = Example(geometry)
    y = room(*blocked(e.dy).shape)
    run_kernel(FewChannels(geometry), [placed(e.x), placed(e.w), y], threads)
    assert error(plain(y), e.y) < 1e-6


def test_an_epilogue():
    e = Example(EVEN)
    bias, other = np.linspace(-1, 1, 48), np.random.default_rng(1).standard_normal(e.y.shape)
    program = record(lambda e, y, b, o: e.max(y + b, 0) * o, ["float32"] * 3)
    spec = FewChannels(EVEN, Epilogue(program, ("channel", "full")))
    y = room(*blocked(e.dy).shape)
    run_kernel(spec, [placed(e.x), placed(e.w), placed(bias), blocked(other), y])
    assert error(plain(y), np.maximum(e.y + bias, 0) * other) < 1e-6


def test_a_fused_max_pool():
    e = Example(EVEN)
    bias = np.linspace(-1, 1, 48)
    relu = Epilogue(record(lambda e, y, b: y * b, ["float32"] * 2), ("channel",))
    pooled, argmax = room(2, 3, 6, 5, 16), room(2, 3, 6, 5, 16, dtype=np.uint8)
    spec = FewChannels(EVEN, relu, pool=True)
    run_kernel(spec, [placed(e.x), placed(e.w), placed(bias), pooled, argmax])
    windows = (e.y * bias).reshape(2, 6, 2, 5, 2, 48).transpose(0, 1, 3, 5, 2, 4)
    windows = windows.reshape(2, 6, 5, 48, 4)
    assert error(plain(pooled), windows.max(-1)) < 1e-6
    np.testing.assert_array_equal(plain(argmax), windows.argmax(-1))


@pytest.mark.parametrize(("geometry", "threads"), CASES)
def test_backward_filter(geometry, threads):
    e = Example(geometry)
    dw = room(*e.w.shape)
    run_kernel(FewChannelsBackwardFilter(geometry), [placed(e.x), blocked(e.dy), dw], threads)
    assert error(dw, e.dw) < 1e-6


@pytest.mark.parametrize("threads", [1, 2])
def test_the_filter_is_updated_in_place(threads):
    e = Example(EVEN)
    sgd = Epilogue(record(lambda e, d, w: w - d * 0.5, ["float32"] * 2), ("full",))
    w = placed(e.w)
    run_kernel(FewChannelsBackwardFilter(EVEN, sgd), [placed(e.x), blocked(e.dy), w, w], threads)
    assert error(w, e.w - 0.5 * e.dw) < 1e-6


@pytest.mark.parametrize(
    ("geometry", "pool", "message"),
    [
        (Geometry.of(1, 8, 8, 16, 16, (3, 3)), False, "few channels"),
        (Geometry.of(1, 8, 8, 3, 20, (3, 3)), False, "whole blocks"),
        (Geometry.of(1, 8, 8, 3, 16, (3, 3), dilations=(2, 1)), False, "few channels"),
        (ODD, True, "even"),
    ],
)
def test_what_it_cannot_do_is_refused(geometry, pool, message):
    with pytest.raises(ValueError, match=message):
        FewChannels(geometry, pool=pool)
    if not pool:
        with pytest.raises(ValueError, match=message):
            FewChannelsBackwardFilter(geometry)
