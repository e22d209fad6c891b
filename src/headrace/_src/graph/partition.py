"""Partitions: a step cut by devices. In: a Dataflow with a device for each node. Out: one flow for
each device, joined by Sends and Recvs.

Invariants (verify_partitions): all nodes of a partition are on its device; each key is sent by one
node and received by one other; the nodes of all partitions together, with an edge from each Send to
its Recv, have no cycle, and the partitions' orders agree with one order of all of them. So a
partition that runs its nodes in order, and waits where a Recv has no value yet, never waits for
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace._src.graph.dataflow import Dataflow, Feed, Node
from headrace._src.graph.definition import Kind
from headrace._src.graph.operation import Tensor
from headrace._src.graph.program import Instruction, Program
from headrace._src.graph.structured import parts_of

__all__ = ["Edge", "Partition", "PartitionedProgram", "Partitions", "is_long"]


def is_long(node: Node) -> bool:
    """Return whether a node may take longer than starting a thread."""
    definition = node.definition
    cluster = getattr(definition.kernel, "is_silent", False)
    return cluster or definition.kind is Kind.CONTRACTION or bool(parts_of(node))


@dataclass(frozen=True)
class Partition:
    """The nodes of a step on one device, with their Sends and Recvs."""

    device: str
    flow: Dataflow


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that travels: from a Send to a Recv. `size`: in bytes; None if it isn't known before
    the step runs.
    """

    tensor: str
    sender: str
    receiver: str
    size: int | None

    def __str__(self) -> str:
        size = "?" if self.size is None else str(self.size)
        return f"{self.sender} -> {self.receiver}: {self.tensor} ({size} B)"


@dataclass(frozen=True)
class Partitions:
    """A step in partitions.

    feeds, tensors: those of the whole step, in its order. sources: for each fetch, the number of
    its partition and its position among that partition's fetches. positions: the place of each node
    in one order of the whole step, with a Send before its Recv.
    """

    parts: tuple[Partition, ...]
    feeds: tuple[Feed, ...]
    tensors: tuple[Tensor, ...]
    sources: tuple[tuple[int, int], ...]
    edges: tuple[Edge, ...] = ()
    positions: dict[Node, int] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        shown = []
        for part in self.parts:
            shown += [f"{part.device}:", *(f"  {line}" for line in str(part.flow).splitlines())]
        return "\n".join([*shown, *map(str, self.edges)])


@dataclass(frozen=True)
class PartitionedProgram:
    """A step as one Program for each device.

    feeds: for each Program, the positions of its feeds among the step's. sources: see Partitions.
    joined: the whole step as one Program, without Sends and Recvs, if the devices cannot work at
    the same time anyway (see partition.join).
    """

    devices: tuple[str, ...]
    programs: tuple[Program, ...]
    feeds: tuple[tuple[int, ...], ...]
    sources: tuple[tuple[int, int], ...]
    edges: tuple[Edge, ...] = ()
    joined: Program | None = None

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all partitions."""
        return tuple(i for program in self.programs for i in program.instructions)

    def __str__(self) -> str:
        shown = []
        for device, program in zip(self.devices, self.programs, strict=True):
            shown += [f"{device}:", *(f"  {line}" for line in str(program).splitlines())]
        joined = [] if self.joined is None else ["joined: the devices never work at the same time"]
        return "\n".join([*shown, *map(str, self.edges), *joined])
