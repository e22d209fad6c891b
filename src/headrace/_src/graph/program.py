"""Program: a step as instructions on numbered slots, with the slots that each instruction frees.
The scheduler makes it from a Dataflow, and executors run it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace._src.graph.dataflow import Node, show_constant
from headrace._src.graph.definition import Definition, asks_for_step
from headrace._src.graph.operation import Tensor

__all__ = ["Instruction", "Program"]


def _show_parts(op: Node) -> list[str]:
    """Return the steps inside a structured node, indented."""
    lines = []
    for name, part in op._attrs.items():
        if isinstance(part, Program):
            lines += [f"  {name}:", *(f"    {line}" for line in str(part).splitlines())]
    return lines


def _loops(op: Node) -> bool:
    parts = (v for v in op._attrs.values() if isinstance(v, Program))
    native = getattr(op.definition.kernel, "has_loops", False)
    return "body" in op._attrs or native or any(p.has_loops for p in parts)


def _asks(instruction: Instruction) -> bool:
    op = instruction.op
    parts = (v for v in op._attrs.values() if isinstance(v, Program))
    asks = op.definition.calls_python or asks_for_step(op)  # a function may run eager operations
    return asks or any(part.asks_for_step for part in parts)


def _is_dynamic(definition: Definition) -> bool:
    return definition.flow is not None or definition.may_wait


@dataclass(frozen=True, slots=True)
class Instruction:
    """Run one node: read `inputs` slots, write `width` slots from `output` on, then
    free `frees`.

    `after` are the numbers of earlier instructions that must finish first although none of their
    outputs is read.
    """

    op: Node
    inputs: tuple[int, ...]
    output: int
    width: int
    frees: tuple[int, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A scheduled step for one device. Slots hold tensors while they live; each is written once.

    The first slots are the feeds, in their order. `constants` are in their slots before the step.
    The instructions of a loop read slots that its NextIterations write later, and free nothing.
    `specialised`: whether it relies on the types of its nodes, which the runtime then checks.
    """

    instructions: tuple[Instruction, ...]
    slots: int
    feeds: tuple[tuple[Tensor, int], ...]
    fetches: tuple[tuple[Tensor, int], ...]
    constants: tuple[tuple[int, np.ndarray], ...] = ()
    specialised: bool = True

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether values determine what runs, or when: some op controls flow, or may block."""
        return any(_is_dynamic(i.op.definition) for i in self.instructions)

    @cached_property
    def has_loops(self) -> bool:
        """Whether some instruction is a loop, or contains one: it may never end."""
        return any(_loops(i.op) for i in self.instructions)

    @cached_property
    def owned(self) -> set[int]:
        """The slots whose memory nothing else holds at the end of a step: what is fetched from them
        need not be copied. One that is fetched twice isn't among them.
        """
        made: set[int] = set()
        passed_on: set[int] = set()
        for i in self.instructions:
            if i.op.definition.is_fresh:
                made.update(range(i.output, i.output + i.width))
            else:
                passed_on.update(i.inputs)
        fetches = Counter(slot for _, slot in self.fetches)
        return (made - passed_on) & {slot for slot, n in fetches.items() if n == 1}

    @cached_property
    def asks_for_step(self) -> bool:
        """Whether some kernel wants to know the step that it runs for."""
        return any(map(_asks, self.instructions))

    @cached_property
    def peak_memory(self) -> int:
        """The most bytes that values of known sizes and the working memory of an instruction need
        at one time, without feeds, constants and variables.
        """
        sizes: dict[int, int] = {}
        live = most = 0
        for i in self.instructions:
            for slot, value in enumerate(i.op.outputs, i.output):
                sizes[slot] = value.type.size or 0
                live += sizes[slot]
            most = max(most, live + getattr(i.op.definition.kernel, "working_memory", 0))
            live -= sum(sizes.pop(slot, 0) for slot in i.frees)
        return most

    def __str__(self) -> str:
        lines = [f"s{slot} = feed {t.name}" for t, slot in self.feeds]
        lines += [f"s{slot} = {show_constant(value)}" for slot, value in self.constants]
        for i in self.instructions:
            outputs = ", ".join(f"s{i.output + k}" for k in range(i.width))
            inputs = ", ".join(f"s{s}" for s in i.inputs)
            frees = f"  free {', '.join(f's{s}' for s in i.frees)}" if i.frees else ""
            lines.append(
                f"{outputs + ' = ' if outputs else ''}{i.op.type}({inputs})  # {i.op.name}{frees}"
            )
            lines += _show_parts(i.op)
        lines += [f"fetch s{slot}  # {t.name}" for t, slot in self.fetches]
        return "\n".join(lines)
