"""A compiled cluster before it's loaded: kernels, the buffers they work on, and where those live.

A frozen, printable form; what the driver runs. Buffers are numbered. A call's arguments are buffer
numbers in the order of its kernel's `arguments`; its scratch and counters are the driver's to place
behind the arena. An "input" buffer is an array that the caller gives, an "output" one that it gets,
a "variable" the array of a variable (written in place if a call writes it), a "constant" is filled
once, and "arena" buffers share one block of memory: `offset` was chosen so that buffers that live
at the same time don't overlap. A "list" has memory of its own for as many rows as it turns out to
need; its size is that of one row (see kernels.list_rows).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Buffer", "Call", "Jump", "Plan"]

KINDS = ("input", "output", "variable", "constant", "arena", "list")


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory. `index`: which input, output or variable of the cluster it is. `whole`:
    the buffer of the arena that it is a part of.
    """

    kind: str
    dtype: str
    size: int  # in bytes
    index: int = -1
    offset: int = -1
    value: np.ndarray | None = field(default=None, repr=False, compare=False)
    label: str = ""
    whole: int = -1

    def __str__(self) -> str:
        where = f"+{self.offset}" if self.kind == "arena" else f"{self.index}"
        return f"{self.kind}{where} {self.dtype} {self.size}B {self.label}".rstrip()


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel on buffers. `barrier`: whether the team must meet before it starts. `group`: the
    compile.groups.Group that it was made for, if any.
    """

    kernel: Any  # a compile.kernel.Kernel, or a compile.foreign.Foreign
    buffers: tuple[int, ...]
    label: str = ""
    barrier: bool = True
    group: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Jump:
    """In the place of a kernel: go on at call `target`, if there is a flag only when it's false."""

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
    """What one cluster does, in order."""

    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    arena: int  # bytes
    fault: int | None = None  # the buffer of a word that ends the step when it is not 0

    @property
    def has_loops(self) -> bool:
        """Whether some call leads back: the plan may take any time."""
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
        lines.append(f"arena {self.arena}")
        return "\n".join(lines)
