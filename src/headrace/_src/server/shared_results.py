"""Put results that are sent to other processes into shared memory. In: the partitions of a step.
Out: a function that wraps the kernels of such results, so that sending them needs no copy.

Kernels that allocate their results by `empty_aligned` write them there directly: compiled regions,
generated code, oneDNN and gathers. The results of others are copied when they are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from headrace._src.devices.allocator import SHARED_FROM
from headrace._src.devices.buffers import allocating
from headrace._src.devices.resources import Resources
from headrace._src.graph.dataflow import Value
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.graph.program import Instruction
from headrace._src.ops.base.simplify_movement_rules import passes_on
from headrace._src.ops.base.transfers import leaves_task

__all__ = ["sends_in_place"]

Guard = Callable[[Instruction, Callable[..., Any]], Callable[..., Any]]


def sends_in_place(program: PartitionedProgram, resources: Resources) -> Guard:
    """Return the guard of an executable (see PartitionedExecutable)."""
    sent: set[Value] = set()
    for part in program.programs:
        for instruction in reversed(part.instructions):
            op = instruction.op
            if leaves_task(op):
                sent.update(filter(_may_be_large, op.inputs))
            elif passes_on(op.definition) and not sent.isdisjoint(op.outputs):
                sent.add(op.inputs[0])

    def guard(instruction: Instruction, kernel: Callable[..., Any]) -> Callable[..., Any]:
        op = instruction.op
        if sent.isdisjoint(op.outputs):
            return kernel
        shared = resources.device(op.device).allocator.shared
        return kernel if shared is None else allocating(kernel, shared.allocate, SHARED_FROM)

    return guard


def _may_be_large(value: Value) -> bool:
    sizes = value.type.sizes
    return sizes is None or prod(sizes) * max(value.dtype.size, 1) >= SHARED_FROM
