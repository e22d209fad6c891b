"""Choose layouts. In: a region. Out: the values that are kept blocked, [N][C/b][H][W][b].

Convolutions and pools work on blocks of channels, as many as a vector register of the target holds.
Element-wise nodes between them keep that layout. Everything else is plain, and the builder adds a
conversion where the two meet. A value that one region makes for another may keep its blocks too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from headrace._src.compile.regions.groups import asks_position
from headrace._src.compile.regions.region import Region, operands_of
from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.rules import Anchor, Elementwise, Join, assembly_of, row_major

__all__ = ["Blocks", "blocked_values", "outputs_in_blocks", "to_blocks", "to_plain"]

_TYPES = ("float32", "bfloat16")
_POSITIONS = "uint8"  # of the maxima that a pool finds


class Blocks(set[Value]):
    """Values that are kept in blocks of `size` channels."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def of(self, value: Value) -> int:
        """The channels of a value's blocks; 0 if it's plain."""
        return self.size if value in self else 0

    def could_hold(self, value: Value) -> bool:
        """Whether a value is an image that consists of whole blocks."""
        return self._is_whole(value) and value.dtype.base_dtype.name in _TYPES

    def could_hold_result(self, value: Value) -> bool:
        """Whether that is so of a result of an anchor, which may be positions in an image."""
        positions = self._is_whole(value) and value.dtype.base_dtype.name == _POSITIONS
        return positions or self.could_hold(value)

    def _is_whole(self, value: Value) -> bool:
        sizes = value.type.sizes or ()
        return len(sizes) == 4 and sizes[3] % self.size == 0


def blocked_values(region: Region, block: int) -> Blocks:
    """The values that are kept in blocks of so many channels."""
    blocked = Blocks(block)
    blocked.update(region.in_blocks)
    for node in region.nodes:
        rule = node.definition.lower
        if isinstance(rule, Anchor):
            blocked.update(_of_anchor(region, node, blocked))
        elif (isinstance(rule, Elementwise) and _stays(region, node, blocked)) or (
            isinstance(rule, Join) and _joins_channels(region, node, rule, blocked)
        ):
            blocked.update(node.outputs)
    return blocked


def outputs_in_blocks(region: Region, blocked: Blocks) -> set[Value]:
    """The outputs that leave the region in the blocked layout, for other regions to read."""
    sources = {v: region.sources[v] for v in region.outputs}
    bases = Counter(source.base for source in sources.values())
    return {
        value
        for value, source in sources.items()
        if value in region.private
        and source.view is None
        and source.base in blocked
        and source.base not in region.in_blocks
        and bases[source.base] == 1
    }


def to_plain(array: np.ndarray, block: int) -> np.ndarray:
    """Return the plain form of an array whose memory is blocked; its shape is the plain one."""
    n, h, w, c = array.shape
    return array.reshape(n, c // block, h, w, block).transpose(0, 2, 3, 1, 4).reshape(n, h, w, c)


def to_blocks(array: np.ndarray, block: int) -> np.ndarray:
    """Return the blocked form of a plain array, with the plain shape."""
    n, h, w, c = array.shape
    blocks = array.reshape(n, h, w, c // block, block).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(blocks).reshape(array.shape)


def _is_blocked(region: Region, value: Value, blocked: Blocks) -> bool:
    source = region.source(value)
    return source.view is None and source.base in blocked


def _of_anchor(region: Region, node: Node, blocked: Blocks) -> list[Value]:
    geometry = node.geometry
    if not isinstance(geometry, AnchorGeometry):
        return []
    needed = geometry.blocked_inputs(blocked.size)
    if needed is None or not all(_is_blocked(region, node.inputs[i], blocked) for i in needed):
        return []
    return [v for v in node.outputs if blocked.could_hold_result(v)]


def _stays(region: Region, node: Node, blocked: Blocks) -> bool:
    if not all(map(blocked.could_hold, node.outputs)):
        return False
    if asks_position(node):
        return False
    shape = node.output_shapes[0]
    return any(v.type.sizes == shape and _is_blocked(region, v, blocked) for v in operands_of(node))


def _joins_channels(region: Region, node: Node, rule: Join, blocked: Blocks) -> bool:
    if not blocked.could_hold(node.outputs[0]) or rule.fill is not None:
        return False
    strides = row_major(node.output_shapes[0])
    channels = node.output_shapes[0][3]
    assembly = assembly_of(rule, node)
    if assembly is None:
        return False
    for number, view in assembly.pieces:
        value = node.inputs[number]
        if view.strides != strides or view.offset >= channels or view.offset % blocked.size:
            return False
        if not _is_blocked(region, value, blocked):
            return False
    return True
