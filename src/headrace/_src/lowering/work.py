"""How much a use of an op computes. In: the geometry of an anchor, or sizes. Out: floating-point
operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from headrace._src.lowering.anchors import Contraction
from headrace._src.lowering.window_anchors import Convolution

__all__ = ["contraction_flops", "geometry_flops"]


def geometry_flops(geometry: Any) -> float | None:
    """Return the operations of a product of matrices or a convolution; None for other anchors."""
    if isinstance(geometry, Contraction):
        return 2.0 * math.prod(geometry.batch) * geometry.m * geometry.n * geometry.k
    if isinstance(geometry, Convolution):
        windows = geometry.h.out * geometry.h.taps * geometry.w.out * geometry.w.taps
        channels = geometry.k if geometry.depthwise else geometry.c * geometry.k
        return 2.0 * geometry.n * windows * channels
    return None


def contraction_flops(operands: Iterable[int], results: Iterable[int]) -> float:
    """Return twice the root of the product of two operands' and the result's sizes: for matrices of
    sizes mk, kn and mn that is 2mkn, and for convolutions of the right order, in either direction.
    """
    largest = sorted(operands)[-2:]
    return 2.0 * math.sqrt(math.prod(largest) * max(results, default=0))
