"""Build convolutions and pools: a group around one becomes calls of the fastest kernels.

Images have the blocked layout, except those with few channels (a network's input); filters and
their gradients are plain. A filter is transformed for Winograd's algorithm once per step and use,
because it changes with every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from headrace._src.compile.build.group_epilogues import bias_relu_of, epilogue_of, map_epilogue
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.kernels.conv.conv_candidates import Candidate, candidates
from headrace._src.compile.kernels.conv.conv_onednn import OneDnnConvolution
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import (
    AveragePool,
    AveragePoolGradient,
    MaxPool,
    MaxPoolGradient,
)
from headrace._src.compile.kernels.onednn_calls import can, multiplies
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.regions.window_geometry import (
    follows_blocks,
    geometry_of,
    pool_geometry_of,
)
from headrace._src.compile.run.choose import fastest, trial_plan
from headrace._src.core.config import settings
from headrace._src.devices.target import host
from headrace._src.graph.dataflow import Value
from headrace._src.lowering.window_anchors import Convolution, Pooling

__all__ = ["build_convolution", "build_pooling", "supports_convolution", "supports_pooling"]

_DIRECTIONS = {"forward": "forward", "input": "backward_data", "filter": "backward_filter"}
_TIMED_BATCH = 4  # kernels are timed on this many images


# -- Convolutions ----------------------------------------------------------------------------------


def supports_convolution(g: Convolution) -> bool:
    """Whether there is a kernel for it."""
    return g.dtype == "float32" and g.data_format == "NHWC"


def build_convolution(builder: Builder, group: Group) -> None:
    """Add the calls of a convolution's group."""
    node = group.head
    g: Convolution = node.geometry
    block = builder.blocked.size
    direction, geometry = _DIRECTIONS[g.direction], geometry_of(g, block)
    types = (g.precision,) if multiplies(builder.target, g.precision) else ()
    image = node.inputs[2 if direction == "backward_data" else 0]
    plain = g.depthwise and not (follows_blocks(g, block) and builder.is_blocked(image))
    ask = partial(
        candidates,
        direction,
        accuracy=settings().accuracy,
        types=("float32", *types),
        plain=plain,
        target=builder.target,
    )
    way = _choose(builder, ask, geometry, group.pool is not None)
    buffers: dict[str, int] = {}
    x_layout, y_layout = ("nhwc", "nhwc") if plain else geometry.layouts
    if direction != "backward_data":
        buffers["x"] = _image(builder, node.inputs[0], x_layout)
    if direction != "backward_filter":
        buffers["w"] = builder.whole(node.inputs[1])
    if direction != "forward":
        buffers["y"] = _image(builder, node.inputs[2], y_layout)
    if way.startswith("onednn"):
        (found,) = (c for c in ask(geometry) if c.name == way)
        ((spec, names),) = found.calls
        _direct(builder, group, spec, [buffers[n] for n in names[:-1]])
    else:
        _fused(builder, group, partial(ask, geometry), way, buffers)


def _image(builder: Builder, value: Value, layout: str) -> int:
    return builder.whole(value) if layout == "nhwc" else builder.blocks_of(value)


def _fused(
    builder: Builder,
    group: Group,
    ask: Callable[..., list[Candidate]],
    way: str,
    buffers: dict[str, int],
) -> None:
    """A kernel that has the group's element-wise nodes in it."""
    name, pool = group.head.name, group.pool
    epilogue, operands, outputs = epilogue_of(builder, group)
    (found,) = (c for c in ask(epilogue=epilogue, pool=pool is not None) if c.name == way)
    for temporary, size in found.temporaries:
        buffers[temporary] = builder.temporary("float32", size // 4, f"{name}/{temporary}")
    *before, (kernel, names) = found.calls
    for spec, needed in before:
        builder.call(spec, [buffers[n] for n in needed], f"{name}/filter")
    last = [builder.argmax(pool)] if pool is not None else []
    given = [buffers[n] for n in names[:-1]]
    builder.call(kernel, [*given, *operands, *outputs, *last], name)


def _direct(builder: Builder, group: Group, spec: OneDnnConvolution, inputs: list[int]) -> None:
    """oneDNN's kernel; what it can't fuse runs over its result, in place."""
    name = group.head.name
    fused = bias_relu_of(builder, group) if spec.direction == "forward" else None
    if fused is not None:
        bias, relu, out = fused
        with_bias = replace(spec, bias=bias is not None, relu=relu)
        if can(with_bias):
            biases = [bias] if bias is not None else []
            builder.call(with_bias, [*inputs, *biases, out], name)
            return
    raw = map_epilogue(builder, group)
    builder.call(spec, [*inputs, raw.buffer], name)
    raw.finish()


# -- Choosing --------------------------------------------------------------------------------------


def _choose(
    builder: Builder, ask: Callable[..., list[Candidate]], geometry: Geometry, pool: bool
) -> str:
    """The name of the fastest candidate, on a few images."""
    g = replace(geometry, batch=min(geometry.batch, _TIMED_BATCH))
    found = ask(g, pool=pool, images=geometry.batch)
    direction = found[0].direction
    ways: dict[str, Callable[[], Plan]] = {c.name: partial(_trial, c, g) for c in found}
    return fastest(f"convolution {direction} {g}", ways, builder.threads)


def _trial(candidate: Candidate, g: Geometry) -> Plan:
    sizes = {
        "x": 4 * g.batch * g.height * g.width * g.channels,
        "y": 4 * g.batch * g.out_height * g.out_width * g.filters,
        "w": 4 * g.weights,
    }
    return trial_plan(candidate.calls, {**sizes, **dict(candidate.temporaries)})


# -- Pools -----------------------------------------------------------------------------------------


def supports_pooling(g: Pooling) -> bool:
    """Whether there is a kernel for it."""
    return (
        g.dtype == "float32"
        and g.data_format == "NHWC"
        and g.c % host().block == 0
        and g.h.dilation == g.w.dilation == 1
        and g.h.taps * g.w.taps <= 256
    )


def build_pooling(builder: Builder, group: Group) -> None:
    """Add the call of a pool or of its gradient."""
    node = group.head
    g: Pooling = node.geometry
    geometry = pool_geometry_of(g, builder.blocked.size)
    epilogue, operands, outputs = epilogue_of(builder, group)
    fused = [*operands, *outputs]
    if g.direction == "gradient":
        if g.kind == "mean":
            dy = builder.blocks_of(node.inputs[1])
            builder.call(AveragePoolGradient(geometry, epilogue), [dy, *fused], node.name)
            return
        argmax = _argmax(builder, group, geometry)
        dy = builder.blocks_of(node.inputs[2])
        builder.call(MaxPoolGradient(geometry, epilogue), [dy, argmax, *fused], node.name)
        return
    x = builder.blocks_of(node.inputs[0])
    if g.kind == "mean":
        builder.call(AveragePool(geometry, epilogue), [x, *fused], node.name)
        return
    undone = node in builder.region.pools.values()
    last = [builder.argmax(node)] if undone else []
    builder.call(MaxPool(geometry, epilogue, argmax=undone), [x, *fused, *last], node.name)


def _argmax(builder: Builder, group: Group, geometry: Geometry) -> int:
    """Return the buffer of the maxima's positions: those that the pool stored, or found again."""
    node = group.head
    pool = builder.region.pools.get(node)
    if pool is not None:
        return builder.argmax(pool)
    sizes = node.inputs[1].type.sizes or ()
    y = builder.temporary("float32", prod(sizes), f"{node.name}/maxima")
    argmax = builder.temporary("uint8", prod(sizes), f"{node.name}/argmax")
    x = builder.blocks_of(node.inputs[0])
    builder.call(MaxPool(geometry, argmax=True), [x, y, argmax], f"{node.name}/maxima")
    return argmax
