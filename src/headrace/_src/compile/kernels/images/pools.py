"""Pools of blocked images, and their gradients. In: a group around one. Out: calls in a plan."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np

from headrace._src.compile.build.group_epilogues import epilogue_of
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.kernels.anchor_kind import (
    AnchorKind,
    Arrays,
    Family,
    as_given,
    channels_first,
    numpy_dtype,
    wide,
)
from headrace._src.compile.kernels.conv.direct_windows import DirectPool
from headrace._src.compile.kernels.images.conv_geometry import Geometry, geometry_of
from headrace._src.compile.kernels.images.pooling_loops import (
    AveragePool,
    AveragePoolGradient,
    MaxPool,
    MaxPoolGradient,
)
from headrace._src.compile.regions.groups import Group
from headrace._src.core.windows import Window, taps
from headrace._src.devices.target import host
from headrace._src.lowering.window_anchors import Pooling, Pooling3D

__all__ = ["KINDS"]


def _supports(g: Pooling) -> bool:
    """Whether there is a kernel for it."""
    return (
        g.dtype == "float32"
        and g.data_format == "NHWC"
        and g.c % host().block == 0
        and g.h.dilation == g.w.dilation == 1
        and g.h.taps * g.w.taps <= 256
    )


def _build(builder: Builder, group: Group) -> None:
    """Add the call of a pool or of its gradient."""
    node = group.head
    g: Pooling = node.geometry
    geometry = geometry_of(g, builder.blocked.size)
    epilogue, operands, outputs = epilogue_of(builder, group)
    fused = [*operands, *outputs]
    if g.direction == "gradient":
        if g.kind == "mean":
            dy = builder.blocks_of(node.inputs[1])
            builder.call(AveragePoolGradient(geometry, epilogue), [dy, *fused], node.name)
            return
        argmax = _argmax(builder, group, geometry)
        dy = builder.blocks_of(node.inputs[g.operands[-1]])
        builder.call(MaxPoolGradient(geometry, epilogue), [dy, argmax, *fused], node.name)
        return
    x = builder.blocks_of(node.inputs[0])
    if g.kind == "mean":
        builder.call(AveragePool(geometry, epilogue), [x, *fused], node.name)
        return
    undone = g.positions or node in builder.region.pools.values()
    last = [builder.argmax(node)] if undone else []
    builder.call(MaxPool(geometry, epilogue, argmax=undone), [x, *fused, *last], node.name)


def _argmax(builder: Builder, group: Group, geometry: Geometry) -> int:
    """Return the buffer of the maxima's positions: those that the pool stored, or found again."""
    node = group.head
    if node.geometry.positions:
        return builder.blocks_of(node.inputs[0])
    pool = builder.region.pools.get(node)
    if pool is not None:
        return builder.argmax(pool)
    sizes = node.inputs[1].type.sizes or ()
    y = builder.temporary("float32", prod(sizes), f"{node.name}/maxima")
    argmax = builder.temporary("uint8", prod(sizes), f"{node.name}/argmax")
    x = builder.blocks_of(node.inputs[0])
    builder.call(MaxPool(geometry, argmax=True), [x, y, argmax], f"{node.name}/maxima")
    return argmax


# -- Ahead of time ---------------------------------------------------------------------------------


def _supports_ahead(g: Pooling) -> bool:
    return (g.direction, g.data_format, g.dtype) == ("forward", "NHWC", "float32")


def _build_ahead(builder: Builder, group: Group) -> None:
    g: Pooling = group.head.geometry
    x = builder.whole(group.head.inputs[0])
    epilogue, operands, outputs = epilogue_of(builder, group)
    builder.call(_pool(g, epilogue), [x, *operands, *outputs], group.head.name)


def _build_volumes(builder: Builder, group: Group) -> None:
    """Pool the planes first, then along the depth: a 3-D window is a product of windows."""
    g: Pooling3D = group.head.geometry
    planes = Pooling(g.kind, "forward", g.n * g.d.size, g.c, g.h, g.w, "NHWC", g.dtype)
    inner = g.h.out * g.w.out
    apart = Window(inner, 1, 1, 1, 0, 0, inner)
    depth = Pooling(g.kind, "forward", g.n, g.c, g.d, apart, "NHWC", g.dtype)
    name = group.head.name
    pooled = builder.temporary("float32", g.n * g.d.size * inner * g.c, f"{name}/planes")
    x = builder.whole(group.head.inputs[0])
    builder.call(_pool(planes, NOTHING), [x, pooled], f"{name}/planes")
    epilogue, operands, outputs = epilogue_of(builder, group)
    builder.call(_pool(depth, epilogue), [pooled, *operands, *outputs], name)


def _pool(g: Pooling, epilogue: Epilogue) -> DirectPool:
    return DirectPool(geometry_of(g), "max" if g.kind == "max" else "average", epilogue)


# -- Their meaning ---------------------------------------------------------------------------------


def _meaning(g: Pooling, *operands: np.ndarray) -> Arrays:
    images = [channels_first(g, wide(x)) for x in operands]
    function = {"max": _max_pool, "mean": _mean_pool}[g.kind]
    return [as_given(g, function(g, *images))]


def _max_pool(g: Pooling, x: np.ndarray, *gradient: np.ndarray) -> np.ndarray:
    shape = (g.n, g.c, g.h.out, g.w.out)
    if not gradient:
        best = np.full(shape, ml_dtypes.finfo(numpy_dtype(g.dtype)).min, x.dtype)
        for _, outs, ins in taps((g.h, g.w)):
            seen, made = x[(..., *ins)], (..., *outs)
            best[made] = np.where(seen > best[made], seen, best[made])
        return best
    best, winner = np.zeros(shape, x.dtype), np.full(shape, -1)
    for tap, (_, outs, ins) in enumerate(taps((g.h, g.w))):
        seen, made = x[(..., *ins)], (..., *outs)
        wins = (winner[made] < 0) | (seen > best[made])
        best[made] = np.where(wins, seen, best[made])
        winner[made] = np.where(wins, tap, winner[made])
    dx, dy = np.zeros_like(x), gradient[1]
    for tap, (_, outs, ins) in enumerate(taps((g.h, g.w))):
        dx[(..., *ins)] += np.where(winner[(..., *outs)] == tap, dy[(..., *outs)], 0)
    return dx


def _mean_pool(g: Pooling, image: np.ndarray) -> np.ndarray:
    counts = np.zeros((g.h.out, g.w.out), image.dtype)
    for _, outs, _ in taps((g.h, g.w)):
        counts[outs] += 1
    forward = g.direction == "forward"
    sizes = (g.h.out, g.w.out) if forward else (g.h.size, g.w.size)
    result = np.zeros((g.n, g.c, *sizes), image.dtype)
    for _, outs, ins in taps((g.h, g.w)):
        if forward:
            result[(..., *outs)] += image[(..., *ins)]
        else:
            result[(..., *ins)] += (image / counts)[(..., *outs)]
    return result / counts if forward else result


def _meaning_of_volumes(g: Pooling3D, x: np.ndarray) -> Arrays:
    """Planes first, then along the depth."""
    planes = Pooling(g.kind, "forward", g.n * g.d.size, g.c, g.h, g.w, "NHWC", g.dtype)
    inner = g.h.out * g.w.out
    apart = Window(inner, 1, 1, 1, 0, 0, inner)
    depth = Pooling(g.kind, "forward", g.n, g.c, g.d, apart, "NHWC", g.dtype)
    (found,) = _meaning(planes, x.reshape(g.n * g.d.size, g.h.size, g.w.size, g.c))
    return _meaning(depth, found.reshape(g.n, g.d.size, inner, g.c))


KINDS = (
    AnchorKind(
        "pooling",
        Family(_build, _supports),
        Family(_build_ahead, _supports_ahead),
        {Pooling: _meaning},
    ),
    AnchorKind(
        "pooling_3d",
        None,
        Family(_build_volumes, lambda g: g.dtype == "float32"),
        {Pooling3D: _meaning_of_volumes},
    ),
)
