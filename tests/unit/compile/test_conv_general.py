"""The convolution of any window: all passes and layouts, against the NumPy kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.conv.conv_general import GeneralConv
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.lowering.pointwise import record
from tests.unit.compile.conv_runs import Example, error, laid_out, placed, read, room
from tests.unit.compile.targets import TARGETS, run_on

SAME3 = ((1, 1), (1, 1))
CASES = [
    Geometry.of(2, 8, 7, 16, 48, (3, 3), pads=SAME3),
    Geometry.of(2, 9, 9, 32, 16, (1, 1), strides=(2, 2)),
    Geometry.of(1, 12, 11, 48, 16, (3, 2), strides=(2, 3), pads=((0, 1), (1, 1))),
    Geometry.of(2, 10, 10, 16, 32, (3, 3), pads=((2, 2), (2, 2)), dilations=(2, 2)),
    Geometry.of(1, 5, 4, 16, 16, (7, 7), strides=(2, 2), pads=((3, 3), (3, 3))),
    Geometry.of(1, 9, 30, 16, 16, (1, 5), pads=((0, 0), (2, 2))),
]
RAGGED = [
    Geometry.of(1, 8, 8, 24, 21, (3, 3), pads=SAME3),
    Geometry.of(2, 9, 11, 3, 5, (5, 3), strides=(2, 2), pads=((2, 1), (0, 1)), dilations=(1, 2)),
]
DEPTHWISE = [
    Geometry.of(2, 8, 7, 48, 48, (3, 3), pads=SAME3, depthwise=True),
    Geometry.of(1, 9, 9, 16, 16, (3, 3), (2, 2), ((2, 2), (1, 1)), (2, 1), depthwise=True),
]
SEVERAL = [
    Geometry.of(1, 7, 8, 5, 15, (3, 3), pads=SAME3, depthwise=True),
    Geometry.of(2, 6, 6, 4, 80, (2, 2), strides=(2, 1), depthwise=True),
]
PASSES = ("forward", "backward_data", "backward_filter")
SCALED = Epilogue(record(lambda e, y, s, r: (y * s + r, y), ["float32"] * 3), ("channel", "full"))


def check(direction: str, g: Geometry, source: str, result: str, run=run_kernel) -> None:
    e = Example(g)
    x, dy, w = laid_out(e.x, source), laid_out(e.dy, result), placed(e.w)
    expected = {"forward": e.y, "backward_data": e.dx, "backward_filter": e.dw}[direction]
    given = {"forward": [x, w], "backward_data": [dy, w], "backward_filter": [x, dy]}[direction]
    like = {"forward": dy, "backward_data": x, "backward_filter": w}[direction]
    found = room(*like.shape)
    run(GeneralConv(direction, g, source, result), [*given, found])
    assert error(read(found), expected) < 1e-6


@pytest.mark.parametrize("geometry", CASES, ids=str)
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("layouts", [("nChw16c", "nChw16c"), ("nhwc", "nhwc"), ("nhwc", "nChw16c")])
def test_any_window(geometry, direction, layouts):
    check(direction, geometry, *layouts)


@pytest.mark.parametrize("geometry", RAGGED, ids=str)
@pytest.mark.parametrize("direction", PASSES)
def test_any_number_of_channels(geometry, direction):
    check(direction, geometry, "nhwc", "nhwc")


@pytest.mark.parametrize("geometry", DEPTHWISE, ids=str)
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("layout", ["nChw16c", "nhwc"])
def test_channels_alone(geometry, direction, layout):
    check(direction, geometry, layout, layout)


@pytest.mark.parametrize("geometry", SEVERAL, ids=str)
@pytest.mark.parametrize("direction", PASSES[1:])
def test_several_results_of_a_channel(geometry, direction):
    check(direction, geometry, "nhwc", "nhwc")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("geometry", [CASES[2], RAGGED[1], DEPTHWISE[1]], ids=str)
def test_other_processors(target, direction, geometry):
    geometry = replace(geometry, block=target.block)
    layouts = ("nhwc", "nhwc") if geometry.channels % 16 else geometry.layouts
    check(direction, geometry, *layouts, run=lambda spec, arrays: run_on(target, spec, arrays))


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("geometry", [CASES[2], RAGGED[1], DEPTHWISE[0]], ids=str)
def test_epilogues(direction, geometry):
    g, e = geometry, Example(geometry)
    layouts = ("nhwc", "nhwc") if g.channels % 16 else ("nChw16c", "nChw16c")
    x, dy, w = laid_out(e.x, layouts[0]), laid_out(e.dy, layouts[1]), placed(e.w)
    like, expected = {"forward": (dy, e.y), "backward_data": (x, e.dx),
                      "backward_filter": (w, e.dw)}[direction]  # fmt: skip
    given = {"forward": [x, w], "backward_data": [dy, w], "backward_filter": [x, dy]}[direction]
    scale = placed(1 + (e.dw if direction == "backward_filter" else expected)[0, 0, 0])
    if direction == "backward_filter" and g.depthwise:
        scale = placed(scale[:1].repeat(g.channels))  # a row of the filter has one element
    first, second = room(*like.shape), room(*like.shape)
    spec = GeneralConv(direction, g, *layouts, SCALED)
    run_kernel(spec, [*given, scale, like, first, second])
    assert error(read(second), expected) < 1e-6
    factor = scale[0] if direction == "backward_filter" and g.depthwise else scale
    assert error(read(first), expected * factor + read(like)) < 1e-6


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="direction"):
        GeneralConv("sideways", CASES[0], "nhwc", "nhwc")
    with pytest.raises(ValueError, match="depthwise"):
        GeneralConv("forward", Geometry.of(1, 4, 4, 3, 4, (1, 1), depthwise=True), "nhwc", "nhwc")
