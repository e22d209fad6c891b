"""Compose the pointwise programs of a group's nodes into one.

Operands are declared as they come up; values are referred to by `Ref`s, because a program's inputs
are numbered before its steps and their count is known only at the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace._src.lowering.pointwise import Pointwise, PointwiseStep

__all__ = ["Composer", "Ref"]


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the program being made: its operand `number`, or its step `number`."""

    is_operand: bool
    number: int


@dataclass
class Composer:
    """A program in the making. `operands` has the keys of its inputs in order."""

    operands: list[Hashable] = field(default_factory=list)
    _dtypes: list[str] = field(default_factory=list)
    _steps: list[tuple[str, tuple[Ref, ...], str, Any]] = field(default_factory=list)
    _known: dict[Any, Ref] = field(default_factory=dict)

    def operand(self, key: Hashable, dtype: str) -> Ref:
        """An input; the same key is the same input."""
        found = self._known.get(("operand", key))
        if found is None:
            found = self._known["operand", key] = Ref(True, len(self.operands))
            self.operands.append(key)
            self._dtypes.append(dtype)
        return found

    def constant(self, value: Any, dtype: str) -> Ref:
        return self._step("const", (), dtype, value)

    def cast(self, value: Ref, dtype: str) -> Ref:
        return self._step("cast", (value,), dtype, None)

    def apply(self, program: Pointwise, inputs: Sequence[Ref]) -> list[Ref]:
        """Add a program's steps on these inputs; returns its outputs."""
        values = list(inputs)
        for step in program.steps:
            operands = tuple(values[i] for i in step.operands)
            values.append(self._step(step.opcode, operands, step.dtype, step.immediate))
        return [values[i] for i in program.outputs]

    def _step(self, opcode: str, operands: tuple[Ref, ...], dtype: str, immediate: Any) -> Ref:
        key = (opcode, operands, dtype, repr(immediate))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Ref(False, len(self._steps))
            self._steps.append((opcode, operands, dtype, immediate))
        return found

    def finish(self, outputs: Sequence[Ref]) -> Pointwise:
        """The program with these outputs; steps that none of them needs are left out."""
        needed: set[int] = set()
        stack = [r.number for r in outputs if not r.is_operand]
        while stack:
            number = stack.pop()
            if number not in needed:
                needed.add(number)
                stack += [r.number for r in self._steps[number][1] if not r.is_operand]
        count = len(self.operands)
        place = {number: count + i for i, number in enumerate(sorted(needed))}

        def resolve(ref: Ref) -> int:
            return ref.number if ref.is_operand else place[ref.number]

        steps = tuple(
            PointwiseStep(opcode, tuple(map(resolve, operands)), dtype, immediate)
            for i, (opcode, operands, dtype, immediate) in enumerate(self._steps)
            if i in needed
        )
        return Pointwise(tuple(self._dtypes), steps, tuple(map(resolve, outputs)))
