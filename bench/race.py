"""A race: contenders train the same model in turns, in one run.

In: a model and who takes part. Out: one `Track` per contender, with its times, its losses and its
memory. Each contender is a process that stays alive; only one of them works at a time, and a round
asks each for its share of steps before the next round starts, so that whatever else the machine
does falls on all of them alike. Where they do not all fit into memory, they race in groups and
Headrace is in each.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import contenders
from models import Model
from process import Process, Stopped

HERE = Path(__file__).resolve().parent
HEADRACE = "headrace"
# The variable that names a framework's Python; a framework without one is left out.
PYTHONS = {"torch": "BENCH_TORCH_PYTHON", "tf": "BENCH_TF2_PYTHON", "jax": "BENCH_TORCH_PYTHON"}
# A contender that compiles for longer than this has no time, in seconds.
PATIENCE = 900
# Short steps are taken many at a time: about this many seconds for a contender in a round. Long
# ones are taken two at a time: after a pause the first finds its caches cold and pages gone.
SHARE, LEAST = 0.3, 2


@dataclass
class Track:
    """What one contender did.

    first: seconds of the first step, compilation included; cold: the same with nothing cached.
    rounds: the median seconds of each round, by its number, without the first step, which finds
    cold caches.
    losses: of the first steps, in order; all contenders must agree on the first.
    peak: bytes of resident memory at most.
    error: why there are no times.
    """

    label: str
    version: str = ""
    flops: int | None = None
    first: float = math.nan
    cold: float = math.nan
    seconds: list[float] = field(default_factory=list)
    rounds: dict[int, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    peak: int = 0
    error: str = ""

    @property
    def best(self) -> float:
        return min(self.seconds, default=math.nan)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else math.nan

    def ratios(self, other: Track) -> list[float]:
        """This contender's time over another's, in each round that both ran in, sorted: whatever
        speed the machine had in a round, it had for both.
        """
        return sorted(self.rounds[n] / other.rounds[n] for n in self.rounds if n in other.rounds)


class Contender:
    """A worker process and its track. `settings`: variables of its environment."""

    def __init__(
        self, track: Track, model: Model, caches: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self.track = track
        framework, _, mode = track.label.partition(" ")
        script = str(HERE / "training_worker.py")
        command = [python_of(framework), script, framework, mode, model.name]
        environment = {
            "HEADRACE_CACHE": str(caches / "headrace"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            **(settings or {}),
        }
        if framework == HEADRACE:
            # The peers were compiled to bytecode when they were installed; a checkout wasn't.
            environment |= {
                "PYTHONPYCACHEPREFIX": str(caches / "bytecode"),
                "PYTHONDONTWRITEBYTECODE": "",
            }
        if (framework, mode) == (HEADRACE, "strict"):
            environment["HEADRACE_ACCURACY"] = "strict"
        self._process = Process(command, environment, PATIENCE)
        answer = self._answer(self._process.read)
        self.track.version = answer.get("version", "")
        self.track.flops = answer.get("flops")

    def _answer(self, read: Callable[..., str], *line: str) -> dict:
        try:
            answer = json.loads(read(*line))
        except Stopped as stop:
            answer = {"error": str(stop)}
        self.track.error = self.track.error or answer.get("error", "")
        return answer

    def run(self, count: int = 1) -> list[float]:
        """Train; the seconds of each step, none after an error."""
        if self.track.error:
            return []
        answer = self._answer(self._process.ask, f"run {count}")
        self.track.peak = max(self.track.peak, answer.get("peak", 0))
        self.track.losses += answer.get("losses", [])[: 100 - len(self.track.losses)]
        return answer.get("seconds", [])

    def use(self, batch: int) -> None:
        """Train on that batch from now on."""
        if not self.track.error:
            self._answer(self._process.ask, f"batch {batch}")

    def first_step(self) -> float:
        return (self.run() or [math.nan])[0]

    def round(self, number: int) -> None:
        """Take a share of steps."""
        count = LEAST
        if self.track.seconds:
            count = max(LEAST, min(1000, int(SHARE / self.track.best)))
        seconds = self.run(count)
        self.track.seconds += seconds
        if len(seconds) > 1:
            self.track.rounds[number] = statistics.median(seconds[1:])

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, count: int) -> None:
        """Train without waiting for it; nothing more can be asked of this contender."""
        if not self.track.error:
            self._process.send(f"run {count}")

    def close(self) -> None:
        self._process.close()


def python_of(framework: str) -> str:
    return sys.executable if framework == HEADRACE else os.environ[PYTHONS[framework]]


def peers(model: Model, frameworks: Iterable[str], modes: Collection[str] = ()) -> list[str]:
    """The labels of the contenders beside Headrace whose Python is named, each way of each."""
    return [
        f"{framework} {mode}"
        for framework in frameworks
        if os.environ.get(PYTHONS[framework])
        for mode in contenders.modes(framework, model, modes)
    ]


def race(model: Model, labels: Iterable[str], rounds: int, memory: float) -> list[Track]:
    """Train in turns; Headrace's track comes first. `memory` is how much may be used, in bytes."""
    ours = Track(HEADRACE)
    tracks = [ours]
    waiting = [Track(label) for label in labels]
    with tempfile.TemporaryDirectory(prefix="bench-") as caches:
        cold = Contender(Track(HEADRACE), model, Path(caches))
        ours.cold = cold.first_step()
        cold.close()
        headrace = Contender(ours, model, Path(caches))
        ours.first = headrace.first_step()
        done = 0
        while True:
            group = [headrace]
            while waiting and _fits(group, memory):
                contender = Contender(waiting.pop(0), model, Path(caches))
                contender.track.first = contender.track.cold = contender.first_step()
                group.append(contender)
            for number in range(done, done + rounds):
                # The order alternates: nobody always follows the same contender.
                for contender in group if number % 2 else reversed(group):
                    contender.round(number)
            done += rounds
            for contender in group[1:]:
                contender.close()
                tracks.append(contender.track)
            if not waiting:
                break
        headrace.close()
    return tracks


def _fits(group: list[Contender], memory: float) -> bool:
    """Whether one more contender, as large as the largest so far, has room."""
    peaks = [c.track.peak for c in group]
    return len(group) < 2 or sum(peaks) + max(peaks) <= memory
