"""Convolutions by oneDNN as foreign calls, against the NumPy kernels."""

from __future__ import annotations

import ctypes
import functools

import ml_dtypes
import numpy as np
import pytest

from headrace.compile.kernels.conv_geometry import Geometry
from headrace.compile.kernels.conv_onednn import OneDnnConvolution
from headrace.compile.native import aligned
from tests.unit.compile.conv_runs import Example, blocked, error, placed, plain, room

CASES = [
    Geometry(2, 8, 7, 32, 48, (3, 3), pads=((1, 1), (1, 1))),
    Geometry(2, 9, 9, 16, 32, (1, 1)),
    Geometry(1, 12, 11, 48, 16, (3, 3), strides=(2, 2), pads=((0, 1), (1, 1))),
    Geometry(2, 10, 10, 16, 16, (3, 3), pads=((2, 2), (2, 2)), dilations=(2, 2)),
    Geometry(1, 12, 12, 32, 16, (1, 1), strides=(2, 2)),
]
PHOTOGRAPHS = Geometry(2, 21, 22, 3, 32, (7, 5), strides=(2, 3), pads=((2, 3), (1, 2)))


def run(spec: OneDnnConvolution, arrays: list[np.ndarray], threads: int) -> None:
    bound = spec.bind(threads)
    scratch = aligned(max(spec.scratch(threads), 1))
    table = np.array([a.ctypes.data for a in (*arrays, scratch)], np.int64)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(bound.function)
    assert call(bound.user, table.ctypes.data) == 0
    assert bound.keep is not None


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    return blocked(x) if layout == "nChw16c" else placed(x)


def empty(like: np.ndarray, layout: str) -> np.ndarray:
    n, h, w, c = like.shape
    return room(n, c // 16, h, w, 16) if layout == "nChw16c" else room(*like.shape)


def read(x: np.ndarray, layout: str) -> np.ndarray:
    return plain(x) if layout == "nChw16c" else x


@pytest.mark.parametrize("geometry", CASES)
@pytest.mark.parametrize("layout", ["nChw16c", "nhwc"])
@pytest.mark.parametrize("threads", [1, 2])
class TestPasses:
    def test_forward(self, geometry, layout, threads):
        e = Example(geometry)
        y = empty(e.dy, layout)
        spec = OneDnnConvolution("forward", geometry, layout, layout)
        run(spec, [laid_out(e.x, layout), placed(e.w), y], threads)
        assert error(read(y, layout), e.y) < 1e-6

    def test_backward_data(self, geometry, layout, threads):
        e = Example(geometry)
        dx = empty(e.x, layout)
        spec = OneDnnConvolution("backward_data", geometry, layout, layout)
        run(spec, [laid_out(e.dy, layout), placed(e.w), dx], threads)
        assert error(read(dx, layout), e.dx) < 1e-6

    def test_backward_filter(self, geometry, layout, threads):
        e = Example(geometry)
        dw = room(*e.w.shape)
        spec = OneDnnConvolution("backward_filter", geometry, layout, layout)
        run(spec, [laid_out(e.x, layout), laid_out(e.dy, layout), dw], threads)
        assert error(dw, e.dw) < 1e-6


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(x.dtype)


@pytest.mark.parametrize("geometry", [*CASES[::2], PHOTOGRAPHS])
def test_bfloat16_is_multiplied_and_added_in_float32(geometry):
    e = Example(geometry)
    e.x, e.w, e.dy = rounded(e.x), rounded(e.w), rounded(e.dy)
    layouts = ["nhwc" if n % 16 else "nChw16c" for n in (geometry.channels, geometry.filters)]
    x, dy = laid_out(e.x, layouts[0]), laid_out(e.dy, layouts[1])
    y, dx, dw = empty(e.dy, layouts[1]), empty(e.x, layouts[0]), room(*e.w.shape)
    make = functools.partial(
        OneDnnConvolution,
        geometry=geometry, source=layouts[0], result=layouts[1], precision="bfloat16",
    )  # fmt: skip
    run(make("forward"), [x, placed(e.w), y], 2)
    run(make("backward_data"), [dy, placed(e.w), dx], 2)
    run(make("backward_filter"), [x, dy, dw], 2)
    assert error(read(y, layouts[1]), e.y) < 1e-6
    assert error(read(dx, layouts[0]), e.dx) < 1e-6
    assert error(dw, e.dw) < 1e-6


def test_photographs_become_blocked_images():
    e = Example(PHOTOGRAPHS)
    make = functools.partial(OneDnnConvolution, geometry=PHOTOGRAPHS, source="nhwc")
    bias = np.linspace(-3, 3, 32)
    y, dw = empty(e.dy, "nChw16c"), room(*e.w.shape)
    spec = make("forward", bias=True, relu=True)
    assert spec.arguments == ("x", "w", "bias", "out:y")
    run(spec, [placed(e.x), placed(e.w), placed(bias), y], 2)
    assert error(plain(y), np.maximum(e.y + bias, 0)) < 1e-6
    run(make("backward_filter"), [placed(e.x), blocked(e.dy), dw], 2)
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
        OneDnnConvolution(geometry=CASES[0], **options)
