"""Convert the geometry of window anchors (convolutions, pools) to that of kernels."""

from __future__ import annotations

from headrace._src.compile.kernels.conv.conv_candidates import candidates
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.core.config import settings
from headrace._src.lowering.window_anchors import Convolution, Pooling

__all__ = ["follows_blocks", "geometry_of", "pool_geometry_of", "takes_pool"]


def geometry_of(g: Convolution, block: int) -> Geometry:
    """Return a convolution's geometry for kernels; for gradients, that of the forward pass."""
    return Geometry(g.n, g.c, g.k, g.h, g.w, g.depthwise, block)


def follows_blocks(g: Convolution, block: int) -> bool:
    """Return whether a depthwise convolution keeps images that are blocked already in blocks. It's
    as fast on plain images, so a conversion is never worth it.
    """
    return g.depthwise and g.c == g.k and g.c % block == 0


def pool_geometry_of(g: Pooling, block: int) -> Geometry:
    """Return a pool's geometry for kernels: it has as many filters as channels."""
    return Geometry(g.n, g.c, g.c, g.h, g.w, False, block)


def takes_pool(g: Geometry) -> bool:
    """Return whether a max-pool of 2 x 2 can be fused into the convolution's kernel."""
    return bool(candidates("forward", g, settings().accuracy, pool=True))
