"""Kernels: native functions of one shape class. In: a spec. Out: the text of a module.

A spec is a frozen dataclass that says all there is to know about a kernel but its data: sizes,
types, what is fused into it. Its repr is its identity (kernels are shared and cached by it). It has

    arguments            names of the buffers it works on, in order; "x", "out:y", "inout:w"
    fills                those inout arguments, if any, of which it writes a part and reads nothing
    counters             how many task counters it uses (0 if its work is divided statically)
    scratch(threads)     bytes of working memory that it needs while it runs, for all threads
    emit(team)           writes the body

All threads of a team run the same function, `void kernel(ptr args, i64 thread, i64 threads)`, where
args is an array of addresses: the arguments, then scratch, then counters. They share the work by
`team.share` (static) or `team.claim` (from a counter), and meet at `team.barrier()`. The driver
puts a barrier between kernels, zeroes the counters before a step, and runs the kernel with one
thread where there is no OpenMP. Kernels never allocate, never fail and never look at global state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.compile.emit import I64, PTR, VOID, Function, Module, Operand, Reg, Type
from headrace.devices.target import Target

__all__ = ["COUNTER_STRIDE", "BARRIER", "Kernel", "Team", "generate"]

COUNTER_STRIDE = 8  # in i64: one cache line each
BARRIER = "headrace_barrier"


class Kernel(Protocol):
    """What a spec offers (see above)."""

    @property
    def arguments(self) -> tuple[str, ...]: ...

    @property
    def counters(self) -> int: ...

    def scratch(self, threads: int) -> int: ...

    def emit(self, team: Team) -> None: ...


class Team:
    """The body of a kernel while it's written: its function, arguments and threads."""

    def __init__(self, function: Function, names: tuple[str, ...], serial: bool) -> None:
        self.f = f = function
        self.target = function.target
        self.serial = serial
        table, thread, threads = f.parameters
        self.thread: Operand = 0 if serial else thread
        self.threads: Operand = 1 if serial else threads
        self.args = [f.load(PTR, table, i) for i in range(len(names))]
        self.scratch = f.load(PTR, table, len(names))
        self.counters = f.load(PTR, table, len(names) + 1)

    def helper(self, name: str, parameters: list[Type], result: Type = VOID) -> Function:
        """Begin an internal function of this kernel's module."""
        return self.f.module.function(f"{self.f.name}_{name}", parameters, result)

    def barrier(self) -> None:
        """Wait until all threads of the team are here."""
        if not self.serial:
            self.f.call(BARRIER, VOID)

    def share(self, count: Operand, align: int = 1) -> tuple[Operand, Operand]:
        """This thread's part [start, stop) of `count` units, in multiples of `align`."""
        f = self.f
        if self.serial:
            return 0, count
        blocks = f.div(f.add(count, align - 1), align)
        part = f.mul(f.div(f.add(blocks, f.sub(self.threads, 1)), self.threads), align)
        start = f.mul(part, self.thread)
        return f.minimum(start, count), f.minimum(f.add(start, part), count)

    def claim(self, counter: int | Reg, count: Operand, body: Callable[[Any], Any]) -> None:
        """Run body(i) for i in range(count); threads take the next i from a counter."""
        f = self.f
        if self.serial:
            f.loop(0, count, body)
            return
        at = f.offset(self.counters, f.mul(counter, COUNTER_STRIDE), I64)
        limit = f.reg(count)

        def next_unit(i: Reg) -> Reg:
            body(i)
            return f.atomic_add(at, 1)

        f.repeat(lambda i: f.icmp("slt", i, limit), next_unit, [f.atomic_add(at, 1)])


def generate(spec: Kernel, symbol: str, target: Target, *, serial: bool = False) -> str:
    """The module with `spec` as an external function `symbol`."""
    module = Module(target)
    f = module.function(symbol, [PTR, I64, I64], internal=False)
    spec.emit(Team(f, spec.arguments, serial))
    f.finish()
    return str(module)
