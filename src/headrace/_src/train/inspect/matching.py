"""Match two runs step by step. In: the numbers of two programs. Out: the step at which they
diverge.

The white paper recommends this for porting a network: start both programs from the same parameters
and compare their losses step by step. The first step at which they differ shows the kind of
mistake: at step 0 the forward pass, at step 1 gradients or the optimizer, later state such as
averages, schedules or data.

A run is a mapping from names to sequences of numbers; or the path of one: a recording of `headrace
match` (.jsonl), an event file, or a directory of event files, whose scalars are used.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace._src.core.export import export
from headrace._src.summary.event_reader import summary_iterator

__all__ = ["Match", "compare_runs", "read_run"]

Series = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Match:
    """Two series of numbers, one of each run. `first`: the index at which they diverge, None if
    never; the comparison ends with the shorter one.
    """

    name_a: str
    name_b: str
    a: tuple[float, ...]
    b: tuple[float, ...]
    rtol: float
    atol: float
    first: int | None

    @property
    def steps(self) -> int:
        """The number of compared steps."""
        return min(len(self.a), len(self.b))

    @property
    def name(self) -> str:
        return self.name_a if self.name_a == self.name_b else f"{self.name_a} | {self.name_b}"

    def difference(self, step: int) -> float:
        """Return the relative difference at a step: 0 for equal numbers and for two NaNs."""
        return _relative(self.a[step], self.b[step])

    def __str__(self) -> str:
        if self.first is None:
            most = max(map(self.difference, range(self.steps)), default=0.0)
            return f"{self.name}: {self.steps} steps agree (largest difference {most:.1e})"
        return (
            f"{self.name}: part at step {self.first}: {self.a[self.first]!r} and "
            f"{self.b[self.first]!r} (difference {self.difference(self.first):.1e})"
        )


@export("train.compare_runs")
def compare_runs(
    a: Any,
    b: Any,
    rtol: float = 1e-5,
    atol: float = 0.0,
    pairs: Mapping[str, str] | None = None,
) -> list[Match]:
    """Return how the series of two runs match, sorted by the step at which they diverge.

    They agree at a step if |a - b| <= atol + rtol * max(|a|, |b|), or both are NaN. pairs: names of
    `a` to names of `b`; by default equal names, or the only series of each if both have just one.
    """
    run_a, run_b = read_run(a), read_run(b)
    found = [
        _match(name_a, name_b, run_a[name_a], run_b[name_b], rtol, atol)
        for name_a, name_b in _pairs(run_a, run_b, pairs)
    ]
    return sorted(found, key=lambda m: math.inf if m.first is None else m.first)


def _match(
    name_a: str, name_b: str, a: Sequence[float], b: Sequence[float], rtol: float, atol: float
) -> Match:
    parted = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if not _agree(x, y, rtol, atol))
    return Match(name_a, name_b, tuple(a), tuple(b), rtol, atol, next(parted, None))


def _agree(x: float, y: float, rtol: float, atol: float) -> bool:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    return abs(x - y) <= atol + rtol * max(abs(x), abs(y)) < math.inf


def _relative(x: float, y: float) -> float:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    difference = abs(x - y) / max(abs(x), abs(y))
    return math.inf if math.isnan(difference) else difference


def _pairs(a: Series, b: Series, given: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if given:
        for run, names, which in ((a, given, "first"), (b, given.values(), "second")):
            if missing := [n for n in names if n not in run]:
                raise ValueError(
                    f"the {which} run has no {', '.join(missing)}; it has {_shown(run)}"
                )
        return list(given.items())
    if common := [name for name in a if name in b]:
        return [(name, name) for name in common]
    if len(a) == len(b) == 1:
        return [(next(iter(a)), next(iter(b)))]
    raise ValueError(
        f"the runs have no name in common: the first has {_shown(a)}, the second {_shown(b)}; say "
        "which belong together"
    )


def _shown(run: Series) -> str:
    return ", ".join(run) if run else "no numbers"


# -- Reading runs ----------------------------------------------------------------------------------


def read_run(source: Any) -> dict[str, list[float]]:
    """The series of a run, by name."""
    if isinstance(source, Mapping):
        return {str(name): [float(v) for v in numbers] for name, numbers in source.items()}
    path = Path(os.fspath(source))
    if path.is_dir():
        files = sorted(path.glob("*tfevents*"))
        if not files:
            raise ValueError(f"there are no event files in {path}")
        return _of_events(files)
    return _of_lines(path) if path.suffix == ".jsonl" else _of_events([path])


def _of_lines(path: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["name"], []).append(float(entry["value"]))
    return found


def _of_events(files: Sequence[Path]) -> dict[str, list[float]]:
    """Return scalars by tag, in the order of their steps; for a repeated step, the last one."""
    found: dict[str, dict[int, float]] = {}
    for file in files:
        for event in summary_iterator(file):
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(value.tag, {})[event.step] = value.simple_value
    return {tag: [by_step[s] for s in sorted(by_step)] for tag, by_step in found.items()}
