"""Convolutions: a group around one becomes calls of the fastest kernels.

Images have the blocked layout, except those with few channels (a network's input); filters and
their gradients are plain. A filter is transformed for Winograd's algorithm once per step and use,
because it changes with every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from headrace._src.compile.build.group_epilogues import bias_relu_of, epilogue_of, map_epilogue
from headrace._src.compile.build.known_values import constant, known_array
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.kernels.anchor_kind import (
    AnchorKind,
    Arrays,
    Family,
    as_given,
    channels_first,
    wide,
)
from headrace._src.compile.kernels.conv.conv_candidates import Candidate, candidates
from headrace._src.compile.kernels.conv.conv_onednn import OneDnnConvolution
from headrace._src.compile.kernels.conv.direct_conv import direct_conv, pack_filters
from headrace._src.compile.kernels.conv.direct_windows import DirectDepthwise
from headrace._src.compile.kernels.conv.transposed_conv import (
    build_transposed,
    supports_transposed,
)
from headrace._src.compile.kernels.images.conv_geometry import Geometry, geometry_of
from headrace._src.compile.kernels.onednn_calls import can, multiplies
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.run.choose import fastest, trial_plan
from headrace._src.core.config import settings
from headrace._src.core.windows import taps
from headrace._src.graph.dataflow import Value
from headrace._src.lowering.window_anchors import Convolution

__all__ = ["KINDS"]

_DIRECTIONS = {"forward": "forward", "input": "backward_data", "filter": "backward_filter"}
_TIMED_BATCH = 4  # kernels are timed on this many images


def _supports(g: Convolution) -> bool:
    """Whether there is a kernel for it."""
    return g.dtype == "float32" and g.data_format == "NHWC"


def _build(builder: Builder, group: Group) -> None:
    """Add the calls of a convolution's group."""
    node = group.head
    g: Convolution = node.geometry
    block = builder.blocked.size
    direction, geometry = _DIRECTIONS[g.direction], geometry_of(g, block)
    types = (g.precision,) if multiplies(builder.target, g.precision) else ()
    image = node.inputs[2 if direction == "backward_data" else 0]
    plain = g.depthwise and not (g.follows_blocks(block) and builder.is_blocked(image))
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


# -- Ahead of time ---------------------------------------------------------------------------------


def _supports_ahead(g: Convolution) -> bool:
    if (g.data_format, g.dtype) != ("NHWC", "float32"):
        return False
    transposed = g.direction == "input" and not g.depthwise and supports_transposed(g)
    return g.direction == "forward" or transposed


def _build_ahead(builder: Builder, group: Group) -> None:
    g: Convolution = group.head.geometry
    if g.direction == "input":
        build_transposed(builder, group, g, known_array(builder, group.head.inputs[1]))
        return
    x, filters = group.head.inputs
    epilogue, operands, outputs = epilogue_of(builder, group)
    kernel = direct_conv(geometry_of(g), epilogue, builder.target)
    known = known_array(builder, filters)
    if known is None:
        weights = builder.whole(filters)
    else:
        weights = constant(builder, pack_filters(known, kernel), filters.name)
        kernel = replace(kernel, packed=True)
    builder.call(kernel, [builder.whole(x), weights, *operands, *outputs], group.head.name)


def _build_depthwise_ahead(builder: Builder, group: Group) -> None:
    g: Convolution = group.head.geometry
    inputs = [builder.whole(v) for v in group.head.inputs]
    epilogue, operands, outputs = epilogue_of(builder, group)
    kernel = DirectDepthwise(geometry_of(g), epilogue)
    builder.call(kernel, [*inputs, *operands, *outputs], group.head.name)


# -- Its meaning -----------------------------------------------------------------------------------


def _meaning(g: Convolution, first: np.ndarray, second: np.ndarray) -> Arrays:
    """Tap by tap: y[n, k, oh, ow] += x[n, c, h, w] * filter[c, k], in one of the directions."""
    first, second = wide(first), wide(second)
    filters = {"forward": second, "input": first}.get(g.direction)
    multiplier = g.k // g.c if g.depthwise else g.k
    if filters is None:
        result = np.zeros((g.h.taps, g.w.taps, g.c, multiplier), first.dtype)
        x, y = channels_first(g, first), channels_first(g, second)
    elif g.direction == "forward":
        x, y = channels_first(g, first), np.zeros((g.n, g.k, g.h.out, g.w.out), first.dtype)
    else:
        x, y = np.zeros((g.n, g.c, g.h.size, g.w.size), first.dtype), channels_first(g, second)
    if g.depthwise:  # y[n, c, i, oh, ow]
        y = y.reshape(g.n, g.c, multiplier, g.h.out, g.w.out)
        image, weights, output = "nchw", "ci", "ncihw"
    else:
        image, weights, output = "nchw", "ck", "nkhw"
    for (a, b), outs, ins in taps((g.h, g.w)):
        seen, made = (..., *ins), (..., *outs)
        if filters is None:
            result[a, b] = np.einsum(f"{image},{output}->{weights}", x[seen], y[made])
        elif g.direction == "forward":
            y[made] += np.einsum(f"{image},{weights}->{output}", x[seen], filters[a, b])
        else:
            x[seen] += np.einsum(f"{output},{weights}->{image}", y[made], filters[a, b])
    if filters is None:
        return [result]
    if g.direction == "forward":
        return [as_given(g, y.reshape(g.n, g.k, g.h.out, g.w.out))]
    return [as_given(g, x)]


KINDS = (
    AnchorKind(
        "convolution",
        Family(_build, _supports),
        Family(_build_ahead, _supports_ahead),
        {Convolution: _meaning},
    ),
    AnchorKind(
        "depthwise", Family(_build, _supports), Family(_build_depthwise_ahead, _supports_ahead)
    ),
)
