"""Pointwise programs on vector registers. In: a program and its inputs. Out: its outputs."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.compile.emit import Function, Reg
from headrace.graph.pointwise import Pointwise

__all__ = ["emit_pointwise"]


def emit_pointwise(
    f: Function, program: Pointwise, inputs: Sequence[Reg], indices: Sequence[Reg] = ()
) -> list[Reg]:
    """Write a program's steps; `inputs` are scalars or vectors of one lane count."""
    values = list(inputs)
    for step in program.steps:
        a, b = [values[i] for i in (*step.operands, 0, 0)][:2]
        if step.opcode == "const":
            values.append(f.const(step.immediate or 0, values[0].type))
        else:
            values.append(getattr(f, "f" + step.opcode)(a, b))
    return [values[i] for i in program.outputs]
