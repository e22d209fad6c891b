"""Schedule. In: a Dataflow, or Partitions. Out: a Program for each device, whose slots are freed
after their last reader; for devices that never work at the same time, also one of the whole step.

Constants have slots, and no instructions. Nodes that look up the step's variables come first, so
that the runtime can check its assumptions before the step changes anything. A Backedge has the slot
of the value that is passed back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from headrace._src.core.collector import without_collector
from headrace._src.graph.dataflow import Backedge, Dataflow, Node, Value
from headrace._src.graph.partition import PartitionedProgram, Partitions
from headrace._src.graph.program import Instruction, Program
from headrace._src.graph.state_sources import is_source
from headrace._src.graph.structured import parts_of
from headrace._src.partition.join import join

__all__ = ["schedule", "schedule_flow"]


def schedule(step: Dataflow | Partitions) -> Program | PartitionedProgram:
    """Make the program of a step, or the programs of its partitions."""
    if isinstance(step, Dataflow):
        return schedule_flow(step)
    position = {feed: i for i, feed in enumerate(step.feeds)}
    joined = join(step)
    return PartitionedProgram(
        tuple(part.device for part in step.parts),
        tuple(schedule_flow(part.flow) for part in step.parts),
        tuple(tuple(position[feed] for feed in part.flow.feeds) for part in step.parts),
        step.sources,
        step.edges,
        None if joined is None else schedule_flow(joined),
    )


@without_collector
def schedule_flow(flow: Dataflow) -> Program:
    """Make the program of a flow on one device, or of a whole step."""
    layout = _Layout(flow)
    for node in sorted(flow.nodes, key=lambda node: not is_source(node) or bool(node.controls)):
        if node.constant is not None:
            layout.hold(node.outputs, node.constant)
        else:
            layout.run(node)
    return layout.program()


def _scheduled(node: Node) -> Node:
    """Return a node whose parts, if it has any, are programs."""
    parts = {name: schedule_flow(flow) for name, flow in parts_of(node).items()}
    return replace(node, attrs={**node.attrs, **parts}) if parts else node


class _Draft(NamedTuple):
    """An instruction whose inputs don't all have slots yet."""

    node: Node
    output: int


class _Layout:
    """A program under construction: the slot of each value, the index of each node's
    instruction.
    """

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._slot: dict[Value, int] = {f.value: i for i, f in enumerate(flow.feeds)}
        self._count = len(self._slot)
        self._number: dict[Node, int] = {}
        self._constants: list[tuple[int, np.ndarray]] = []
        self._drafts: list[_Draft] = []

    def hold(self, outputs: Sequence[Value], values: Sequence[np.ndarray]) -> None:
        """Assign slots to constants, which hold their values from the start."""
        first = self._place(outputs)
        self._constants += [(first + i, value) for i, value in enumerate(values)]

    def run(self, node: Node) -> None:
        """Add the instruction that runs a node."""
        self._number[node] = len(self._drafts)
        self._drafts.append(_Draft(node, self._place(node.outputs)))

    def _place(self, outputs: Sequence[Value]) -> int:
        first = self._count
        for value in outputs:
            self._slot[value] = self._count
            self._count += 1
        return first

    def program(self) -> Program:
        """Return the finished program."""
        flow = self._flow
        inputs = [tuple([self._slot_of(v) for v in draft.node.inputs]) for draft in self._drafts]
        frees = self._frees(inputs)
        instructions = tuple(
            Instruction(
                _scheduled(node), slots, output, len(node.types), freed, self._after(node.controls)
            )
            for (node, output), slots, freed in zip(self._drafts, inputs, frees, strict=True)
        )
        names: Any = flow.tensors or flow.fetches
        fetches = [(t, self._slot_of(v)) for t, v in zip(names, flow.fetches, strict=True)]
        return Program(
            instructions,
            self._count,
            tuple((f.tensor, i) for i, f in enumerate(flow.feeds)),
            tuple(fetches),
            tuple(self._constants),
        )

    def _slot_of(self, value: Value) -> int:
        producer = value.producer
        return self._slot[self._flow.returns[producer] if isinstance(producer, Backedge) else value]

    def _after(self, controls: Iterable[Node]) -> tuple[int, ...]:
        """Return the indices of instructions; constants have none: there is nothing to wait for."""
        return tuple(sorted({self._number[c] for c in controls if c in self._number}))

    def _frees(self, inputs: list[tuple[int, ...]]) -> list[Any]:
        """Return the slots that each instruction is the last to read."""
        frees: list[list[int]] = [[] for _ in self._drafts]
        if self._flow.steers:
            return [()] * len(frees)  # values decide which is the last: the runtime counts
        kept = {self._slot_of(v) for v in self._flow.fetches}
        kept |= {slot for slot, _ in self._constants}
        last: dict[int, int] = {}
        for k, (node, output) in enumerate(self._drafts):
            last.update(dict.fromkeys(range(output, output + len(node.types)), k))
            last.update(dict.fromkeys(inputs[k], k))
        for slot, k in sorted(last.items()):
            if slot not in kept:
                frees[k].append(slot)
        return list(map(tuple, frees))
