"""The errors of the kernels that `default` accuracy allows, beside those of direct convolution.

Direct convolution is oneDNN's on the same instruction sets, and a model of what libraries do: in
float32, with fused multiply-adds where there are any, in sums over the taps of 16 channels and a
sum of these; for the filter's gradient, in one sum over all places of all images.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from headrace._src.compile.kernels.conv.conv_candidates import Candidate, candidates
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.devices.target import host
from tests.unit.compile.conv_runs import Example, laid_out, placed, read, room
from tests.unit.compile.test_conv_onednn import run as run_foreign

BOUND = 4  # times the error of direct convolution
PASSES = ("forward", "backward_data", "backward_filter")
SAME3, SAME5 = ((1, 1), (1, 1)), ((2, 2), (2, 2))
GEOMETRIES = {
    "3x3, few channels": Geometry.of(2, 16, 16, 16, 32, (3, 3), pads=SAME3),
    "3x3, more channels": Geometry.of(1, 12, 12, 80, 48, (3, 3), pads=SAME3),
    "3x3, many channels": Geometry.of(1, 8, 8, 256, 16, (3, 3), pads=SAME3),
    "3x3, middling": Geometry.of(1, 28, 28, 64, 64, (3, 3), pads=SAME3),
    "3x3, ragged tiles": Geometry.of(4, 7, 9, 48, 64, (3, 3)),
    "3x3, few places": Geometry.of(4, 7, 7, 16, 32, (3, 3), pads=SAME3),
    "5x5, few channels": Geometry.of(3, 14, 14, 16, 32, (5, 5), pads=SAME5),
    "5x5, more channels": Geometry.of(2, 9, 9, 96, 32, (5, 5), pads=SAME5),
    "5x5, few places": Geometry.of(11, 7, 7, 16, 32, (5, 5), pads=SAME5),
}


def example(geometry: Geometry, data: str) -> Example:
    """Normal numbers, or what a network with ReLUs has: images without negative numbers, gradients
    half of which are zero.
    """
    e = Example(geometry)
    if data == "rectified":
        e.x = np.maximum(e.x, 0)
        e.dy = e.dy * (np.random.default_rng(1).random(e.dy.shape) < 0.5)
    e.x, e.dy, e.w = (a.astype("f").astype("d") for a in (e.x, e.dy, e.w))
    return e


def exact(e: Example, direction: str) -> np.ndarray:
    return {"forward": lambda: e.y, "backward_data": lambda: e.dx, "backward_filter": lambda: e.dw}[
        direction
    ]()


def summed(terms, shape: tuple[int, ...], length: int) -> np.ndarray:
    """The sum of products of float32 numbers, rounded step by step: sums of `length` first."""
    total, part = np.zeros(shape, "f"), np.zeros(shape, "f")
    fused = host().fma
    for n, (a, b) in enumerate(terms, 1):
        product_ = a * b  # of float32 numbers in float64: exact
        part = (part + (product_ if fused else product_.astype("f"))).astype("f")
        if n % length == 0:
            total, part = total + part, np.zeros(shape, "f")
    return total + part


def direct(e: Example, direction: str) -> np.ndarray:
    g = e.geometry
    (r, s), pads = g.kernel, ((0, 0), *g.pads, (0, 0))
    if direction == "backward_data":
        back = Example(g.backward_data())
        back.x, back.w = e.dy, e.w[::-1, ::-1].swapaxes(2, 3)
        return direct(back, "forward")
    height, width = g.out_height, g.out_width
    x = np.pad(e.x, pads)
    if direction == "backward_filter":
        windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), (1, 2)).transpose(
            0, 1, 2, 4, 5, 3
        )
        places = product(range(g.batch), range(height), range(width))
        terms = ((windows[at][..., None], e.dy[at]) for at in places)
        return summed(terms, e.w.shape, g.batch * height * width)
    order = (
        (c, i, j)
        for block in range(0, g.channels, 16)
        for i in range(r)
        for j in range(s)
        for c in range(block, min(block + 16, g.channels))
    )
    terms = ((x[:, i : i + height, j : j + width, c, None], e.w[i, j, c]) for c, i, j in order)
    return summed(terms, (g.batch, height, width, g.filters), 16 * r * s)


def onednn(e: Example, direction: str) -> np.ndarray | None:
    """By oneDNN's direct convolution of blocked images, if it has code for them."""
    c = next((c for c in candidates(direction, e.geometry, "strict") if c.name == "onednn"), None)
    return run(c, e) if c is not None else None


def run(c: Candidate, e: Example) -> np.ndarray:
    arrays = {"x": laid_out(e.x, c.x_layout), "y": laid_out(e.dy, c.y_layout), "w": placed(e.w)}
    arrays |= {name: room(size // 4) for name, size in c.temporaries}
    for spec, buffers in c.calls:
        given = [arrays[b] for b in buffers]
        run_foreign(spec, given, 2) if is_foreign(spec) else run_kernel(spec, given)
    return read(arrays[c.calls[-1][1][-1]])


def errors(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The root mean square and the largest."""
    error = found.astype("d") - expected
    return np.array([np.sqrt(np.mean(error**2)), np.abs(error).max()])


def own(direction: str, geometry: Geometry, accuracy: str = "default") -> list[Candidate]:
    found = candidates(direction, geometry, accuracy)
    return [c for c in found if not any(is_foreign(spec) for spec, _ in c.calls)]


@pytest.mark.parametrize("data", ["normal", "rectified"])
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_errors_stay_within_four_times_those_of_direct_convolution(geometry, direction, data):
    geometry = replace(geometry, block=host().block)
    e = example(geometry, data)
    expected = exact(e, direction)
    references = [direct(e, direction), onednn(e, direction)]
    theirs = [errors(array, expected) for array in references if array is not None]
    for candidate in own(direction, geometry):
        found = errors(run(candidate, e), expected)
        for reference in theirs:
            assert (found <= BOUND * reference).all(), (candidate.name, found / reference)


@pytest.mark.parametrize("block", [4, 8, 16])
@pytest.mark.parametrize("blocks", [1, 3, 5, 17])
def test_short_sums_of_any_number_of_channels(block, blocks):
    geometry = Geometry.of(1, 8, 8, block * blocks, 5 * block, (3, 3), pads=SAME3, block=block)
    e = example(geometry, "normal")
    for direction in PASSES:
        expected = exact(e, direction)
        for candidate in own(direction, geometry):
            rms, _ = errors(run(candidate, e), expected)
            assert rms < 1e-6 * np.sqrt(np.mean(expected**2))


def test_a_large_pixel_disturbs_its_tile_by_no_more_than_it_does_its_own_results():
    """Winograd's tiles share their roundings: that of a large number is in all of them."""
    geometry = replace(GEOMETRIES["3x3, few channels"], block=host().block)
    e = example(geometry, "normal")
    e.x[0, 9, 9, 5] = 2.0**20
    expected = e.y
    near = np.zeros(expected.shape[:3], bool)
    near[0, 8:11, 8:11] = True
    _, own_results = errors(direct(e, "forward")[near], expected[near])
    (candidate,) = own("forward", geometry)
    found = run(candidate, e)
    assert errors(found[~near], expected[~near])[1] <= BOUND * own_results
    tiles = np.zeros_like(near)
    tiles[0, 8:12, 8:12] = True
    tiles |= near
    assert errors(found[~tiles], expected[~tiles])[1] < 1e-4
