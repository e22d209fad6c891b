"""The work of products and convolutions."""

import math

import pytest

from headrace._src.core.windows import Window
from headrace._src.lowering.anchors import Contraction
from headrace._src.lowering.window_anchors import Convolution, Pooling
from headrace._src.lowering.work import contraction_flops, geometry_work


def convolution(direction, channels, filters, taps, size=16, stride=1, depthwise=False):
    axis = Window.of(size, taps, stride, 1, "SAME")
    return Convolution(
        direction, 4, channels, filters, axis, axis, "NHWC", "float32", depthwise=depthwise
    )


def product(m, n, k, batch=()):
    return Contraction(batch, batch, batch, m, n, k, False, False, "float32")


def test_products_are_counted_by_their_sizes():
    work = geometry_work(product(64, 50, 40))
    assert (work.kind, work.flops, work.transformed) == ("product", 2 * 64 * 50 * 40, 0)
    assert geometry_work(product(4, 50, 400)).kind == "thin product"
    assert geometry_work(product(400, 50, 4)).kind == "thin product"
    batched = geometry_work(product(64, 50, 40, (2, 3)))
    assert (batched.kind, batched.flops) == ("batched product", 6 * 2 * 64 * 50 * 40)


def test_direct_convolutions_are_counted_by_their_windows():
    strided = geometry_work(convolution("forward", 32, 48, 3, stride=2))
    assert (strided.kind, strided.flops) == (
        "convolution forward",
        2 * 4 * 8 * 8 * 9 * 32 * 48,
    )
    assert geometry_work(convolution("filter", 3, 32, 7)).kind == "first convolution gradient"
    single = geometry_work(convolution("input", 32, 48, 1))
    assert (single.kind, single.flops) == (
        "1x1 convolution gradient",
        2 * 4 * 16 * 16 * 32 * 48,
    )
    depthwise = geometry_work(convolution("forward", 32, 32, 3, depthwise=True))
    assert (depthwise.kind, depthwise.flops) == ("depthwise forward", 2 * 4 * 16 * 16 * 9 * 32)


@pytest.mark.parametrize(
    "direction, taps, size, tiles, each",
    [
        ("forward", 3, 16, 4 * 4, 36),
        ("forward", 3, 13, 4 * 4, 36),  # the last tiles are partly outside
        ("filter", 3, 16, 4 * 4, 36),
        ("input", 3, 16, 4 * 6, 30),
        ("forward", 5, 16, 8 * 8, 36),
    ],
)
def test_winograd_costs_the_products_of_its_tiles(direction, taps, size, tiles, each):
    work = geometry_work(convolution(direction, 64, 32, taps, size))
    assert work.kind == f"winograd {'forward' if direction == 'forward' else 'gradient'}"
    assert work.flops == 2 * 4 * tiles * each * 64 * 32
    assert work.transformed == each * (4 * tiles * (64 + 32) + 64 * 32)


def test_other_anchors_have_no_work():
    axis = Window.of(8, 2, 2, 1, "VALID")
    assert geometry_work(Pooling("max", "forward", 1, 8, axis, axis, "NHWC", "float32")) is None


def test_sizes_alone_give_the_operations_of_a_product():
    assert contraction_flops([20 * 30, 30 * 10], [20 * 10]) == pytest.approx(2 * 20 * 30 * 10)
    assert math.isclose(contraction_flops([], []), 0.0)
