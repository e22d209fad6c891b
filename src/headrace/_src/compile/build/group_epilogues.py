"""Fuse the element-wise nodes that follow an anchor. In: a group. Out: an epilogue for the anchor's
kernel, the bias and relu that oneDNN can fuse, or a map that runs over the kernel's result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from headrace._src.compile.build.compose import Composer
from headrace._src.compile.build.plan_builder import Builder, Composed, StridedOperand
from headrace._src.compile.build.strides import split
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.regions.groups import Group, Space
from headrace._src.lowering.pointwise import Pointwise, record
from headrace._src.lowering.rules import row_major

__all__ = ["bias_relu_of", "epilogue_of", "map_epilogue"]


def epilogue_of(builder: Builder, group: Group) -> tuple[Epilogue, list[int], list[int]]:
    """The group's epilogue, with the buffers of its operands and outputs."""
    composed = _compose(builder, group, "result")
    kinds = tuple(_kind(o, group.space) for o in composed.operands)
    return (
        Epilogue(composed.program, kinds),
        [o.buffer for o in composed.operands],
        [o.buffer for o in composed.outputs],
    )


def _compose(builder: Builder, group: Group, key: Any) -> Composed:
    result = group.head.outputs[0]
    composer = Composer()
    raw = composer.operand(key, result.dtype.base_dtype.name)
    composed = builder.compose(group, group.space, composer, {result: raw})
    operands = [_from_start(builder, o, group.space) for o in composed.operands]
    return replace(composed, operands=operands)


def _from_start(builder: Builder, operand: StridedOperand, space: Space) -> StridedOperand:
    """Return an operand that starts at the start of its buffer: a part of an arena buffer, or a
    copy of the caller's elements.
    """
    if not operand.offset:
        return operand
    kind = _kind(operand, space)
    count = {"full": prod(space.shape), "channel": space.shape[-1], "scalar": 1}[kind]
    if builder.buffers[operand.buffer].kind == "arena":
        part = builder.part(operand.buffer, operand.dtype, count, operand.offset)
        return replace(operand, buffer=part, offset=0)
    copy = builder.temporary(operand.dtype, count)
    given = StridedOperand(operand.buffer, operand.dtype, (1,), operand.offset)
    builder.copy(given, StridedOperand(copy, operand.dtype, (1,)), Space((count,)))
    return replace(operand, buffer=copy, offset=0)


def _kind(operand: StridedOperand, space: Space) -> str:
    """How an epilogue reads an operand."""
    extents = space.extents
    channel = (0,) * (len(space.shape) - 1) + (1,)
    kinds = {
        "scalar": (0,) * len(extents),
        "full": row_major(extents),
        "channel": split(channel, space.block),
    }
    for kind, strides in kinds.items():
        steps = zip(operand.strides, strides, extents, strict=True)
        if all(found == wanted for found, wanted, n in steps if n > 1):
            return kind
    raise AssertionError(f"an epilogue over {extents} can't read {operand}")


_BIAS = record(lambda e, x, b: x + b, ["float32", "float32"])
_BIAS_FIRST = record(lambda e, x, b: b + x, ["float32", "float32"])
_RELU = record(lambda e, x: e.max(x, 0), ["float32"])
_BIAS_RELU = record(lambda e, x, b: e.max(x + b, 0), ["float32", "float32"])
_NOTHING = Pointwise(("float32",), (), (0,))
_FUSED = {_BIAS: (True, False), _BIAS_FIRST: (True, False), _RELU: (False, True),
          _BIAS_RELU: (True, True), _NOTHING: (False, False)}  # fmt: skip


def bias_relu_of(builder: Builder, group: Group) -> tuple[int | None, bool, int] | None:
    """Return the buffer of a bias, whether relu follows, and the buffer of the result; None if the
    group computes anything else.
    """
    composed = _compose(builder, group, "result")
    found = _FUSED.get(composed.program)
    if found is None or len(composed.outputs) != 1:
        return None
    has_bias, relu = found
    if has_bias and _kind(composed.operands[0], group.space) != "channel":
        return None
    bias = composed.operands[0].buffer if has_bias else None
    return bias, relu, composed.outputs[0].buffer


@dataclass
class Raw:
    """The buffer of an anchor's raw result, and the map that has yet to run over it."""

    buffer: int
    builder: Builder
    group: Group
    composed: Composed

    def finish(self) -> None:
        """Run the group's element-wise nodes."""
        composed, space = self.composed, self.group.space
        if composed.program.steps or len(composed.outputs) != 1:
            dtype = composed.program.inputs[0]
            raw = StridedOperand(self.buffer, dtype, row_major(space.extents))
            label = f"{self.group.head.name}/epilogue"
            self.builder.map(
                space, composed.program, [raw, *composed.operands], composed.outputs, label
            )


def map_epilogue(builder: Builder, group: Group) -> Raw:
    """Return the buffer for an anchor's raw result, where the group's element-wise nodes run as a
    map; in place where possible.
    """
    composed = _compose(builder, group, "result")
    first = composed.outputs[0] if composed.outputs else None
    dtype = composed.program.inputs[0]
    variables = {builder.buffers[o.buffer].kind for o in composed.outputs}
    if first is not None and first.dtype == dtype and "variable" not in variables:
        return Raw(first.buffer, builder, group, composed)
    count = 1
    for n in group.space.shape:
        count *= n
    raw = builder.temporary(dtype, count, f"{group.head.name}/raw")
    return Raw(raw, builder, group, composed)
