"""Transposed convolutions (the gradient of a convolution to its input) by plain convolutions.

Along an axis of stride s, the results m * s + p of one phase p are sums over every s-th tap of the
filter only: a convolution of stride 1 with these taps reversed. So there is a small convolution for
each pair of phases, whose results are copied to their places. Nothing is multiplied by the zeros
that a dilated input would have between its pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from headrace._src.compile.build.group_epilogues import map_epilogue
from headrace._src.compile.build.plan_builder import Builder, StridedOperand
from headrace._src.compile.codegen.epilogue import NOTHING
from headrace._src.compile.kernels.conv.direct_conv import direct_conv, pack_filters
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.regions.groups import Group, Space
from headrace._src.core.windows import Window
from headrace._src.lowering.rules import row_major
from headrace._src.lowering.window_anchors import Convolution

__all__ = ["build_transposed", "supports_transposed"]


@dataclass(frozen=True)
class _Phase:
    """One phase of an axis.

    first, step, count: the taps. pads: around the input. skip: the results before the first place.
    start, apart, places: the places of the other results.
    """

    first: int
    step: int
    count: int
    pads: tuple[int, int]
    skip: int
    start: int
    apart: int
    places: int


def _phases(window: Window[int]) -> list[_Phase]:
    """The phases of an axis that have taps and places."""
    found = []
    for p in range(window.stride):
        count = len(range(p, window.taps, window.stride))
        first = -((p - window.before) // window.stride)  # the smallest m with a place
        last = (window.size - 1 + window.before - p) // window.stride
        if not count or last < first:
            continue
        reach = (count - 1) * window.dilation
        begin = min(first, reach)
        pads = reach - begin, max(0, last - (window.out - 1))
        start = first * window.stride + p - window.before
        sizes = first - begin, start, window.stride, last - first + 1
        found.append(_Phase(p, window.stride, count, pads, *sizes))
    return found


def supports_transposed(g: Convolution) -> bool:
    """Return whether a convolution's gradient can be computed by plain convolutions."""
    return all(w.stride == 1 or w.dilation == 1 for w in (g.h, g.w))


def build_transposed(
    builder: Builder, group: Group, g: Convolution, known: np.ndarray | None
) -> None:
    """Add the calls of a transposed convolution; `known` are its filters, if they are constants."""
    node = group.head
    x = builder.whole(node.inputs[2])
    raw = map_epilogue(builder, group)
    shape = g.n, g.h.size, g.w.size, g.c
    pairs = list(product(_phases(g.h), _phases(g.w)))
    if sum(tall.places * wide.places for tall, wide in pairs) < g.h.size * g.w.size:
        zero = builder.add("constant", "float32", 1, "zero", value=np.zeros(1, np.float32))
        nothing = StridedOperand(zero, "float32", (0,) * 4)
        builder.copy(nothing, StridedOperand(raw.buffer, "float32", row_major(shape)), Space(shape))
    for tall, wide in pairs:
        geometry = Geometry.of(
            g.n, g.h.out, g.w.out, g.k, g.c, (tall.count, wide.count),
            pads=(tall.pads, wide.pads), dilations=(g.h.dilation, g.w.dilation),
        )  # fmt: skip
        kernel = direct_conv(geometry, NOTHING, builder.target)
        if known is None:
            filters = _turned(builder, g, tall, wide, builder.whole(node.inputs[1]))
        else:
            taps = known[tall.first :: tall.step, wide.first :: wide.step]
            turned = np.ascontiguousarray(taps[::-1, ::-1].swapaxes(2, 3))
            packed = pack_filters(turned, kernel)
            filters = builder.add("constant", "float32", packed.size, node.name, value=packed)
            kernel = replace(kernel, packed=True)
        rows, columns = geometry.out_height, geometry.out_width
        sums = builder.temporary("float32", g.n * rows * columns * g.c, f"{node.name}/phase")
        builder.call(kernel, [x, filters, sums], node.name)
        _put(builder, raw.buffer, shape, sums, (rows, columns), tall, wide)
    raw.finish()


def _put(
    builder: Builder,
    result: int,
    shape: tuple[int, ...],
    sums: int,
    sizes: tuple[int, int],
    tall: _Phase,
    wide: _Phase,
) -> None:
    """Copy the results of two phases to their places."""
    n, height, width, c = shape
    rows, columns = sizes
    source = StridedOperand(
        sums, "float32", row_major((n, rows, columns, c)), (tall.skip * columns + wide.skip) * c
    )
    strides = height * width * c, tall.apart * width * c, wide.apart * c, 1
    target = StridedOperand(result, "float32", strides, (tall.start * width + wide.start) * c)
    builder.copy(source, target, Space((n, tall.places, wide.places, c)))


def _turned(builder: Builder, g: Convolution, tall: _Phase, wide: _Phase, filters: int) -> int:
    """The taps of two phases in reverse, with their channels exchanged, made at each call."""
    row, column = g.w.taps * g.c * g.k, g.c * g.k
    last = (tall.first + (tall.count - 1) * tall.step) * row + (
        wide.first + (wide.count - 1) * wide.step
    ) * column
    strides = -tall.step * row, -wide.step * column, 1, g.k
    shape = tall.count, wide.count, g.k, g.c
    turned = builder.temporary("float32", int(np.prod(shape)), "filters")
    source = StridedOperand(filters, "float32", strides, last)
    builder.copy(source, StridedOperand(turned, "float32", row_major(shape)), Space(shape))
    return turned
