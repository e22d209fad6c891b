"""Put the inputs of collectives into shared memory. In: a program. Out: a function that wraps the
kernels whose results other processes read, so that nothing has to be copied for them.

Kernels that allocate their results by `empty_aligned` write them there directly: compiled regions,
generated code and oneDNN. The inputs that others make are copied when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace._src.devices.allocator import SHARED_FROM
from headrace._src.devices.buffers import allocating
from headrace._src.devices.collectives import shared_memory
from headrace._src.graph.program import Instruction, Program

__all__ = ["sharing_inputs"]

Guard = Callable[[Instruction, Callable[..., Any]], Callable[..., Any]]


def sharing_inputs(programs: Iterable[Program]) -> Guard | None:
    """Return the guard of an executable (see Executable); None if there are no such kernels."""
    shared = {
        value
        for program in programs
        for instruction in program.instructions
        if instruction.op.definition.shares
        for value in instruction.op.inputs
    }
    if not shared or shared_memory() is None:
        return None

    def guard(instruction: Instruction, kernel: Callable[..., Any]) -> Callable[..., Any]:
        if shared.isdisjoint(instruction.op.outputs):
            return kernel
        return allocating(kernel, _allocate, SHARED_FROM)

    return guard


def _allocate(nbytes: int) -> Any:
    memory = shared_memory()
    if memory is None:
        raise MemoryError
    return memory.allocate(nbytes)
