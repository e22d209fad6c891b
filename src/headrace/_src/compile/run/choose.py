"""Choose kernels by measured cost. In: several ways to do the same work. Out: the fastest here.

A way is a small plan. Each way is timed on this machine once per shape and thread count, until it
is clear which one is the fastest or patience ends (`evidence`). The evidence is kept in this
process and in the cache on disk, and `time_again` adds to it later. Callers should not offer ways
that an estimate rules out, because a cold start waits for the timing. With `strict` accuracy
nothing is timed, so that two processes choose alike: the first way, which should be the likely
best, is taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.native import code_cache
from headrace._src.compile.plan.pack_arena import Lifetime, pack
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.compile.run.evidence import Evidence, TimedRun, gather
from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.devices.target import host

__all__ = ["Choice", "Question", "asking", "fastest", "noting", "time_again", "trial_plan"]

_ROUNDS = 3
_SECONDS = 0.01  # for short kernels, whose times vary most
_PATIENCE = 0.1  # seconds to wait for a clear result
_AGAIN = 0.02  # seconds in which ways are timed again
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


@dataclass(frozen=True)
class Question:
    """A choice that was made by timing, and can be thought over. `key`: all that the answer depends
    on but the processor.
    """

    key: str
    ways: Mapping[str, Callable[[], Plan]]
    threads: int
    chosen: str

    @property
    def evidence(self) -> Evidence:
        """What is known by now, in this process."""
        found = Evidence.from_json(code_cache.recall(self.key), self.ways)
        return Evidence.none(self.ways) if found is None else found


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


@contextmanager
def asking() -> Iterator[dict[str, Question]]:
    """Collect the questions that this thread answers by timing inside the with-block, by key."""
    before = getattr(_listening, "questions", None)
    _listening.questions = found = {}
    try:
        yield found
    finally:
        _listening.questions = before


def fastest(key: str, ways: Mapping[str, Callable[[], Plan]], threads: int) -> str:
    """Return the name of the fastest way to do the work that `key` describes."""
    names: Sequence[str] = list(ways)
    if len(names) == 1:
        return names[0]
    chosen, seconds = names[0], {}
    if settings().accuracy != "strict":
        full = f"{host().model} {threads} threads {key} {','.join(names)}"
        with _lock:
            evidence = Evidence.from_json(code_cache.recall(full), names)
            if evidence is None:
                evidence = Evidence.none(names)
                evidence = _race(evidence, names, ways, threads, _SECONDS, _PATIENCE)
                code_cache.remember(full, evidence.as_json())
        chosen, seconds = evidence.best, evidence.seconds
        questions: dict[str, Question] | None = getattr(_listening, "questions", None)
        if questions is not None:
            questions[full] = Question(full, ways, threads, chosen)
    choices: list[Choice] | None = getattr(_listening, "choices", None)
    if choices is not None:
        kernels = {name: tuple(c.kernel for c in make().calls) for name, make in ways.items()}
        choices.append(Choice(key, chosen, kernels, seconds))
    return chosen


def time_again(question: Question) -> Evidence:
    """Time the ways that may be the fastest a few more times; return all evidence, which is kept
    for this process and later ones.
    """
    with _lock:
        before = question.evidence
        names = before.leading
        after = _race(before, names, question.ways, question.threads, _AGAIN, _AGAIN)
        code_cache.remember(question.key, after.as_json())
    return after


def _race(
    evidence: Evidence,
    names: Sequence[str],
    ways: Mapping[str, Callable[[], Plan]],
    threads: int,
    enough: float,
    patience: float,
) -> Evidence:
    """Add timings of some of the ways, in turn, so that other load slows all of them."""
    clusters = {name: NativeCluster(ways[name](), threads) for name in names}
    for cluster in clusters.values():
        cluster.run((), (), ())
        if cluster.plan.arena < _REUSED:
            cluster.fill(_NUMBERS)
    return gather(
        evidence,
        names,
        lambda name: _timed(clusters[name], threads),
        time.perf_counter,
        _ROUNDS,
        enough,
        patience,
    )


def _timed(cluster: NativeCluster, threads: int) -> TimedRun:
    running, start = time.process_time(), time.perf_counter()
    cluster.run((), (), ())
    seconds = time.perf_counter() - start
    return TimedRun(seconds, _was_alone(seconds, time.process_time() - running, threads))


def _was_alone(seconds: float, running: float, threads: int) -> bool:
    """Return whether no other process used the threads' processors during a run. `running`: how
    long the threads were running in all.
    """
    return running > _ALONE * threads * seconds
