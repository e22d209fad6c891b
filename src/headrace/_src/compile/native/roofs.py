"""Measure how fast this machine is. Out: operations and bytes per second, the best of a few runs.

These are the roofs of the roofline model: no kernel computes faster than `peak_flops` or streams
faster than `bandwidth`, so a kernel's own figures are compared with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace._src.compile.codegen.emit import F32
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.native import machine_code
from headrace._src.devices import onednn
from headrace._src.devices.target import host

__all__ = ["bandwidth", "peak_flops", "product_flops"]


@dataclass(frozen=True)
class MultiplyAdd:
    """Independent chains of multiply-adds, in registers: as many as hide the latency."""

    rounds: int
    chains: int
    lanes: int
    arguments = ("out:y",)
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (y,) = team.f, team.args
        vector = F32.of(self.lanes)
        factor = f.splat(f.load(F32, y), self.lanes)

        def step(_, *values):
            return [f.fma(v, factor, factor) for v in values]

        values = f.loop(0, self.rounds, step, [f.const(i, vector) for i in range(self.chains)])
        at = f.offset(y, f.mul(f.add(team.thread, 1), self.lanes))
        for v in values:
            f.store(v, at)


@dataclass(frozen=True)
class StreamCopy:
    """y = x, past the caches."""

    size: int
    lanes: int
    arguments = ("x", "out:y")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (x, y) = team.f, team.args
        vector = F32.of(self.lanes)
        start, stop = team.share(self.size, 4096)

        def move(i):
            f.store(f.load(vector, x, i), y, i, nontemporal=True)

        f.loop(start, stop, move, step=self.lanes)


@dataclass(frozen=True)
class StreamUpdate:
    """y += x; z += y, in place: five streams, as an optimizer with a slot has them."""

    size: int
    lanes: int
    arguments = ("x", "inout:y", "inout:z")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (x, y, z) = team.f, team.args
        vector = F32.of(self.lanes)
        start, stop = team.share(self.size, 4096)

        def move(i):
            value = f.fadd(f.load(vector, x, i), f.load(vector, y, i))
            f.store(value, y, i)
            f.store(f.fadd(value, f.load(vector, z, i)), z, i)

        f.loop(start, stop, move, step=self.lanes)


def peak_flops(threads: int) -> float:
    """Multiplications and additions per second, in float32, of a team."""
    lanes = host().lanes()
    spec = MultiplyAdd(200_000, 12, lanes)
    y = machine_code.aligned(4 * lanes * (threads + 1), np.float32)
    seconds = _best(machine_code.prepared_kernel(spec, [y], threads))
    return 2 * spec.rounds * spec.chains * lanes * threads / seconds


def bandwidth(threads: int) -> float:
    """Bytes read and written per second in arrays that fit no cache: by a non-temporal copy or by
    an update in place, whichever moves more (writing lines that were just read can be cheaper).
    """
    size, lanes = 2**24, host().lanes()
    arrays = [machine_code.aligned(4 * size, np.float32) for _ in range(3)]
    for array in arrays:
        array[:] = 0  # so that it has memory of its own
    copy = machine_code.prepared_kernel(StreamCopy(size, lanes), arrays[:2], threads)
    update = machine_code.prepared_kernel(StreamUpdate(size, lanes), arrays, threads)
    return 4 * size * max(2 / _best(copy), 5 / _best(update))


def product_flops() -> float:
    """Operations per second of a float32 matrix product, by the library that would do it."""
    n = 1024
    a, b = (np.ones((n, n), np.float32) for _ in range(2))
    multiply = onednn.gemm if onednn.available() else np.matmul
    return 2 * n**3 / _best(lambda: multiply(a, b))


def _best(run: Callable[[], object], attempts: int = 7) -> float:
    """Seconds of the quickest run: other load on the machine can only slow a run."""
    best = float("inf")
    for _ in range(attempts):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
