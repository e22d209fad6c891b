"""What the pipeline's stages hand to each other: frozen, printable forms of one step.

StepGraph: the operations that a step needs, in an order that respects every dependency, with its
feeds and fetches. Program: the same as instructions on numbered slots, with the slots that each
instruction frees; made from a StepGraph as it is, or from the Dataflow that it was specialised to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headrace.graph.dataflow import Node, show_constant
from headrace.graph.definition import Definition
from headrace.graph.flow import Flow
from headrace.graph.lists import row_kept
from headrace.graph.operation import Operation, Tensor

__all__ = ["Instruction", "Program", "StepGraph"]


@dataclass(frozen=True)
class StepGraph:
    """A step before it's scheduled. `placement` names the device of each operation once placement
    has run. `inner`: it's part of a structured operation (see graph.structured), and may be fed
    references. `rereads` has the inputs of operations that take a reference in place of what was
    read through it, `read_last` the tensors that are fetched in place of `fetches` if some of those
    are read when the step is over, `carriers` the tensors that hold a reference in this step though
    they have a value's type, `keepers` the operations that put a reference into a tensor array.
    """

    operations: tuple[Operation, ...]
    feeds: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    targets: tuple[Operation, ...]
    placement: Mapping[Operation, str] = field(default_factory=dict)
    inner: bool = False
    rereads: Mapping[Operation, tuple[Tensor, ...]] = field(default_factory=dict)
    carriers: frozenset[Tensor] = frozenset()
    keepers: frozenset[Operation] = frozenset()
    read_last: tuple[Tensor, ...] = ()

    def inputs_of(self, op: Operation) -> Sequence[Tensor]:
        """What an operation takes in this step."""
        return self.rereads.get(op, op._inputs)

    @property
    def rereads_any(self) -> bool:
        """Whether anything is taken through a reference in place of what was read."""
        return bool(self.rereads or self.carriers or self.keepers)

    def wants_reference(self, op: Operation) -> list[bool]:
        """For each input of an operation, whether it takes a reference as it is."""
        schema = op.definition.schema
        wanted = schema.references(op._attrs)
        if op._outputs and op._outputs[0] in self.carriers:
            predicate = 1 if op.definition.flow is Flow.SWITCH else None
            return [i != predicate for i in range(len(wanted))]
        if op in self.keepers:
            kept = row_kept(op.definition)
            return [wants or i == kept for i, wants in enumerate(wanted)]
        return wanted

    def is_reference(self, t: Tensor) -> bool:
        """Whether a tensor holds a reference in this step, if it isn't fed."""
        return t.dtype._is_ref_dtype or t in self.carriers

    @cached_property
    def steers(self) -> bool:
        """Whether some operation decides what runs: then the step may have cycles."""
        return any(op.definition.flow is not None for op in self.operations)

    @cached_property
    def calls(self) -> bool:
        """Whether some operation calls functions."""
        return any(op.definition.calls is not None for op in self.operations)

    def __str__(self) -> str:
        lines = [f"feed  {_show(t)}" for t in self.feeds]
        for op in self.operations:
            inputs = [t.name for t in self.inputs_of(op)]
            inputs += [f"^{c.name}" for c in op._control_inputs]
            device = f" on {self.placement[op]}" if op in self.placement else ""
            outputs = ", ".join(_show(t) for t in op._outputs) or op.name
            lines.append(f"{outputs} = {op.type}({', '.join(inputs)}){device}")
            lines += _show_parts(op)
        lines += [f"fetch {t.name}" for t in self.fetches]
        lines += [f"run   {op.name}" for op in self.targets]
        return "\n".join(lines)


def _show_parts(op: Operation | Node) -> list[str]:
    """The steps inside of a structured operation, indented."""
    lines = []
    for name, part in op._attrs.items():
        if isinstance(part, StepGraph | Program):
            lines += [f"  {name}:", *(f"    {line}" for line in str(part).splitlines())]
    return lines


def _loops(op: Operation | Node) -> bool:
    parts = (v for v in op._attrs.values() if isinstance(v, Program))
    native = getattr(op.definition.kernel, "has_loops", False)
    return "body" in op._attrs or native or any(p.has_loops for p in parts)


def _is_dynamic(definition: Definition) -> bool:
    return definition.flow is not None or definition.may_wait


def _show(t: Tensor) -> str:
    sizes = t._shape.sizes
    shape = "?" if sizes is None else ",".join("?" if n is None else str(n) for n in sizes)
    return f"{t.name} {t.dtype.name}[{shape}]"


@dataclass(frozen=True, slots=True)
class Instruction:
    """Run one operation or node: read `inputs` slots, write `width` slots from `output` on, then
    free `frees`.

    `after` are the numbers of earlier instructions that must be done first though nothing of them
    is read. `dereference` marks the inputs that arrive as references to variables where an
    operation wants their value.
    """

    op: Operation | Node
    inputs: tuple[int, ...]
    output: int
    width: int
    frees: tuple[int, ...]
    after: tuple[int, ...] = ()
    dereference: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A scheduled step for one device. Slots hold tensors while they live; each is written once.

    The first slots are the feeds, in their order. `constants` are in their slots before the step.
    The instructions of a loop read what its NextIterations write further down, and free nothing.
    """

    instructions: tuple[Instruction, ...]
    slots: int
    feeds: tuple[tuple[Tensor, int], ...]
    fetches: tuple[tuple[Tensor, int], ...]
    constants: tuple[tuple[int, np.ndarray], ...] = ()

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether what runs, or when, depends on values: some op steers, or may wait."""
        return any(_is_dynamic(i.op.definition) for i in self.instructions)

    @cached_property
    def has_loops(self) -> bool:
        """Whether some instruction is a loop, or has one inside: it may never end."""
        return any(_loops(i.op) for i in self.instructions)

    def __str__(self) -> str:
        lines = [f"s{slot} = feed {t.name}" for t, slot in self.feeds]
        lines += [f"s{slot} = {show_constant(value)}" for slot, value in self.constants]
        for i in self.instructions:
            outputs = ", ".join(f"s{i.output + k}" for k in range(i.width))
            inputs = ", ".join(
                f"*s{s}" if k in i.dereference else f"s{s}" for k, s in enumerate(i.inputs)
            )
            frees = f"  free {', '.join(f's{s}' for s in i.frees)}" if i.frees else ""
            lines.append(
                f"{outputs + ' = ' if outputs else ''}{i.op.type}({inputs})  # {i.op.name}{frees}"
            )
            lines += _show_parts(i.op)
        lines += [f"fetch s{slot}  # {t.name}" for t, slot in self.fetches]
        return "\n".join(lines)
