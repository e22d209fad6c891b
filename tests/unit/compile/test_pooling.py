"""Pooling and depthwise convolution of blocked images against the NumPy kernels."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import (
    AveragePool,
    AveragePoolGradient,
    Depthwise,
    DepthwiseGradient,
    MaxPool,
    MaxPoolGradient,
)
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from headrace._src.ops.nn import conv_kernels, pool_kernels
from tests.unit.compile.conv_runs import blocked, placed, plain, room


def same(size: int, window: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


CASES = [
    # batch, height, width, channels, window, strides, padding
    (2, 8, 6, 32, (2, 2), (2, 2), "VALID"),
    (1, 7, 9, 16, (2, 2), (2, 2), "VALID"),
    (2, 7, 9, 16, (2, 2), (2, 2), "SAME"),
    (2, 14, 15, 16, (3, 3), (2, 2), "SAME"),
    (1, 15, 13, 48, (3, 3), (2, 2), "VALID"),
    (3, 7, 8, 16, (3, 3), (1, 1), "SAME"),
    (1, 9, 9, 16, (2, 3), (3, 4), "VALID"),
    (1, 9, 6, 16, (5, 5), (1, 2), "SAME"),
    (2, 7, 7, 32, (7, 7), (1, 1), "VALID"),
    (1, 20, 17, 16, (16, 16), (3, 3), "VALID"),
]


class Example:
    def __init__(self, batch, height, width, channels, window, strides, padding):
        axes = zip((height, width), window, strides, strict=True)
        pads = tuple(same(*a) if padding == "SAME" else (0, 0) for a in axes)
        self.geometry = Geometry.of(
            batch, height, width, channels, channels, window, strides=strides, pads=pads
        )
        random = np.random.default_rng(3)
        # Few different values: windows with several equal maxima are what this is about.
        self.x = random.integers(-4, 5, (batch, height, width, channels)).astype(np.float32)
        g = self.geometry
        out = (batch, g.out_height, g.out_width, channels)
        self.dy = random.standard_normal(out).astype(np.float32)
        self.options = {
            "ksize": (1, *window, 1), "strides": (1, *strides, 1), "padding": padding,
        }  # fmt: skip

    def room(self, like: np.ndarray, dtype=np.float32) -> np.ndarray:
        n, h, w, c = like.shape
        return room(n, c // 16, h, w, 16, dtype=dtype)


def pooled(e: Example, threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    y, argmax = e.room(e.dy), e.room(e.dy, np.uint8)
    run_kernel(MaxPool(e.geometry, argmax=True), [blocked(e.x), y, argmax], threads)
    return y, argmax


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_max(case, threads):
    e = Example(*case)
    y, argmax = pooled(e, threads)
    expected = pool_kernels.max_pool(e.x, **e.options)
    np.testing.assert_array_equal(plain(y), expected)
    dx = e.room(e.x)
    run_kernel(MaxPoolGradient(e.geometry), [blocked(e.dy), argmax, dx], threads)
    gradient = pool_kernels.max_pool_grad(e.x, expected, e.dy, **e.options)
    np.testing.assert_allclose(plain(dx), gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_average(case):
    e = Example(*case)
    y, dx = e.room(e.dy), e.room(e.x)
    run_kernel(AveragePool(e.geometry), [blocked(e.x), y])
    expected = pool_kernels.avg_pool(e.x, **e.options)
    np.testing.assert_allclose(plain(y), expected, rtol=1e-6, atol=1e-6)
    run_kernel(AveragePoolGradient(e.geometry), [blocked(e.dy), dx])
    gradient = pool_kernels.avg_pool_grad(np.array(e.x.shape), e.dy, **e.options)
    np.testing.assert_allclose(plain(dx), gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_depthwise(case):
    e = Example(*case)
    y, dx = e.room(e.dy), e.room(e.x)
    w = np.random.default_rng(4).standard_normal((*e.geometry.kernel, case[3], 1))
    w = placed(w.astype(np.float32))
    options = {k: v for k, v in e.options.items() if k != "ksize"}
    options |= {"data_format": "NHWC", "dilations": (1, 1, 1, 1)}
    run_kernel(Depthwise(e.geometry), [blocked(e.x), w, y])
    expected = conv_kernels.depthwise_conv2d_native(e.x, w, **options)
    np.testing.assert_allclose(plain(y), expected, rtol=1e-4, atol=1e-4)
    run_kernel(DepthwiseGradient(e.geometry), [blocked(e.dy), w, dx])
    gradient = conv_kernels.depthwise_conv2d_native_backprop_input(
        np.array(e.x.shape), w, e.dy, **options
    )
    np.testing.assert_allclose(plain(dx), gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [(2, 2), (5, 5)])
def test_nan_and_infinity(window):
    e = Example(1, 10, 10, 16, window, (2, 2), "VALID")
    special = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    e.x = np.random.default_rng(1).choice(special, e.x.shape)
    y, argmax = pooled(e)
    expected = pool_kernels.max_pool(e.x, **e.options)
    np.testing.assert_array_equal(plain(y), expected)
    dx = e.room(e.x)
    run_kernel(MaxPoolGradient(e.geometry), [blocked(e.dy), argmax, dx])
    gradient = pool_kernels.max_pool_grad(e.x, expected, e.dy, **e.options)
    np.testing.assert_allclose(plain(dx), gradient, rtol=1e-6, atol=1e-6)


def test_epilogues():
    e = Example(2, 8, 8, 32, (3, 3), (2, 2), "SAME")
    bias = np.linspace(-1, 1, 32).astype(np.float32)
    relu = Epilogue(record(lambda e, y, b: e.max(y + b, 0), ["float32"] * 2), ("channel",))
    y = e.room(e.dy)
    run_kernel(MaxPool(e.geometry, relu), [blocked(e.x), placed(bias), y])
    expected = np.maximum(pool_kernels.max_pool(e.x, **e.options) + bias, 0)
    np.testing.assert_array_equal(plain(y), expected)
    mask = Epilogue(record(lambda e, d, x: e.select(e.gt(x, 0), d, 0), ["float32"] * 2), ("full",))
    dx = e.room(e.x)
    run_kernel(AveragePoolGradient(e.geometry, mask), [blocked(e.dy), blocked(e.x), dx])
    gradient = pool_kernels.avg_pool_grad(np.array(e.x.shape), e.dy, **e.options)
    np.testing.assert_allclose(plain(dx), np.where(e.x > 0, gradient, 0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        (Geometry.of(1, 8, 8, 16, 32, (2, 2)), "geometry"),
        (Geometry.of(1, 8, 8, 24, 24, (2, 2)), "geometry"),
        (Geometry.of(1, 40, 40, 16, 16, (17, 17)), "256"),
    ],
)
def test_what_is_no_pooling_is_refused(geometry, message):
    with pytest.raises(ValueError, match=message):
        MaxPool(geometry)
