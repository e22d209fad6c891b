"""Convolutions by oneDNN as foreign calls, against the NumPy kernels."""

from __future__ import annotations

import ctypes
import functools

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.kernels.conv.conv_candidates import candidates
from headrace._src.compile.kernels.conv.conv_onednn import OneDnnConvolution
from headrace._src.compile.kernels.images.conv_geometry import Geometry, layout_of
from headrace._src.compile.kernels.onednn_calls import can
from headrace._src.compile.native.machine_code import aligned
from headrace._src.devices.target import host
from tests.unit.compile.conv_runs import Example, error, laid_out, placed, read, room

BLOCK = host().block  # oneDNN has code for the blocks that suit the processor, and for no others
BLOCKED = layout_of(BLOCK)
CASES = [
    Geometry.of(2, 8, 7, 32, 48, (3, 3), pads=((1, 1), (1, 1)), block=BLOCK),
    Geometry.of(2, 9, 9, 16, 32, (1, 1), block=BLOCK),
    Geometry.of(1, 12, 11, 48, 16, (3, 3), (2, 2), ((0, 1), (1, 1)), block=BLOCK),
    Geometry.of(2, 10, 10, 16, 16, (3, 3), pads=((2, 2), (2, 2)), dilations=(2, 2), block=BLOCK),
    Geometry.of(1, 12, 12, 32, 16, (1, 1), strides=(2, 2), block=BLOCK),
]
PHOTOGRAPHS = Geometry.of(2, 21, 22, 3, 32, (7, 5), (2, 3), ((2, 3), (1, 2)), block=BLOCK)


def offered(spec: OneDnnConvolution) -> bool:
    """Whether oneDNN has code for it on this processor. Where it has none but a reference
    implementation, another kernel must be there.
    """
    if can(spec):
        return True
    ways = candidates(spec.direction, spec.geometry, types=(spec.precision,))
    assert not any(way.name.startswith("onednn") for way in ways if way.calls[0][0] == spec)
    return False


def run(spec: OneDnnConvolution, arrays: list[np.ndarray], threads: int) -> None:
    bound = spec.bind(threads)
    scratch = aligned(max(spec.scratch(threads), 1))
    table = np.array([a.ctypes.data for a in (*arrays, scratch)], np.int64)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(bound.function)
    assert call(bound.user, table.ctypes.data) == 0
    assert bound.keep is not None


def empty(like: np.ndarray, layout: str) -> np.ndarray:
    return room(*laid_out(like, layout).shape)


@pytest.mark.parametrize("geometry", CASES)
@pytest.mark.parametrize("layout", [BLOCKED, "nhwc"])
@pytest.mark.parametrize("threads", [1, 2])
class TestPasses:
    def test_forward(self, geometry, layout, threads):
        e = Example(geometry)
        y = empty(e.dy, layout)
        spec = OneDnnConvolution("forward", geometry, layout, layout)
        if offered(spec):
            run(spec, [laid_out(e.x, layout), placed(e.w), y], threads)
            assert error(read(y), e.y) < 1e-6

    def test_backward_data(self, geometry, layout, threads):
        e = Example(geometry)
        dx = empty(e.x, layout)
        spec = OneDnnConvolution("backward_data", geometry, layout, layout)
        if offered(spec):
            run(spec, [laid_out(e.dy, layout), placed(e.w), dx], threads)
            assert error(read(dx), e.dx) < 1e-6

    def test_backward_filter(self, geometry, layout, threads):
        e = Example(geometry)
        dw = room(*e.w.shape)
        spec = OneDnnConvolution("backward_filter", geometry, layout, layout)
        if offered(spec):
            run(spec, [laid_out(e.x, layout), laid_out(e.dy, layout), dw], threads)
            assert error(dw, e.dw) < 1e-6


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(x.dtype)


@pytest.mark.parametrize("geometry", [*CASES[::2], PHOTOGRAPHS])
def test_bfloat16_is_multiplied_and_added_in_float32(geometry):
    e = Example(geometry)
    e.x, e.w, e.dy = rounded(e.x), rounded(e.w), rounded(e.dy)
    layouts = geometry.layouts
    x, dy = laid_out(e.x, layouts[0]), laid_out(e.dy, layouts[1])
    y, dx, dw = empty(e.dy, layouts[1]), empty(e.x, layouts[0]), room(*e.w.shape)
    make = functools.partial(
        OneDnnConvolution,
        geometry=geometry, source=layouts[0], result=layouts[1], precision="bfloat16",
    )  # fmt: skip
    arrays = {"forward": [x, placed(e.w), y], "backward_data": [dy, placed(e.w), dx],
              "backward_filter": [x, dy, dw]}  # fmt: skip
    expected = {"forward": e.y, "backward_data": e.dx, "backward_filter": e.dw}
    for direction, given in arrays.items():
        spec = make(direction)
        if offered(spec):
            run(spec, given, 2)
            assert error(read(given[-1]), expected[direction]) < 1e-6


def test_photographs_become_blocked_images():
    e = Example(PHOTOGRAPHS)
    make = functools.partial(OneDnnConvolution, geometry=PHOTOGRAPHS, source="nhwc", result=BLOCKED)
    bias = np.linspace(-3, 3, 32)
    y, dw = empty(e.dy, BLOCKED), room(*e.w.shape)
    spec = make("forward", bias=True, relu=True)
    assert spec.arguments == ("x", "w", "bias", "out:y")
    run(spec, [placed(e.x), placed(e.w), placed(bias), y], 2)
    assert error(read(y), np.maximum(e.y + bias, 0)) < 1e-6
    run(make("backward_filter"), [placed(e.x), laid_out(e.dy, BLOCKED), dw], 2)
    assert error(dw, e.dw) < 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "sideways"}, "direction"),
        ({"direction": "forward", "source": "chwn"}, "laid out"),
        ({"direction": "backward_data", "bias": True}, "bias"),
        ({"direction": "backward_filter", "relu": True}, "relu"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OneDnnConvolution(geometry=CASES[0], **{"source": "nhwc", "result": "nhwc", **options})
