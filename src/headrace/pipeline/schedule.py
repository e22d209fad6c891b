"""Schedule. In: a Dataflow, or a StepGraph as it is; either in dependency order. Out: a Program
whose slots are freed after their last reader.

Constants have slots, and no instructions. Nodes that find the step's variables come first, so that
the runtime can check what it relies on before anything has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.graph.dataflow import Dataflow, Node
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import Instruction, Program, StepGraph
from headrace.graph.structured import parts_of
from headrace.optimize.states import is_source

__all__ = ["dereferences", "schedule", "schedule_as_is"]

_NO_STEP = StepGraph((), (), (), ())


def schedule(flow: Dataflow) -> Program:
    """Make the program of a specialised step."""
    layout = _Layout([f.value for f in flow.feeds])
    for node in sorted(flow.nodes, key=lambda node: not is_source(node)):
        if node.constant is not None:
            layout.hold(node.outputs, node.constant)
        else:
            layout.run(node, node.inputs, node.controls, node.outputs, shown=_scheduled(node))
    feeds = [f.tensor for f in flow.feeds]
    return layout.program(feeds, flow.tensors or flow.fetches, flow.fetches)


def _scheduled(node: Node) -> Node:
    """A node whose parts, if it has any, are programs."""
    parts = {name: schedule(flow) for name, flow in parts_of(node).items()}
    return replace(node, attrs={**node.attrs, **parts}) if parts else node


def schedule_as_is(step: StepGraph) -> Program:
    """Make the program of a step that nothing is known about but its graph."""
    layout = _Layout(step.feeds)
    for op in step.operations:
        if op.definition.fold is not None and not op._inputs and not op._control_inputs:
            layout.hold(op._outputs, op.definition.fold(op))
        else:
            inputs = step.inputs_of(op)
            read = dereferences(op, inputs, step)
            layout.run(op, inputs, op._control_inputs, op._outputs, read)
    return layout.program(step.feeds, step.fetches, step.read_last or step.fetches)


class _Layout:
    """A program in the making. Values are Tensors or a Dataflow's Values, ops its nodes.

    `_slot` of each value, `_number` of each instruction.
    """

    def __init__(self, feeds: Sequence[Any]) -> None:
        self._slot: dict[Any, int] = {t: i for i, t in enumerate(feeds)}
        self._count = len(self._slot)
        self._number: dict[Any, int] = {}
        self._constants: list[tuple[int, np.ndarray]] = []
        self._drafts: list[tuple[Any, Sequence[Any], int, int, list[Any], Any]] = []

    def hold(self, outputs: Sequence[Any], values: Sequence[np.ndarray]) -> None:
        """Give constants slots that have their values from the start."""
        first = self._place(outputs)
        self._constants += [
            (first + i, value)
            for i, (t, value) in enumerate(zip(outputs, values, strict=True))
            if self._slot[t] == first + i
        ]

    def run(
        self,
        op: Any,
        inputs: Sequence[Any],
        controls: Iterable[Any],
        outputs: Sequence[Any],
        dereference: tuple[int, ...] = (),
        shown: Any = None,
    ) -> None:
        """Add the instruction that runs `op`, or `shown` in its place."""
        self._number[op] = len(self._drafts)
        first = self._place(outputs)
        self._drafts.append((shown or op, inputs, first, len(outputs), list(controls), dereference))

    def _place(self, outputs: Sequence[Any]) -> int:
        first = self._count
        for t in outputs:
            self._slot.setdefault(t, self._count)  # a fed output keeps the feed's slot
            self._count += 1
        return first

    def program(
        self, feeds: Sequence[Tensor], tensors: Sequence[Any], fetches: Sequence[Any]
    ) -> Program:
        """The finished program; `fetches` are the values of `tensors`."""
        inputs = [tuple([self._slot[t] for t in draft[1]]) for draft in self._drafts]
        frees = self._frees(inputs, fetches)
        instructions = tuple(
            Instruction(op, slots, output, width, freed, self._after(controls), dereference)
            for (op, _, output, width, controls, dereference), slots, freed in zip(
                self._drafts, inputs, frees, strict=True
            )
        )
        return Program(
            instructions,
            self._count,
            tuple((t, i) for i, t in enumerate(feeds)),
            tuple((t, self._slot[v]) for t, v in zip(tensors, fetches, strict=True)),
            tuple(self._constants),
        )

    def _after(self, controls: Iterable[Any]) -> tuple[int, ...]:
        """The numbers of instructions; a constant has none: there is nothing to wait for."""
        return tuple(sorted({self._number[c] for c in controls if c in self._number}))

    def _frees(self, inputs: list[tuple[int, ...]], fetches: Sequence[Any]) -> list[Any]:
        """The slots that each instruction is the last to read."""
        frees: list[list[int]] = [[] for _ in self._drafts]
        if any(draft[0].definition.flow is not None for draft in self._drafts):
            return [()] * len(frees)  # who is the last depends on values: the runtime counts
        kept = {self._slot[t] for t in fetches} | {slot for slot, _ in self._constants}
        last: dict[int, int] = {}
        for k, (_, _, output, width, _, _) in enumerate(self._drafts):
            last.update(dict.fromkeys(range(output, output + width), k))
            last.update(dict.fromkeys(inputs[k], k))
        for slot, k in sorted(last.items()):
            if slot not in kept:
                frees[k].append(slot)
        return list(map(tuple, frees))


def dereferences(
    op: Operation, inputs: Sequence[Tensor], step: StepGraph = _NO_STEP
) -> tuple[int, ...]:
    """The inputs that are references to variables, where the op's schema asks for plain values and
    the op isn't to carry them.
    """
    if not any(map(step.is_reference, inputs)):
        return ()
    wants_ref = step.wants_reference(op)
    fed = set(step.feeds)
    return tuple(
        i
        for i, (t, wanted) in enumerate(zip(inputs, wants_ref, strict=True))
        if step.is_reference(t) and not wanted and t not in fed
    )
