"""Tiny kernels and plans made by hand, for tests of the driver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace._src.compile.codegen.emit import F32, I64
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.plan.plan import Buffer, Call, Plan


@dataclass(frozen=True)
class Scale:
    """y = a * x + 1, in blocks of 64 claimed from a counter (or divided statically)."""

    n: int
    a: float
    small: bool = False
    counters: int = 1
    arguments = ("x", "out:y")

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (x, y) = team.f, team.args

        def element(i):
            f.store(f.fadd(f.fmul(f.load(F32, x, i), self.a), 1.0), y, i)

        def part(start, stop):
            f.loop(start, stop, element)

        if not self.counters:
            part(*team.share(self.n))
            return
        blocks = -(-self.n // 64)
        team.claim(
            0, blocks, lambda u: part(f.mul(u, 64), f.minimum(f.mul(f.add(u, 1), 64), self.n))
        )


@dataclass(frozen=True)
class Accumulate:
    """w += x, in place."""

    n: int
    small: bool = False
    arguments = ("x", "inout:w")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (x, w) = team.f, team.args
        start, stop = team.share(self.n)
        f.loop(start, stop, lambda i: f.store(f.fadd(f.load(F32, w, i), f.load(F32, x, i)), w, i))


@dataclass(frozen=True)
class Exchange:
    """Each thread writes its number to scratch, waits, and writes how many there are to y[0]: the
    sum of what it finds plus one. It needs its barrier and as much scratch as there are threads.
    """

    small: bool = False
    arguments = ("out:y",)
    counters = 0
    meetings = 1

    def scratch(self, threads: int) -> int:
        return 8 * threads

    def emit(self, team: Team) -> None:
        f, (y,) = team.f, team.args
        team.after(0, lambda: f.store(f.reg(1), team.scratch, team.thread))

        def total():
            (found,) = f.loop(
                0, team.threads, lambda i, t: f.add(t, f.load(I64, team.scratch, i)), [f.reg(0)]
            )
            f.store(found, y)

        team.after(1, lambda: f.when(f.icmp("eq", team.thread, 0), total))


@dataclass(frozen=True)
class Spin:
    """Count to `n` many times over: a kernel that takes long."""

    n: int
    arguments = ("out:y",)
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (y,) = team.f, team.args

        def step(i, value):
            return f.fadd(f.fmul(value, 0.5), 1.0)

        (value,) = f.loop(0, self.n, step, [f.const(1.0, F32)])
        f.when(f.icmp("eq", team.thread, 0), lambda: f.store(value, y))


def chain(n: int, factors: tuple[float, ...], small: tuple[int, ...] = (), **options) -> Plan:
    """input -> Scale -> … -> Scale -> output, through the arena."""
    size = -(-4 * n // 64) * 64
    steps = len(factors)
    buffers = [Buffer("input", "float32", 4 * n, 0), Buffer("output", "float32", 4 * n, 0)]
    buffers += [Buffer("arena", "float32", 4 * n, offset=size * i) for i in range(steps - 1)]
    numbers = [0, *range(2, steps + 1), 1]
    calls = tuple(
        Call(Scale(n, a, i in small, **options), (numbers[i], numbers[i + 1]), f"scale{i}")
        for i, a in enumerate(factors)
    )
    return Plan(tuple(buffers), calls, size * (steps - 1))


def expected(x: np.ndarray, factors: tuple[float, ...]) -> np.ndarray:
    """What `chain` computes."""
    for a in factors:
        x = x * np.float32(a) + np.float32(1)
    return x


def long_plan(calls: int, n: int = 20_000_000) -> Plan:
    """A step of `calls` calls that take some tens of milliseconds each."""
    buffer = Buffer("output", "float32", 4, 0)
    return Plan((buffer,), tuple(Call(Spin(n), (0,)) for _ in range(calls)), 0)
