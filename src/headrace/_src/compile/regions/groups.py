"""Groups: nodes that become one kernel, and properties of nodes that decide about fusing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace._src.core.config import settings
from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.pointwise import Pointwise
from headrace._src.lowering.rules import Elementwise, pointwise_of, update_of

if TYPE_CHECKING:
    from headrace._src.compile.run.choose import Choice

__all__ = [
    "AGAIN",
    "Group",
    "Space",
    "asks_position",
    "has_fixed_order",
    "is_again",
    "program_of",
]

AGAIN = "_again"  # the attribute of nodes that compute a value again


@dataclass(frozen=True, slots=True)
class Space:
    """The iteration space of a group's pointwise program: a logical shape and its layout.

    block: how many channels stand together in the blocked layout; 0 if the layout is plain
    """

    shape: tuple[int, ...]
    block: int = 0

    @property
    def extents(self) -> tuple[int, ...]:
        """The loop's extents: a blocked [N, H, W, C] runs as [N, C/block, H, W, block]."""
        if not self.block:
            return self.shape
        n, h, w, c = self.shape
        return (n, c // self.block, h, w, self.block)


@dataclass(eq=False)
class Group:
    """Nodes that become one kernel. kind: "map", "reduce", "rows", "join", "copy", or an anchor's
    family. The space of a group over rows is that of whole rows.

    `nodes[0]` is the anchor or reduction; `before` has the nodes that come before a reduction,
    `copied` is the value that a copy makes, `pool` the max-pool behind a convolution, and `twin`
    the group of the weights' update that is done in the same pass as the gradient of their input.
    `choices` are those that were made between kernels for it (see choose).
    """

    number: int
    kind: str
    space: Space
    nodes: list[Node] = field(default_factory=list)
    before: list[Node] = field(default_factory=list)
    copied: Value | None = None
    pool: Node | None = None
    twin: Group | None = None
    steps: int = 0
    choices: list[Choice] = field(default_factory=list)

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def result(self) -> Value:
        """The value that the group's followers start from: for losses, the gradient."""
        geometry = self._geometry
        return self.head.outputs[0 if geometry is None else geometry.result]

    @property
    def fuses(self) -> bool:
        """Whether element-wise nodes may join it."""
        geometry = self._geometry
        return self.kind in ("map", "reduce", "rows") if geometry is None else geometry.fuses

    @property
    def fills_parts(self) -> bool:
        """Whether it can compute its result in a part of a larger array."""
        geometry = self._geometry
        if geometry is None:
            return self.kind in ("map", "reduce", "rows", "join")
        return geometry.fills_parts

    @property
    def _geometry(self) -> AnchorGeometry | None:
        """The description of the anchor; None of other groups, and of loops and lists."""
        geometry = self.head.geometry if self.is_anchor else None
        return geometry if isinstance(geometry, AnchorGeometry) else None

    @property
    def is_anchor(self) -> bool:
        return self.kind not in ("map", "reduce", "rows", "join", "copy")

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of values that a group over rows has once per row."""
        return self.space.shape[:-1], (*self.space.shape[:-1], 1)

    def __str__(self) -> str:
        names = [n.name for n in (*self.before, *self.nodes)]
        what = ", ".join(names) if names else f"copy of {self.copied.name}"  # type: ignore[union-attr]
        return f"{self.number}: {self.kind} {list(self.space.shape)} {what}"


def program_of(node: Node) -> Pointwise:
    """The pointwise program of an element-wise node or an update."""
    rule = node.definition.lower
    program = (
        pointwise_of(rule, node) if isinstance(rule, Elementwise) else update_of(rule, node)  # type: ignore[arg-type]
    )
    assert program is not None, f"{node} was let into a region without a program"
    return program


def asks_position(node: Node) -> bool:
    """Whether an element-wise node's results depend on where in the array they are."""
    return any(s.opcode == "index" for s in program_of(node).steps)


def has_fixed_order(combine: str, dtype: str) -> bool:
    """Return whether values must be combined in an order that depends on their shape and the axes
    alone.

    That holds for rounded results under strict accuracy. Elsewhere the order also depends on what
    is fused with the reduction, and so on where the step is cut by devices.
    """
    rounded = combine in ("sum", "prod") and ("float" in dtype or "complex" in dtype)
    return rounded and settings().accuracy == "strict"


def is_again(node: Node) -> bool:
    """Return whether a node recomputes a value (see recompute). Such nodes are fused with each
    other only, so that the other groups stay as they were and their sums keep their order.
    """
    return AGAIN in node.attrs
