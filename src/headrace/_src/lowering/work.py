"""How much a use of an op computes. In: the geometry of an anchor, or sizes. Out: floating-point
operations, and the kind of kernel that does them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace._src.lowering.anchors import Contraction
from headrace._src.lowering.window_anchors import Convolution

__all__ = ["Work", "contraction_flops", "geometry_work"]

# The results of a tile of Winograd's algorithm, by taps: (forward and filter, input).
_TILES = {(3, 3): ((4, 4), (4, 3)), (5, 5): ((2, 2), (2, 2))}
_TERMS = 128  # of each sum: with fewer of them, the compiler takes no such algorithm
_BLOCK = 8  # channels: with fewer of them, images are not in blocks
_FEW_ROWS = 32  # products with fewer rows read their weights for little work


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does for a product or a convolution.

    kind: which kernel it is, as far as its speed depends on it. flops: its own floating-point
    operations, which are fewer than the definition's for Winograd's algorithm. transformed: the
    elements that this algorithm transforms before and after its products.
    """

    kind: str
    flops: float
    transformed: float = 0.0


def geometry_work(geometry: Any) -> Work | None:
    """Return the work of a product of matrices or a convolution; None for other anchors.

    Convolutions over windows of 3 x 3 or 5 x 5 that move by one are computed by Winograd's
    algorithm: a tile of its results costs as many products as it has inputs, whatever part of the
    tile lies outside the image.
    """
    if isinstance(geometry, Contraction):
        flops = 2.0 * math.prod(geometry.batch) * geometry.m * geometry.n * geometry.k
        if math.prod(geometry.batch) > 1:
            return Work("batched product", flops)
        rows = min(geometry.m, geometry.k)  # in a gradient of weights, rows are summed
        return Work("thin product" if rows < _FEW_ROWS else "product", flops)
    if isinstance(geometry, Convolution):
        return _convolution(geometry)
    return None


def _convolution(g: Convolution) -> Work:
    way = "forward" if g.direction == "forward" else "gradient"
    windows = g.h.out * g.h.taps * g.w.out * g.w.taps
    if g.depthwise:
        return Work(f"depthwise {way}", 2.0 * g.n * windows * g.k)
    if _takes_winograd(g):
        return _winograd(g, way)
    flops = 2.0 * g.n * windows * g.c * g.k
    if g.c < _BLOCK:
        return Work(f"first convolution {way}", flops)
    if (g.h.taps, g.w.taps) == (1, 1) and (g.h.stride, g.w.stride) == (1, 1):
        return Work(f"1x1 convolution {way}", flops)
    return Work(f"convolution {way}", flops)


def _takes_winograd(g: Convolution) -> bool:
    taps = (g.h.taps, g.w.taps)
    steps = (g.h.stride, g.w.stride, g.h.dilation, g.w.dilation)
    if taps not in _TILES or steps != (1, 1, 1, 1) or g.c % _BLOCK or g.k % _BLOCK:
        return False
    channels = g.k if g.direction == "input" else g.c
    return g.direction == "filter" or math.prod(taps) * channels >= _TERMS


def _winograd(g: Convolution, way: str) -> Work:
    rows, columns = _TILES[g.h.taps, g.w.taps][g.direction == "input"]
    height, width = (g.h.size, g.w.size) if g.direction == "input" else (g.h.out, g.w.out)
    tiles = g.n * math.ceil(height / rows) * math.ceil(width / columns)
    each = (rows + g.h.taps - 1) * (columns + g.w.taps - 1)
    transformed = each * (tiles * (g.c + g.k) + g.c * g.k)
    return Work(f"winograd {way}", 2.0 * tiles * each * g.c * g.k, float(transformed))


def contraction_flops(operands: Iterable[int], results: Iterable[int]) -> float:
    """Return twice the root of the product of two operands' and the result's sizes: for matrices of
    sizes mk, kn and mn that is 2mkn, and for convolutions of the right order, in either direction.
    """
    largest = sorted(operands)[-2:]
    return 2.0 * math.sqrt(math.prod(largest) * max(results, default=0))
