"""Calls of other people's native code from a plan. In: a spec. Out: a bound C function.

A foreign spec stands in a plan where a kernel's would. It has `arguments` and `scratch(threads)` as
kernels do, and `bind(threads)`, which gives an instance `i64 function(void* user, void** args)` and
its user data. It's called by one thread, between the team's regions, and may use threads of its
own; args are the addresses of the arguments, then scratch. It returns 0, or a negative number if
it failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

__all__ = ["Bound", "Foreign"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A foreign call that is ready to run: addresses, and what must live as long as they do."""

    function: int
    user: int
    keep: Any = None


@runtime_checkable
class Foreign(Protocol):
    """What a foreign spec offers (see above)."""

    @property
    def arguments(self) -> tuple[str, ...]: ...

    def scratch(self, threads: int) -> int: ...

    def bind(self, threads: int) -> Bound: ...
