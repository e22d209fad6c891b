"""Direct convolution and pooling against NumPy, on windows of all kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.kernels.conv.direct_conv import direct_conv, pack_filters
from headrace._src.compile.kernels.conv.direct_windows import DirectDepthwise, DirectPool
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.devices.target import Target, host
from headrace._src.lowering.pointwise import record

SAME = ((1, 1), (1, 1))
CASES = [
    Geometry.of(2, 9, 11, 3, 5, (3, 3), pads=SAME),
    Geometry.of(1, 13, 13, 4, 70, (5, 5), pads=((2, 2), (2, 2))),
    Geometry.of(2, 14, 14, 8, 32, (3, 3), (2, 2), ((0, 1), (0, 1))),
    Geometry.of(1, 12, 12, 4, 9, (3, 2), (1, 2), ((2, 2), (1, 1)), (2, 3)),
    Geometry.of(3, 7, 7, 33, 1, (1, 1)),
    Geometry.of(1, 7, 7, 8, 40, (7, 7)),
    Geometry.of(1, 10, 10, 5, 100, (3, 3), (3, 1), ((1, 0), (0, 0))),
    Geometry.of(1, 4, 4, 2, 3, (2, 2), (1, 1), ((5, 5), (5, 5))),
]
SCALED = Epilogue(
    record(lambda e, y, b, s, k: (y + b) * s + k, ["float32"] * 4), ("channel", "full", "scalar")
)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def windows(x: np.ndarray, g: Geometry, fill: float) -> np.ndarray:
    """x as [batch, out_height, out_width, window height, window width, channels]."""
    x = np.pad(x, ((0, 0), *g.pads, (0, 0)), constant_values=fill)
    rows = np.add.outer(
        np.arange(g.out_height) * g.strides[0], np.arange(g.kernel[0]) * g.dilations[0]
    )
    columns = np.add.outer(
        np.arange(g.out_width) * g.strides[1], np.arange(g.kernel[1]) * g.dilations[1]
    )
    return x[:, rows[:, None, :, None], columns[None, :, None, :]]


def narrow(vector_bytes: int, registers: int) -> Target:
    return replace(host(), vector_bytes=vector_bytes, registers=registers)


@pytest.mark.parametrize("geometry", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_convolution(geometry, threads):
    g = geometry
    x = values(g.batch, g.height, g.width, g.channels)
    filters = values(*g.kernel, g.channels, g.filters, seed=1)
    shape = (g.batch, g.out_height, g.out_width, g.filters)
    bias, scale, shift = values(g.filters, seed=2), values(*shape, seed=3), values(1, seed=4)
    kernel = direct_conv(g, SCALED, host())
    y = np.empty(shape, np.float32)
    run_kernel(kernel, [x, filters, bias, scale, shift, y], threads)
    product = np.einsum("nyxijc,ijcf->nyxf", windows(x, g, 0.0), filters.astype(np.float64))
    np.testing.assert_allclose(y, (product + bias) * scale + shift, rtol=1e-4, atol=1e-4)
    again = np.empty_like(y)
    packed = pack_filters(filters, kernel)
    run_kernel(replace(kernel, packed=True), [x, packed, bias, scale, shift, again], threads)
    np.testing.assert_array_equal(again, y)


@pytest.mark.parametrize(("vector_bytes", "registers"), [(16, 16), (16, 32), (32, 16), (64, 32)])
def test_tiles_fit_the_registers(vector_bytes, registers):
    target = narrow(vector_bytes, registers)
    for geometry in CASES:
        kernel = direct_conv(geometry, NOTHING, target)
        vectors = kernel.columns // target.lanes()
        assert kernel.pixels * vectors + vectors + 1 <= registers
        assert 1 <= kernel.pixels <= geometry.out_width


def test_several_bands():
    g = CASES[0]
    x = values(g.batch, g.height, g.width, g.channels)
    filters = values(*g.kernel, g.channels, g.filters, seed=1)
    whole, parts = (np.empty((2, 9, 11, 5), np.float32) for _ in range(2))
    kernel = direct_conv(g, NOTHING, host())
    run_kernel(kernel, [x, filters, whole])
    run_kernel(replace(kernel, rows=4), [x, filters, parts])
    np.testing.assert_array_equal(whole, parts)


POOLS = [
    Geometry.of(2, 8, 8, 5, 5, (2, 2), (2, 2)),
    Geometry.of(1, 9, 7, 37, 37, (3, 3), (2, 2), SAME),
    Geometry.of(1, 5, 5, 16, 16, (5, 5)),
    Geometry.of(1, 6, 6, 67, 67, (2, 2), (2, 1), ((0, 0), (1, 1))),
]


@pytest.mark.parametrize("geometry", POOLS)
@pytest.mark.parametrize("how", ["max", "average"])
def test_pooling(geometry, how):
    g = geometry
    x = values(g.batch, g.height, g.width, g.channels)
    y = np.empty((g.batch, g.out_height, g.out_width, g.channels), np.float32)
    run_kernel(DirectPool(g, how, NOTHING), [x, y])
    seen = windows(x, g, np.nan)
    expected = np.nanmax(seen, (3, 4)) if how == "max" else np.nanmean(seen, (3, 4))
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def test_a_nan_never_wins():
    x = np.array([np.nan, 1, -np.inf, -np.inf], np.float32).reshape(1, 1, 4, 1)
    y = np.empty((1, 1, 2, 1), np.float32)
    run_kernel(DirectPool(Geometry.of(1, 1, 4, 1, 1, (1, 2), (1, 2)), "max", NOTHING), [x, y])
    assert y.ravel().tolist() == [1, np.finfo(np.float32).min]


@pytest.mark.parametrize("channels", [3, 70])
@pytest.mark.parametrize("multiplier", [1, 2, 21])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_depthwise_convolution(channels, multiplier, stride, dilation):
    pads = ((dilation, dilation), (dilation, 0))
    filters = channels * multiplier
    g = Geometry.of(
        2, 7, 8, channels, filters, (3, 2), (stride, stride), pads, (dilation, dilation)
    )
    x = values(2, 7, 8, channels)
    w = values(3, 2, channels, multiplier, seed=1)
    bias, scale, shift = values(filters, seed=2), values(1, seed=3), values(1, seed=4)
    program = record(lambda e, y, b, s, k: (y + b) * s + k, ["float32"] * 4)
    epilogue = Epilogue(program, ("channel", "scalar", "scalar"))
    y = np.empty((2, g.out_height, g.out_width, filters), np.float32)
    run_kernel(DirectDepthwise(g, epilogue), [x, w, bias, scale, shift, y])
    product = np.einsum("nyxijc,ijcm->nyxcm", windows(x, g, 0.0), w.astype(np.float64))
    expected = (product.reshape(y.shape) + bias) * scale + shift
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_windows_of_other_kinds_is_refused():
    with pytest.raises(ValueError, match="not 'median'"):
        DirectPool(POOLS[0], "median", NOTHING)
    odd = Geometry.of(1, 8, 8, 5, 6, (2, 2))
    with pytest.raises(ValueError, match="no pooling has this geometry"):
        DirectPool(odd, "max", NOTHING)
    with pytest.raises(ValueError, match="no depthwise convolution has this geometry"):
        DirectDepthwise(odd, NOTHING)
