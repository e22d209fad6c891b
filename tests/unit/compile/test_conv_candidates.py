"""Every candidate of every pass computes the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.kernels.conv import conv_candidates
from headrace._src.compile.kernels.conv.conv_candidates import candidates
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.onednn_calls import is_foreign
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.core.windows import Window
from headrace._src.devices.target import for_level, host
from headrace._src.lowering.pointwise import record
from headrace._src.lowering.window_anchors import Convolution
from headrace._src.lowering.work import geometry_work
from tests.unit.compile.conv_runs import Example, error, laid_out, placed, read, room
from tests.unit.compile.test_conv_onednn import run as run_foreign

SAME3 = ((1, 1), (1, 1))
THREE = Geometry.of(3, 10, 9, 16, 32, (3, 3), pads=SAME3)
ONE = Geometry.of(2, 7, 7, 32, 48, (1, 1))
STRIDED = Geometry.of(1, 9, 9, 16, 16, (3, 3), strides=(2, 2), pads=SAME3)
PHOTO = Geometry.of(1, 16, 16, 3, 32, (7, 7), strides=(2, 2), pads=((3, 3), (3, 3)))
RAGGED = Geometry.of(1, 8, 8, 24, 20, (3, 3), pads=SAME3)
PASSES = ("forward", "backward_data", "backward_filter")
HALF = Epilogue(record(lambda e, y: y * 0.5, ["float32"]))


V3, V4 = for_level("x86-64-v3"), for_level("x86-64-v4")


def names(*args, **options) -> list[str]:
    return [c.name for c in candidates(*args, **options)]


@pytest.fixture
def onednn(monkeypatch):
    """Let oneDNN have code for everything, or for nothing: what it has depends on the processor."""

    def set_(has: bool) -> None:
        monkeypatch.setattr(conv_candidates, "can", lambda spec: has)

    return set_


@pytest.mark.parametrize("direction", PASSES)
def test_what_is_offered_where_onednn_has_code(direction, onednn):
    onednn(True)
    unsettled = ["onednn"] if direction == "backward_filter" else []
    assert names(direction, THREE) == ["accurate winograd", "onednn"]
    assert names(direction, THREE, "fast") == ["winograd", "winograd 6", "onednn"]
    assert names(direction, THREE, "strict") == ["onednn"]
    assert names(direction, replace(THREE, channels=64)) == ["accurate winograd"]
    assert names(direction, replace(THREE, channels=64), "fast") == ["winograd", "winograd 6"]
    assert names(direction, ONE, "strict") == ["1x1", *unsettled]
    assert names(direction, STRIDED) == ["onednn"]
    assert names(direction, PHOTO) == ["onednn" if direction == "backward_data" else "few"]
    assert names(direction, RAGGED) == ["onednn"]


@pytest.mark.parametrize("direction", PASSES)
def test_there_is_always_a_kernel_of_ours(direction, onednn):
    onednn(False)
    assert names(direction, THREE) == ["accurate winograd"]
    assert names(direction, THREE, "strict") == ["general"]
    assert names(direction, ONE) == ["1x1"]
    assert names(direction, STRIDED) == ["general"]
    assert names(direction, PHOTO) == ["general" if direction == "backward_data" else "few"]
    assert names(direction, RAGGED) == ["general"]
    deep = replace(STRIDED, depthwise=True)
    own = ["general"] if direction == "backward_filter" else ["depthwise"]
    assert names(direction, deep) == own
    assert names(direction, replace(deep, h=replace(deep.h, dilation=2))) == ["general"]


@pytest.mark.parametrize("direction", PASSES)
def test_another_processor_gets_no_kernels_of_onednn(direction, onednn):
    onednn(True)
    other = V3 if host().level == "x86-64-v4" else V4
    assert names(direction, STRIDED, target=other) == ["general"]
    assert names(direction, replace(THREE, block=8), target=other) == ["accurate winograd"]


def test_accurate_tiles_are_small_where_errors_are_large():
    five = Geometry.of(8, 10, 9, 16, 32, (5, 5), pads=((2, 2), (2, 2)))

    def kernels(direction: str, geometry: Geometry, accuracy: str, target=V3) -> set:
        found = candidates(direction, geometry, accuracy, target=target)
        return {
            (spec.m, spec.accurate) for c in found if "winograd" in c.name for spec, _ in c.calls
        }

    sse = for_level("x86-64-v2")
    for direction in PASSES:
        tile = (4, 3) if direction == "backward_data" else 4
        assert kernels(direction, THREE, "default") == {(tile, True)}
        assert kernels(direction, THREE, "default", sse) == {(2, True)}
        few = {(2, True)} if direction == "forward" else set()
        assert kernels(direction, five, "default", sse) == few
        assert kernels(direction, THREE, "fast") == {(4, False), (6, False)}
        assert kernels(direction, five, "default") == {(2, True)}
        assert kernels(direction, five, "fast") == {(4, False)}


def test_short_sums_are_left_to_direct_convolution(onednn):
    onednn(True)
    small = Geometry.of(2, 9, 9, 8, 16, (3, 3), pads=SAME3, block=8)
    assert names("forward", small) == names("backward_filter", small) == ["onednn"]
    assert names("backward_data", small) == ["accurate winograd", "onednn"]
    assert names("forward", small, "fast") == ["winograd", "winograd 6", "onednn"]
    # Kernels are timed on a part of the images, and judged by all of them.
    assert names("backward_filter", small, images=16) == ["accurate winograd", "onednn"]


def test_a_reference_implementation_is_never_offered():
    g = Geometry.of(2, 9, 9, 16, 16, (3, 3), (2, 2), SAME3, (2, 2), block=host().block)
    for direction in PASSES:
        for way in candidates(direction, g, "strict"):
            for spec, _ in way.calls:
                if is_foreign(spec):
                    assert not any(name.startswith("ref") for name in spec.plan().names)


def test_narrow_products_are_always_tried(onednn):
    onednn(True)
    types = ("float32", "bfloat16")
    found = names("forward", replace(THREE, channels=64), types=types)
    assert found == ["accurate winograd", "onednn", "onednn bfloat16"]


def test_pools_are_fused_by_own_kernels_only():
    even = Geometry.of(1, 8, 8, 16, 16, (3, 3), pads=SAME3)
    assert names("forward", even, pool=True) == ["accurate winograd"]
    assert names("forward", even, "fast", pool=True) == ["winograd"]
    assert names("forward", PHOTO, pool=True) == ["few"]
    assert names("forward", even, "strict", pool=True) == []
    assert names("forward", THREE, pool=True) == []
    with pytest.raises(ValueError, match="max-pool"):
        candidates("backward_data", even, pool=True)


@pytest.mark.parametrize("block", [16, 8, 4])
@pytest.mark.parametrize("geometry", [THREE, ONE, STRIDED, PHOTO, RAGGED])
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("epilogue", [False, True])
def test_all_compute_the_same(geometry, direction, epilogue, block):
    geometry = replace(geometry, block=block)
    e = Example(geometry)
    expected = {"forward": e.y, "backward_data": e.dx, "backward_filter": e.dw}[direction]
    found = candidates(direction, geometry, epilogue=HALF) if epilogue else None
    for c in found or candidates(direction, geometry):
        arrays = {"x": laid_out(e.x, c.x_layout), "y": laid_out(e.dy, c.y_layout), "w": placed(e.w)}
        arrays |= {name: room(size // 4) for name, size in c.temporaries}
        result = arrays[c.calls[-1][1][-1]]
        result[...] = np.nan
        for spec, buffers in c.calls:
            given = [arrays[b] for b in buffers]
            run_foreign(spec, given, 2) if is_foreign(spec) else run_kernel(spec, given)
        assert error(read(result), expected * (0.5 if epilogue and c.fuses else 1)) < 5e-6
        assert c.fuses or (epilogue and c.name == "onednn")


def test_bad_questions():
    with pytest.raises(ValueError, match="direction"):
        candidates("sideways", THREE)
    with pytest.raises(ValueError, match="accuracy"):
        candidates("forward", THREE, "perfect")


@pytest.mark.parametrize("direction", ["forward", "input", "filter"])
@pytest.mark.parametrize("taps", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_estimates_count_winograd_where_it_is_offered(direction, taps, stride):
    """Placement can't ask the compiler (see lowering.work): its rule must be the same."""
    axis = Window.of(32, taps, stride, 1, "SAME").tight()
    counted = Convolution(direction, 4, 64, 128, axis, axis, "NHWC", "float32")
    passes = dict(zip(("forward", "input", "filter"), PASSES, strict=True))
    geometry = Geometry(4, 64, 128, axis, axis)
    offered = names(passes[direction], geometry, target=V4)
    is_winograd = geometry_work(counted).kind.startswith("winograd")
    assert is_winograd == ("accurate winograd" in offered)
