"""Backends: the compilers of devices, as clustering sees them. In: a node, or the nodes of a
region. Out: the reason why a node is not compiled, or the kernel of the region.

LLVM is this room's own, for CPUs. Backends of other types of devices are rooms of their own, and
the pipeline passes them in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace._src.compile.build.tensor_list_buffers import lists_fit
from headrace._src.compile.clusters.cluster_kernel import compile_region
from headrace._src.compile.clusters.lowerable import why_not
from headrace._src.compile.regions.region import Region, works
from headrace._src.core.config import settings
from headrace._src.graph.dataflow import Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.lowering.rules import Anchor

__all__ = ["LLVM", "Backend", "Crossing", "RegionKernel", "is_worthwhile"]

# Fewer working nodes than this aren't worth a native call, unless one of them is an anchor, or one
# passes so many bytes to another that keeping them out of memory counts for more than the call.
_FEWEST = 3
_LARGE = 1 << 20


class RegionKernel(Protocol):
    """A compiled region, as a kernel. Its arguments are the values of `inputs`, then those of
    `references`, which are variables.
    """

    @property
    def inputs(self) -> Sequence[Value]: ...

    @property
    def references(self) -> Sequence[Value]: ...

    @property
    def effect(self) -> Effect: ...

    def reference(self, value: Value) -> Value:
        """Return the reference that enters the region for the same variable."""
        ...

    def __call__(self, values: Sequence[Any], *, ctx: Any, step: Any = None) -> list[Any]: ...


@dataclass
class Crossing:
    """Values that pass from one region of a backend to another.

    private: those that nothing else reads; the backend chooses how they are laid out. reusable:
    those that only such regions read, on other devices too; nothing keeps a view of their memory.
    in_blocks: those that a region compiled earlier makes in the blocked layout; `compile` adds to
    them.
    """

    private: Set[Value]
    reusable: Set[Value] = frozenset()
    in_blocks: set[Value] = field(default_factory=set)


class Backend(Protocol):
    """The compiler of a type of device."""

    def why_not(self, node: Node) -> str | None:
        """Return the reason why a node can't be compiled; None if it can."""
        ...

    def why_not_lists(self, users: Sequence[Node]) -> str | None:
        """Return the reason why the users of a list can't be in one region; None if they can."""
        ...

    def is_worthwhile(self, nodes: Sequence[Node]) -> bool:
        """Return whether a region of these nodes is better than their own kernels."""
        ...

    def compile(self, nodes: list[Node], outputs: list[Value], crossing: Crossing) -> RegionKernel:
        """Return the kernel of a region, whose outputs are the values that others read."""
        ...


def is_worthwhile(nodes: Sequence[Node]) -> bool:
    """Whether a run of nodes is worth a native call."""
    working = [n for n in nodes if works(n)]
    # Native code and NumPy round tanh and others differently. Under strict accuracy an operation is
    # compiled whatever its neighbours are, so that a step cut by devices gives the same bits.
    fewest = 1 if settings().accuracy == "strict" else _FEWEST
    if len(working) >= fewest or any(isinstance(n.definition.lower, Anchor) for n in working):
        return True
    passed = {v for n in working for v in n.outputs if _bytes(v) >= _LARGE}
    return any(not passed.isdisjoint(n.inputs) for n in working)


def _bytes(value: Value) -> int:
    return math.prod(value.type.sizes or (0,)) * value.dtype.size


class _Llvm:
    def why_not(self, node: Node) -> str | None:
        return why_not(node)

    def why_not_lists(self, users: Sequence[Node]) -> str | None:
        if lists_fit(list(users)):
            return None
        return "the rows of its list differ in shape, or are needed as they were before"

    def is_worthwhile(self, nodes: Sequence[Node]) -> bool:
        return is_worthwhile(nodes)

    def compile(self, nodes: list[Node], outputs: list[Value], crossing: Crossing) -> RegionKernel:
        region = Region(nodes, outputs, crossing.private, crossing.in_blocks)
        compiled = compile_region(region, crossing.reusable)
        crossing.in_blocks.update(compiled.in_blocks)
        return compiled


LLVM: Backend = _Llvm()
