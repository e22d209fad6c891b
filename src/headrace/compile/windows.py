"""Windows that slide over images: from an anchor's geometry to a kernel's."""

from __future__ import annotations

from headrace.compile.kernels.conv_candidates import candidates
from headrace.compile.kernels.conv_geometry import Geometry
from headrace.core.config import settings
from headrace.lowering.window_anchors import Convolution, Pooling

__all__ = ["follows_blocks", "geometry_of", "pool_geometry_of", "takes_pool"]


def geometry_of(g: Convolution, block: int) -> Geometry:
    """The sizes of a convolution as kernels know them; in every direction, those of the forward."""
    return Geometry(g.n, g.c, g.k, g.h, g.w, g.depthwise, block)


def follows_blocks(g: Convolution, block: int) -> bool:
    """Whether a depthwise convolution keeps images in blocks if they come so. It's as fast on plain
    ones: no conversion is worth it.
    """
    return g.depthwise and g.c == g.k and g.c % block == 0


def pool_geometry_of(g: Pooling, block: int) -> Geometry:
    """The sizes of a pool as kernels know them: as many filters as channels."""
    return Geometry(g.n, g.c, g.c, g.h, g.w, False, block)


def takes_pool(g: Geometry) -> bool:
    """Whether a max-pool of 2 x 2 can be part of the convolution's kernel."""
    return bool(candidates("forward", g, settings().accuracy, pool=True))
