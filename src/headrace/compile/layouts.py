"""Choose layouts. In: a region. Out: the values that are kept blocked, [N][C/16][H][W][16].

Convolutions and pools work on blocks of 16 channels; what lies between them, element by element,
stays in that layout. Everything else is plain, and conversions stand where the two meet.
"""

from __future__ import annotations

from headrace.compile.groups import asks_position
from headrace.compile.region import BLOCK, Region, operands_of
from headrace.compile.windows import follows_blocks
from headrace.graph.dataflow import Node, Value
from headrace.graph.lowering import Anchor, Elementwise, Join, assembly_of, row_major

__all__ = ["blocked_values"]

_TYPES = ("float32", "bfloat16")
# Anchors that work on blocks: the families of windows sliding over images.
_FAMILIES = ("convolution", "depthwise", "pooling", "batch_norm")


def blocked_values(region: Region) -> set[Value]:
    """The values that are kept blocked."""
    blocked: set[Value] = set()
    for node in region.nodes:
        rule = node.definition.lower
        if isinstance(rule, Anchor):
            if rule.family in _FAMILIES:
                blocked.update(_of_anchor(region, node, rule, blocked))
        elif (isinstance(rule, Elementwise) and _stays(region, node, blocked)) or (
            isinstance(rule, Join) and _joins_channels(region, node, rule, blocked)
        ):
            blocked.update(node.outputs)
    return blocked


def _could_be(value: Value) -> bool:
    sizes = value.type.sizes or ()
    return len(sizes) == 4 and sizes[3] % BLOCK == 0 and value.dtype.base_dtype.name in _TYPES


def _is_blocked(region: Region, value: Value, blocked: set[Value]) -> bool:
    source = region.source(value)
    return source.view is None and source.base in blocked


def _of_anchor(region: Region, node: Node, rule: Anchor, blocked: set[Value]) -> list[Value]:
    geometry = node.geometry
    if getattr(geometry, "data_format", "NHWC") != "NHWC":
        return []
    if rule.family == "batch_norm" and not _is_blocked(region, node.inputs[0], blocked):
        return []
    if rule.family in ("convolution", "depthwise") and geometry.direction == "filter":
        return []
    if rule.family == "depthwise":
        image = node.inputs[2 if geometry.direction == "input" else 0]
        if not (follows_blocks(geometry) and _is_blocked(region, image, blocked)):
            return []
    return [v for v in node.outputs if _could_be(v)]


def _stays(region: Region, node: Node, blocked: set[Value]) -> bool:
    if not all(map(_could_be, node.outputs)):
        return False
    if asks_position(node):
        return False
    shape = node.output_shapes[0]
    return any(v.type.sizes == shape and _is_blocked(region, v, blocked) for v in operands_of(node))


def _joins_channels(region: Region, node: Node, rule: Join, blocked: set[Value]) -> bool:
    if not _could_be(node.outputs[0]) or rule.fill is not None:
        return False
    strides = row_major(node.output_shapes[0])
    channels = node.output_shapes[0][3]
    assembly = assembly_of(rule, node)
    if assembly is None:
        return False
    for number, view in assembly.pieces:
        value = node.inputs[number]
        if view.strides != strides or view.offset >= channels or view.offset % BLOCK:
            return False
        if not _is_blocked(region, value, blocked):
            return False
    return True
