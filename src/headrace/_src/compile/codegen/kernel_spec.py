"""Kernels: native functions of one shape class. In: a spec. Out: the text of a module.

A spec is a frozen dataclass that says all there is to know about a kernel but its data: sizes,
types, what is fused into it. Its repr is its identity (kernels are shared and cached by it). It has

    arguments            names of the buffers it works on, in order; "x", "out:y", "inout:w"
    fills                those inout arguments, if any, of which it writes a part and reads nothing
    counters             how many task counters it uses (0 if its work is divided statically)
    meetings             how often its team meets while it runs; 0 if it doesn't say
    scratch(threads)     bytes of working memory that it needs while it runs, for all threads
    emit(team)           writes the body

A kernel's work has as many shares as a team has threads. All are done by the same function, `void
kernel(ptr args, i64 thread, i64 threads, i64 meeting)`, where args is an array of addresses: the
arguments, then scratch, then counters. Shares divide the work by `team.share` (static) or
`team.claim` (from a counter). A kernel with meetings is called once more for each of them: what is
written in `team.after(1, ...)` runs when all shares of `team.after(0, ...)` are done. Any thread
may run any share, several of them one after the other: the results don't depend on it. The driver
waits between kernels, zeroes the counters before a step, and runs the kernel with one share where
there is no OpenMP. Kernels never allocate, never fail and never look at global state.

The function of a *serial* kernel takes no meeting: its one share does all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace._src.compile.codegen.emit import I64, PTR, VOID, Function, Module, Operand, Reg, Type
from headrace._src.devices.target import Target

__all__ = ["COUNTER_STRIDE", "Kernel", "Team", "generate", "meetings_of", "reads_in_place"]

COUNTER_STRIDE = 8  # in i64: one cache line each


class Kernel(Protocol):
    """What a spec offers (see above)."""

    @property
    def arguments(self) -> tuple[str, ...]: ...

    @property
    def counters(self) -> int: ...

    def scratch(self, threads: int) -> int: ...

    def emit(self, team: Team) -> None: ...


def meetings_of(spec: Any) -> int:
    """How often the team meets while it runs a kernel."""
    return getattr(spec, "meetings", 0)


def reads_in_place(spec: Any, name: str) -> bool:
    """Whether a kernel reads each element of an argument only to write that of its result."""
    asked = getattr(spec, "reads_in_place", None)
    return asked is not None and asked(name)


class Team:
    """The body of a kernel while it's written: its function, arguments and threads. `thread` is the
    number of the share that is worked on, whichever thread does it.
    """

    def __init__(
        self, function: Function, names: tuple[str, ...], serial: bool, meetings: int = 0
    ) -> None:
        self.f = f = function
        self.target = function.target
        self.serial = serial
        self.meetings = meetings
        table = f.parameters[0]
        self.thread: Operand = 0 if serial else f.parameters[1]
        self.threads: Operand = 1 if serial else f.parameters[2]
        self.args = [f.load(PTR, table, i) for i in range(len(names))]
        self.scratch = f.load(PTR, table, len(names))
        self.counters = f.load(PTR, table, len(names) + 1)

    def helper(self, name: str, parameters: list[Type], result: Type = VOID) -> Function:
        """Begin an internal function of this kernel's module."""
        return self.f.module.function(f"{self.f.name}_{name}", parameters, result)

    def after(self, meeting: Operand, body: Callable[[], Any]) -> None:
        """Write what begins when all shares have done what comes before that meeting; 0: at once.
        Code outside of `after` runs each time that the kernel is called: it may compute addresses,
        and read what no share has changed by then.
        """
        if isinstance(meeting, int) and meeting > self.meetings:
            raise ValueError(f"{self.f.name} says that its team meets {self.meetings} times")
        if self.serial or not self.meetings:
            body()
            return
        self.f.when(self.f.icmp("eq", self.f.parameters[3], meeting), body)

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
    parameters = [PTR, I64, I64] if serial else [PTR, I64, I64, I64]
    f = module.function(symbol, parameters, internal=False)
    spec.emit(Team(f, spec.arguments, serial, meetings_of(spec)))
    f.finish()
    return str(module)
