"""Every candidate of every pass computes the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.compile.epilogue import Epilogue
from headrace.compile.foreign import is_foreign
from headrace.compile.kernels.conv_candidates import candidates
from headrace.compile.kernels.conv_geometry import Geometry
from headrace.compile.native import run_kernel
from headrace.graph.pointwise import record
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room
from tests.unit.compile.test_conv_onednn import run as run_foreign

SAME3 = ((1, 1), (1, 1))
THREE = Geometry(2, 10, 9, 16, 32, (3, 3), pads=SAME3)
ONE = Geometry(2, 7, 7, 32, 48, (1, 1))
STRIDED = Geometry(1, 9, 9, 16, 16, (3, 3), strides=(2, 2), pads=SAME3)
PHOTO = Geometry(1, 16, 16, 3, 32, (7, 7), strides=(2, 2), pads=((3, 3), (3, 3)))
RAGGED = Geometry(1, 8, 8, 24, 20, (3, 3), pads=SAME3)
PASSES = ("forward", "backward_data", "backward_filter")
HALF = Epilogue(record(lambda e, y: y * 0.5, ["float32"]))


def names(*args, **options) -> list[str]:
    return [c.name for c in candidates(*args, **options)]


@pytest.mark.parametrize("direction", PASSES)
def test_what_is_offered(direction):
    unsettled = ["onednn"] if direction == "backward_filter" else []
    assert names(direction, THREE) == ["winograd", "onednn"]
    assert names(direction, THREE, "fast") == ["winograd", "winograd 6", "onednn"]
    assert names(direction, THREE, "strict") == ["onednn"]
    assert names(direction, replace(THREE, channels=64)) == ["winograd"]
    assert names(direction, ONE, "strict") == ["1x1", *unsettled]
    assert names(direction, STRIDED) == ["onednn"]
    assert names(direction, PHOTO) == ["onednn" if direction == "backward_data" else "few"]
    assert names(direction, RAGGED) == ["onednn"]


def test_narrow_products_are_always_tried():
    types = ("float32", "bfloat16")
    found = names("forward", replace(THREE, channels=64), types=types)
    assert found[:2] == ["winograd", "onednn"]


def test_pools_are_fused_by_own_kernels_only():
    even = Geometry(1, 8, 8, 16, 16, (3, 3), pads=SAME3)
    assert names("forward", even, pool=True) == ["winograd"]
    assert names("forward", PHOTO, pool=True) == ["few"]
    assert names("forward", even, "strict", pool=True) == []
    assert names("forward", THREE, pool=True) == []
    with pytest.raises(ValueError, match="max-pool"):
        candidates("backward_data", even, pool=True)


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    return blocked(array) if layout == "nChw16c" else placed(array)


@pytest.mark.parametrize("geometry", [THREE, ONE, STRIDED, PHOTO, RAGGED])
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("epilogue", [False, True])
def test_all_compute_the_same(geometry, direction, epilogue):
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
        shown = plain(result) if result.ndim == 5 else result
        assert error(shown, expected * (0.5 if epilogue and c.fuses else 1)) < 5e-6
        assert c.fuses or (epilogue and c.name == "onednn")


def test_bad_questions():
    with pytest.raises(ValueError, match="direction"):
        candidates("sideways", THREE)
    with pytest.raises(ValueError, match="accuracy"):
        candidates("forward", THREE, "perfect")
