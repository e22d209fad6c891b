"""The plan of a compiled cluster before it's loaded: calls of kernels, and the buffers they work
on.

A plan is frozen and printable, and the driver runs it. Buffers are numbered. A call's arguments are
buffer numbers in the order of its kernel's `arguments`; the driver places its scratch and counters
behind the arena. Kinds of buffers:

    input       an array that the caller gives
    output      an array that the caller gets
    variable    the array of a variable, written in place if a call writes it
    constant    filled once
    arena       in one block of memory, at an `offset` such that buffers that live at the same time
                don't overlap
    list        memory of its own for any number of rows; its size is that of one row (see
                kernels.list_rows)

A buffer of the last two kinds may be *swapped*: it's in a file (devices.swap_files). Those of the
arena have offsets behind the part of the arena that is in memory.

A *fragment* is a small plan that a PlanWriter splices into a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Buffer", "Call", "Jump", "Plan"]

KINDS = ("input", "output", "variable", "constant", "arena", "list")


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory. `index`: the number of the input, output or variable. `whole`: the buffer
    of the arena that it is a part of. `swapped`: whether it is in a file.
    """

    kind: str
    dtype: str
    size: int  # in bytes
    index: int = -1
    offset: int = -1
    value: np.ndarray | None = field(default=None, repr=False, compare=False)
    label: str = ""
    whole: int = -1
    swapped: bool = False

    def __str__(self) -> str:
        where = f"+{self.offset}" if self.kind == "arena" else f"{self.index}"
        swapped = "swapped " if self.swapped else ""
        return f"{swapped}{self.kind}{where} {self.dtype} {self.size}B {self.label}".rstrip()


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel on buffers. `barrier`: whether the team must meet before it starts. `group`: the
    compile.regions.groups.Group that it was made for, if any.
    """

    kernel: Any  # a compile.codegen.kernel_spec.Kernel, or a compile.kernels.onednn_calls.Foreign
    buffers: tuple[int, ...]
    label: str = ""
    barrier: bool = True
    group: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Jump:
    """A jump to call `target` in the place of a kernel; with a flag, it's taken when that
    is false.
    """

    target: int
    conditional: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("flag",) if self.conditional else ()

    @property
    def counters(self) -> int:
        return 0

    def scratch(self, threads: int) -> int:
        return 0


@dataclass(frozen=True)
class Plan:
    """The calls of one cluster in order, and their buffers."""

    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    arena: int  # bytes in memory
    fault: int | None = None  # the buffer of a word that ends the step when it is not 0
    swapped: int = 0  # bytes of the arena that are in a file, behind the others

    @property
    def has_loops(self) -> bool:
        """Whether a jump leads back, so that the plan may run for any time."""
        return any(isinstance(c.kernel, Jump) and c.kernel.target <= i for i, c in self._numbered)

    @property
    def undone(self) -> set[int]:
        """The variables that calls may have written when a fault ends the step."""
        if self.fault is None:
            return set()
        last = max((i for i, c in self._numbered if isinstance(c.kernel, Jump)), default=0)
        return {
            self.buffers[b].index
            for call in self.calls[:last]
            for name, b in zip(call.kernel.arguments, call.buffers, strict=True)
            if self.buffers[b].kind == "variable" and name.startswith(("out:", "inout:"))
        }

    @property
    def _numbered(self) -> list[tuple[int, Call]]:
        return list(enumerate(self.calls))

    def __str__(self) -> str:
        lines = [f"b{i}: {b}" for i, b in enumerate(self.buffers)]
        for i, c in enumerate(self.calls):
            if any(isinstance(j.kernel, Jump) and j.kernel.target == i for j in self.calls):
                lines.append(f"call {i}:")
            arguments = ", ".join(
                f"{name}=b{b}" for name, b in zip(c.kernel.arguments, c.buffers, strict=True)
            )
            lines.append(f"{c.kernel}({arguments})  # {c.label}")
        lines.append(f"arena {self.arena}" + (f"+{self.swapped}" if self.swapped else ""))
        return "\n".join(lines)
