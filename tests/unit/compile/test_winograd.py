"""Winograd kernels against the NumPy convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.kernels.conv.winograd.winograd_backward import WinogradBackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_filter import WinogradFilter
from headrace._src.compile.kernels.conv.winograd.winograd_forward import WinogradForward
from headrace._src.compile.kernels.conv.winograd.winograd_transform import matrices
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room

SAME3, SAME5 = ((1, 1), (1, 1)), ((2, 2), (2, 2))
CASES = [
    # geometry, m, accurate, threads
    (Geometry.of(2, 8, 8, 16, 32, (3, 3), pads=SAME3), 4, False, 2),
    (Geometry.of(1, 7, 9, 48, 16, (3, 3), pads=SAME3), 4, False, 1),
    (Geometry.of(3, 6, 5, 16, 48, (3, 3)), 2, False, 2),
    (Geometry.of(2, 3, 14, 32, 64, (3, 3), pads=((0, 1), (2, 3))), 4, True, 2),
    (Geometry.of(2, 13, 13, 32, 16, (3, 3), pads=SAME3), 6, False, 2),
    (Geometry.of(1, 13, 10, 16, 80, (5, 5), pads=SAME5), 4, False, 2),
    (Geometry.of(2, 9, 9, 16, 32, (5, 5), pads=SAME5), 2, True, 1),
]
RECTANGLES = [
    (Geometry.of(2, 13, 9, 32, 48, (3, 3), pads=SAME3), (4, 3), True, 2),
    (Geometry.of(1, 6, 11, 16, 32, (3, 3), pads=((0, 1), (2, 3))), (3, 4), True, 1),
]


def transformed(w: np.ndarray, m: int, accurate: bool, backward: bool, threads: int) -> np.ndarray:
    r, _, channels, filters = w.shape
    spec = WinogradFilter(channels, filters, m, r, accurate, backward)
    u = room(spec.layout.size)
    run_kernel(spec, [placed(w), u], threads)
    return u


def convolved(
    x, w, geometry, m, accurate=False, threads=2, backward=False, epilogue=NOTHING, *more
):
    """The kernel's (first) output for plain x."""
    u = transformed(w, m, accurate, backward, threads)
    g = geometry
    out = room(g.batch, g.filters // 16, g.out_height, g.out_width, 16)
    spec = WinogradForward(g, m, accurate, epilogue)
    assert (
        spec.filter_layout == WinogradFilter(*w.shape[2:], m, w.shape[0], accurate, backward).layout
    )
    run_kernel(spec, [blocked(x), u, *more, out], threads)
    return plain(out)


SIZES = [(2, 3), (4, 3), (6, 3), (2, 5), (4, 5)]


@pytest.mark.parametrize(
    ("m", "r", "accurate"),
    [(3, 3, True), *((*size, accurate) for size in SIZES for accurate in (False, True))],
)
def test_the_matrices_filter_exactly(m, r, accurate):
    found = matrices(m, r, accurate)
    x, w = np.random.default_rng(1).standard_normal((2, m + r - 1))
    product = (found.filter.array() @ w[:r]) * (found.input.array() @ x)
    np.testing.assert_allclose(
        found.output.array() @ product, np.correlate(x, w[:r], "valid"), rtol=1e-12
    )


def test_points_are_known_for_few_sizes():
    with pytest.raises(ValueError, match=r"F\(8, 3\)"):
        matrices(8, 3)


@pytest.mark.parametrize(("geometry", "m", "accurate", "threads"), CASES + RECTANGLES)
def test_forward(geometry, m, accurate, threads):
    e = Example(geometry)
    found = convolved(e.x, e.w, geometry, m, accurate, threads)
    assert error(found, e.y) < 5e-6


@pytest.mark.parametrize(("geometry", "m", "accurate", "threads"), CASES + RECTANGLES)
def test_backward_data(geometry, m, accurate, threads):
    e = Example(geometry)
    found = convolved(e.dy, e.w, geometry.backward_data(), m, accurate, threads, True)
    assert error(found, e.dx) < 5e-6


@pytest.mark.parametrize(("geometry", "m", "accurate", "threads"), CASES)
def test_backward_filter(geometry, m, accurate, threads):
    e = Example(geometry)
    found = room(*e.w.shape)
    spec = WinogradBackwardFilter(geometry, m, accurate)
    run_kernel(spec, [blocked(e.x), blocked(e.dy), found], threads)
    assert error(found, e.dw) < 5e-6


def test_the_filter_is_updated_in_place():
    geometry = Geometry.of(3, 45, 21, 32, 48, (3, 3), pads=SAME3)
    e = Example(geometry)
    sgd = Epilogue(record(lambda e, d, w: w - d * 0.5, ["float32"] * 2), ("full",))
    spec = WinogradBackwardFilter(geometry, 4, False, sgd)
    assert spec.arguments == ("x", "dy", "full0", "out:result0")
    w = placed(e.w)
    run_kernel(spec, [blocked(e.x), blocked(e.dy), w, w])
    assert error(w, e.w - 0.5 * e.dw) < 5e-6


def test_the_filters_gradient_in_several_chunks():
    geometry = Geometry.of(1, 259, 257, 16, 16, (3, 3), pads=SAME3)
    spec = WinogradBackwardFilter(geometry, 4)
    assert spec.counters == 4
    e = Example(geometry)
    found = room(*e.w.shape)
    run_kernel(spec, [blocked(e.x), blocked(e.dy), found])
    assert error(found, e.dw) < 5e-6


def test_more_tasks_than_threads_and_a_ragged_last_one():
    geometry = Geometry.of(3, 45, 21, 16, 16, (3, 3), pads=SAME3)
    e = Example(geometry)
    assert error(convolved(e.x, e.w, geometry, 4), e.y) < 5e-6
    assert error(convolved(e.x, e.w, geometry, 2, threads=1), e.y) < 5e-6


def test_more_filters_than_a_block_with_a_ragged_last_one():
    geometry = Geometry.of(1, 6, 6, 16, 80, (3, 3), pads=SAME3)
    e = Example(geometry)
    assert error(convolved(e.x, e.w, geometry, 4), e.y) < 5e-6


def test_an_epilogue_has_operands_of_every_kind():
    geometry = Geometry.of(2, 7, 6, 16, 48, (3, 3), pads=SAME3)
    e = Example(geometry)
    full = np.random.default_rng(2).standard_normal(e.y.shape)
    bias, scalar = np.linspace(-2, 3, 48), np.array([1.5])
    program = record(lambda e, y, f, c, s: (y + c) * f - s, ["float32"] * 4)
    epilogue = Epilogue(program, ("full", "channel", "scalar"))
    operands = [blocked(full), placed(bias), placed(scalar)]
    found = convolved(e.x, e.w, geometry, 4, False, 2, False, epilogue, *operands)
    assert error(found, (e.y + bias) * full - 1.5) < 5e-6


def test_accurate_points_are_more_accurate():
    geometry = Geometry.of(4, 16, 16, 64, 32, (3, 3), pads=SAME3)
    e = Example(geometry)
    rough, fine = (error(convolved(e.x, e.w, geometry, 4, a), e.y) for a in (False, True))
    assert fine < 0.8 * rough


@pytest.mark.parametrize(("m", "height", "width"), [(4, 8, 12), (4, 6, 10), (2, 6, 6)])
def test_a_fused_max_pool_stores_the_maxima_and_where_they_were(m, height, width):
    geometry = Geometry.of(2, height, width, 16, 32, (3, 3), pads=SAME3)
    e = Example(geometry)
    bias = np.linspace(-2, 3, 32)
    epilogue = Epilogue(record(lambda e, y, b: y * b, ["float32"] * 2), ("channel",))
    shape = (2, 2, height // 2, width // 2, 16)
    pooled, argmax = room(*shape), room(*shape, dtype=np.uint8)
    u = transformed(e.w, m, False, False, 2)
    spec = WinogradForward(geometry, m, False, epilogue, pool=True)
    run_kernel(spec, [blocked(e.x), u, placed(bias), pooled, argmax])
    windows = (e.y * bias).reshape(2, height // 2, 2, width // 2, 2, 32)
    windows = windows.transpose(0, 1, 3, 5, 2, 4).reshape(2, height // 2, width // 2, 32, 4)
    assert error(plain(pooled), windows.max(-1)) < 5e-6
    np.testing.assert_array_equal(plain(argmax), windows.argmax(-1))


def test_a_fused_max_pool_is_refused_where_it_does_not_fit():
    odd = Geometry.of(1, 7, 8, 16, 16, (3, 3), pads=SAME3)
    even = Geometry.of(1, 8, 8, 16, 16, (3, 3), pads=SAME3)
    masked = Epilogue(record(lambda e, y, f: y * f, ["float32"] * 2), ("full",))
    with pytest.raises(ValueError, match="even"):
        WinogradForward(odd, 4, pool=True)
    with pytest.raises(ValueError, match="tiles of even sides"):
        WinogradForward(even, (4, 3), True, pool=True)
    with pytest.raises(ValueError, match="full"):
        WinogradForward(even, 4, False, masked, pool=True)


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry.of(1, 8, 8, 16, 16, (3, 3), strides=(2, 2)),
        Geometry.of(1, 8, 8, 16, 16, (3, 3), dilations=(2, 2)),
        Geometry.of(1, 8, 8, 20, 16, (3, 3)),
        Geometry.of(1, 8, 8, 16, 16, (3, 5)),
    ],
)
def test_what_the_algorithm_cannot_do_is_refused(geometry):
    with pytest.raises(ValueError, match="Winograd"):
        WinogradForward(geometry, 4)
