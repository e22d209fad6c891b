"""Choose kernels by measured cost. In: several ways to do the same work. Out: the fastest here.

A way is a small plan. Each way is timed on this machine once per shape and thread count; the times
are kept in this process and in the cache on disk. Callers should not offer ways that an estimate
rules out, because a cold start waits for the timing. With `strict` accuracy nothing is timed, so
that two processes choose alike: the first way, which should be the likely best, is taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace._src.compile.native import code_cache
from headrace._src.compile.plan.pack_arena import Lifetime, pack
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.devices.target import host

__all__ = ["Choice", "fastest", "noting", "trial_plan"]

_ROUNDS = 3
_MOST_ROUNDS, _SECONDS = 100, 0.01  # for short kernels, whose times vary most
_PATIENCE = 0.04  # seconds to wait for an undisturbed round
_ALONE = 0.9
_REUSED = 1 << 20  # bytes: smaller arenas reuse memory, larger ones are fresh zero pages
_NUMBERS = 0x3F  # bytes that are numbers below 1 in every format; denormal numbers would be slow


def trial_plan(calls: Sequence[tuple[Any, tuple[str, ...]]], sizes: Mapping[str, int]) -> Plan:
    """The plan of kernels on named buffers in memory of their own; `sizes` has each buffer's bytes.
    It computes nothing of use: it is only timed.
    """
    names = list(sizes)
    lives = [Lifetime(max(64, sizes[n]), 0, len(calls)) for n in names]
    offsets, total = pack(lives)
    buffers = [
        Buffer("arena", "uint8", life.size, offset=offset)
        for life, offset in zip(lives, offsets, strict=True)
    ]
    numbered = [Call(kernel, tuple(names.index(n) for n in given)) for kernel, given in calls]
    return Plan(tuple(buffers), tuple(numbered), total)


@dataclass(frozen=True)
class Choice:
    """The way that was chosen for `key`. `kernels`: the kernels of all ways, by name. `seconds`:
    the time of each way; empty if none was timed.
    """

    key: str
    chosen: str
    kernels: Mapping[str, tuple[Any, ...]]
    seconds: Mapping[str, float]


_lock = Lock()
_listening = threading.local()


@contextmanager
def noting(choices: list[Choice]) -> Iterator[None]:
    """Add the choices that this thread makes inside the with-block to a list."""
    before = getattr(_listening, "choices", None)
    _listening.choices = choices
    try:
        yield
    finally:
        _listening.choices = before


def fastest(key: str, ways: Mapping[str, Callable[[], Plan]], threads: int) -> str:
    """Return the name of the fastest way to do the work that `key` describes."""
    names: Sequence[str] = list(ways)
    if len(names) == 1:
        return names[0]
    seconds: Mapping[str, float] = {}
    if settings().accuracy != "strict":
        full = f"{host().model} {threads} threads {key} {','.join(names)}"
        with _lock:
            seconds = code_cache.recall(full) or {}
            if seconds.keys() != ways.keys():
                seconds = _race({name: make() for name, make in ways.items()}, threads)
                code_cache.remember(full, seconds)
    chosen = min(names, key=lambda name: seconds.get(name, 0.0))
    choices: list[Choice] | None = getattr(_listening, "choices", None)
    if choices is not None:
        kernels = {name: tuple(c.kernel for c in make().calls) for name, make in ways.items()}
        choices.append(Choice(key, chosen, kernels, seconds))
    return chosen


def _race(ways: Mapping[str, Plan], threads: int) -> dict[str, float]:
    """Return the seconds of each way. The ways run in turn, so that other load on the machine slows
    all of them; there are more rounds while some way has had no undisturbed one.
    """
    clusters = {name: NativeCluster(plan, threads) for name, plan in ways.items()}
    best = dict.fromkeys(clusters, _Round(float("inf"), 0.0))
    for cluster in clusters.values():
        cluster.run((), (), ())
        if cluster.plan.arena < _REUSED:
            cluster.fill(_NUMBERS)
    began = time.perf_counter()
    for number in range(_MOST_ROUNDS):
        if number >= _ROUNDS:
            passed = time.perf_counter() - began
            alone = all(r.alone(threads) for r in best.values())
            if passed > (_SECONDS if alone else _PATIENCE):
                break
        for name, cluster in clusters.items():
            best[name] = min(best[name], _timed(cluster))
    return {name: round.seconds for name, round in best.items()}


class _Round(NamedTuple):
    """How long a run took, and how long its threads were running in all."""

    seconds: float
    running: float

    def alone(self, threads: int) -> bool:
        """Return whether no other process used the threads' processors during the run."""
        return self.running > _ALONE * threads * self.seconds


def _timed(cluster: NativeCluster) -> _Round:
    running, start = time.process_time(), time.perf_counter()
    cluster.run((), (), ())
    seconds = time.perf_counter() - start
    return _Round(seconds, time.process_time() - running)
