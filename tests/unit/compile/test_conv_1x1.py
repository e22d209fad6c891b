"""Convolutions of 1 x 1 against the NumPy kernels."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.conv.conv_1x1 import Conv1x1, Conv1x1BackwardFilter
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room

CASES = [
    # batch, height, width, channels, filters, threads
    (2, 14, 14, 48, 64, 2),
    (1, 7, 7, 16, 16, 1),
    (3, 7, 7, 64, 48, 2),
    (2, 1, 1, 32, 80, 2),
    (1, 23, 19, 16, 32, 2),
    (2, 5, 3, 288, 160, 2),
]


def example(batch, height, width, channels, filters) -> Example:
    return Example(Geometry.of(batch, height, width, channels, filters, (1, 1)))


@pytest.mark.parametrize(("shape", "threads"), [(c[:5], c[5]) for c in CASES])
class TestPasses:
    def test_forward(self, shape, threads):
        e = example(*shape)
        y = room(*blocked(e.dy).shape)
        run_kernel(Conv1x1(e.geometry), [blocked(e.x), placed(e.w), y], threads)
        assert error(plain(y), e.y) < 1e-6

    def test_backward_data(self, shape, threads):
        e = example(*shape)
        dx = room(*blocked(e.x).shape)
        spec = Conv1x1(e.geometry.backward_data(), transposed=True)
        run_kernel(spec, [blocked(e.dy), placed(e.w), dx], threads)
        assert error(plain(dx), e.dx) < 1e-6

    def test_backward_filter(self, shape, threads):
        e = example(*shape)
        dw = room(*e.w.shape)
        run_kernel(Conv1x1BackwardFilter(e.geometry), [blocked(e.x), blocked(e.dy), dw], threads)
        assert error(dw, e.dw) < 1e-6


def test_epilogues():
    e = example(2, 9, 7, 32, 48)
    bias, other = np.linspace(-1, 1, 48), np.random.default_rng(1).standard_normal(e.y.shape)
    residual = Epilogue(
        record(lambda e, y, b, o: e.max(y + b + o, 0), ["float32"] * 3), ("channel", "full")
    )
    y = blocked(other)  # in place of one operand
    run_kernel(Conv1x1(e.geometry, residual), [blocked(e.x), placed(e.w), placed(bias), y, y])
    assert error(plain(y), np.maximum(e.y + bias + other, 0)) < 1e-6


def test_the_filter_is_updated_in_place():
    e = example(2, 9, 7, 32, 48)
    sgd = Epilogue(record(lambda e, d, w: w - d * 0.5, ["float32"] * 2), ("full",))
    w = placed(e.w)
    run_kernel(Conv1x1BackwardFilter(e.geometry, sgd), [blocked(e.x), blocked(e.dy), w, w])
    assert error(w, e.w - 0.5 * e.dw) < 1e-6


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry.of(1, 8, 8, 16, 16, (3, 3)),
        Geometry.of(1, 8, 8, 16, 16, (1, 1), strides=(2, 2)),
        Geometry.of(1, 8, 8, 16, 16, (1, 1), pads=((1, 1), (1, 1))),
        Geometry.of(1, 8, 8, 16, 24, (1, 1)),
    ],
)
def test_what_is_not_1x1_is_refused(geometry):
    for spec in (Conv1x1, Conv1x1BackwardFilter):
        with pytest.raises(ValueError, match="1 x 1"):
            spec(geometry)
