"""Convolutions and pools in a plan: a group around one becomes calls of the fastest kernels.


Images are in the blocked layout, but for those with few channels (a network's input); filters and
their gradients are plain. A filter is transformed for Winograd's algorithm once per step and use,
because it changes with every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from headrace.compile.build import Builder
from headrace.compile.choose import Way, fastest
from headrace.compile.epilogues import bias_relu_of, epilogue_of, map_epilogue
from headrace.compile.foreign import can, multiplies
from headrace.compile.fuse import Group
from headrace.compile.kernels.conv_geometry import BLOCK, Geometry
from headrace.compile.kernels.conv_onednn import OneDnnConvolution
from headrace.compile.kernels.pooling import (
    AveragePool,
    AveragePoolGradient,
    MaxPool,
    MaxPoolGradient,
)
from headrace.compile.kernels.winograd_backward import WinogradBackwardFilter
from headrace.compile.kernels.winograd_filter import WinogradFilter
from headrace.compile.kernels.winograd_forward import WinogradForward
from headrace.compile.windows import geometry_of, pool_geometry_of, suits_winograd
from headrace.graph.anchors import Convolution, Pooling
from headrace.graph.dataflow import Value

__all__ = ["build_convolution", "build_pooling", "supports_convolution", "supports_pooling"]

_DIRECTIONS = {"forward": "forward", "input": "backward_data", "filter": "backward_filter"}
_TIMED_BATCH = 4  # kernels are compared on so many images


# -- Convolutions ----------------------------------------------------------------------------------


def supports_convolution(g: Convolution) -> bool:
    """Whether there is a kernel for it."""
    if g.dtype != "float32" or g.data_format != "NHWC" or g.depthwise:
        return False
    geometry = geometry_of(g)
    return suits_winograd(geometry) or can(_onednn(g.direction, geometry))


def _onednn(direction: str, g: Geometry, precision: str = "float32") -> OneDnnConvolution:
    x, y = _layout(g.channels), _layout(g.filters)
    return OneDnnConvolution(_DIRECTIONS[direction], g, x, y, precision=precision)


def _layout(channels: int) -> str:
    return "nhwc" if channels % BLOCK else "nChw16c"


def build_convolution(builder: Builder, group: Group) -> None:
    """Add the calls of a convolution's group."""
    node = group.head
    g: Convolution = node.definition.lower.describe(node)  # type: ignore[union-attr]
    geometry = geometry_of(g)
    way = _way(builder, g, geometry, group.pool is not None)
    if g.direction == "filter":
        _build_filter(builder, group, geometry, way)
        return
    data, weights = (2, 1) if g.direction == "input" else (0, 1)
    given = geometry.filters if g.direction == "input" else geometry.channels
    x = _image(builder, node.inputs[data], given)
    w = builder.whole(node.inputs[weights])
    if way == "winograd":
        _winograd(builder, group, geometry, g.direction == "input", x, w)
    else:
        _direct(builder, group, _onednn(g.direction, geometry, way), [x, w])


def _image(builder: Builder, value: Value, channels: int) -> int:
    return builder.whole(value) if channels % BLOCK else builder.blocks_of(value)


def _winograd(
    builder: Builder, group: Group, geometry: Geometry, backward: bool, x: int, w: int
) -> None:
    name = group.head.name
    transform = _transform(geometry, backward)
    u = builder.temporary("float32", transform.layout.size, f"{name}/filter")
    builder.call(transform, [w, u], f"{name}/filter")
    g = geometry.backward_data() if backward else geometry
    epilogue, operands, outputs = epilogue_of(builder, group)
    pooled = group.pool is not None
    kernel = WinogradForward(g, 4, epilogue=epilogue, pool=pooled)
    last = [builder.argmax(group.pool)] if group.pool is not None else []
    builder.call(kernel, [x, u, *operands, *outputs, *last], name)


def _transform(g: Geometry, backward: bool) -> WinogradFilter:
    return WinogradFilter(g.channels, g.filters, 4, g.kernel[0], backward=backward)


def _direct(builder: Builder, group: Group, spec: OneDnnConvolution, inputs: list[int]) -> None:
    """oneDNN's kernel; what it can't fuse runs over its result, in place."""
    name = group.head.name
    fused = bias_relu_of(builder, group) if spec.direction == "forward" else None
    if fused is not None:
        bias, relu, out = fused
        spec = replace(spec, bias=bias is not None, relu=relu)
        if can(spec):
            biases = [bias] if bias is not None else []
            builder.call(spec, [*inputs, *biases, out], name)
            return
        spec = replace(spec, bias=False, relu=False)
    raw = map_epilogue(builder, group)
    builder.call(spec, [*inputs, raw.buffer], name)
    raw.finish()


def _build_filter(builder: Builder, group: Group, geometry: Geometry, way: str) -> None:
    node = group.head
    x = _image(builder, node.inputs[0], geometry.channels)
    dy = _image(builder, node.inputs[2], geometry.filters)
    if way == "winograd":
        epilogue, operands, outputs = epilogue_of(builder, group)
        kernel = WinogradBackwardFilter(geometry, 4, epilogue=epilogue)
        builder.call(kernel, [x, dy, *operands, *outputs], node.name)
        return
    _direct(builder, group, _onednn("filter", geometry, way), [x, dy])


# -- Choosing --------------------------------------------------------------------------------------


def _way(builder: Builder, convolution: Convolution, geometry: Geometry, pooled: bool) -> str:
    """The fastest way: Winograd's, or the type in which oneDNN shall multiply."""
    direction = convolution.direction
    g = replace(geometry, batch=min(geometry.batch, _TIMED_BATCH))
    ways: dict[str, Callable[[], Way]] = {}
    if suits_winograd(geometry):
        ways["winograd"] = partial(_winograd_way, direction, g)
    types = ["float32"]
    if multiplies(builder.target, convolution.precision):
        types.append(convolution.precision)
    for precision in types:
        if not pooled and can(_onednn(direction, g, precision)):
            ways[precision] = partial(_onednn_way, direction, g, precision)
    return fastest(f"convolution {direction} {g}", ways, builder.threads)


def _sizes(g: Geometry) -> dict[str, int]:
    return {
        "x": 4 * g.batch * g.height * g.width * g.channels,
        "y": 4 * g.batch * g.out_height * g.out_width * g.filters,
        "w": 4 * prod(g.kernel) * g.channels * g.filters,
    }


def _winograd_way(direction: str, g: Geometry) -> Way:
    if direction == "filter":
        return Way(((WinogradBackwardFilter(g, 4), ("x", "y", "w")),), _sizes(g))
    backward = direction == "input"
    transform = _transform(g, backward)
    kernel = WinogradForward(g.backward_data() if backward else g, 4)
    calls: Any = (
        (transform, ("w", "u")),
        (kernel, ("y", "u", "x") if backward else ("x", "u", "y")),
    )
    return Way(calls, {**_sizes(g), "u": 4 * transform.layout.size})


def _onednn_way(direction: str, g: Geometry, precision: str) -> Way:
    names = {"forward": ("x", "w", "y"), "input": ("y", "w", "x"), "filter": ("x", "y", "w")}
    return Way(((_onednn(direction, g, precision), names[direction]),), _sizes(g))


# -- Pools -----------------------------------------------------------------------------------------


def supports_pooling(g: Pooling) -> bool:
    """Whether there is a kernel for it."""
    return (
        g.dtype == "float32"
        and g.data_format == "NHWC"
        and g.c % BLOCK == 0
        and g.h.dilation == g.w.dilation == 1
        and g.h.taps * g.w.taps <= 256
    )


def build_pooling(builder: Builder, group: Group) -> None:
    """Add the call of a pool or of its gradient."""
    node = group.head
    g: Pooling = node.definition.lower.describe(node)  # type: ignore[union-attr]
    geometry = pool_geometry_of(g)
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
    """Where the maxima were: noted by the pool, or found again."""
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
