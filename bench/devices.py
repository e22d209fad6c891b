"""What several devices in one process cost.

    python bench/devices.py                        everything
    python bench/devices.py --only split,edge      some of the measurements
    python bench/devices.py --models mlp,lstm --rounds 20

Each measurement runs in a process of its own (devices_cases.py); what is compared takes turns there
or, where it is the time of compiling, in processes that take turns. bench/README.md says more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median

from models import LANGUAGE, MODELS
from rich.console import Console
from rich.table import Table

from headrace._src.core.config import settings
from headrace._src.place.estimate import Roofs, seconds_of
from headrace._src.place.rates import TimedSample, fit_rates, show_rates

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """A figure and its bar. `met`: None where there is no bar."""

    what: str
    figure: str
    bar: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Effort:
    """How much to measure: the models to split, and how many rounds of each measurement. `busy`:
    compare processor time on one thread, because other processes use the machine.
    """

    models: list[str]
    rounds: int
    busy: bool

    @property
    def clock(self) -> str:
        return "process_time" if self.busy else "perf_counter"

    @property
    def settings(self) -> dict[str, str]:
        return {"HEADRACE_NUM_THREADS": "1"} if self.busy else {}


def case(*arguments: object, **settings: str) -> dict:
    """The figures of a case, measured in a new process with these environment variables."""
    command = [sys.executable, str(HERE / "devices_cases.py"), *map(str, arguments)]
    environment = {**os.environ, **settings}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {ran.stderr.strip()[-400:]}")
    return json.loads(ran.stdout.splitlines()[-1])


def split(effort: Effort) -> Iterator[Row]:
    """Training steps on two devices against one."""
    for name in effort.models:
        found = case("split", name, effort.rounds, effort.clock, **effort.settings)
        whole, halves = found["whole"], found["split"]
        best, middle = min(halves) / min(whole), median(halves) / median(whole)
        clusters = "+".join(map(str, found["clusters"]))
        figure = (
            f"{best:.3f} of the best, {middle:.3f} of the median: {_ms(min(whole))} and "
            f"{_ms(min(halves))} ms; {found['edges']} edges, {found['bytes']:,} B, "
            f"{clusters} clusters; losses apart {found['apart']:.1e}"
        )
        yield Row(f"split {name}", figure, "≤ 1.03", best <= 1.03)


def xla(effort: Effort) -> Iterator[Row]:
    """Training steps on an XLA device against plain jax.jit."""
    for name in effort.models:
        found = case("xla", name, effort.rounds, effort.clock)
        best = min(found["ours"]) / min(found["plain"])
        middle = median(found["ours"]) / median(found["plain"])
        figure = (
            f"{best:.3f} of the best, {middle:.3f} of the median: {_ms(min(found['plain']))} and "
            f"{_ms(min(found['ours']))} ms"
        )
        yield Row(f"XLA {name}", figure, "≤ 1.05", best <= 1.05)


def accuracy(effort: Effort) -> Iterator[Row]:
    """The cost model's predictions: of splits, from the whole step and the cost of an edge; and of
    whole steps of models that it has not seen, from micro-graphs alone, and from micro-graphs and
    all other models.
    """
    micros = median(case("edge", effort.rounds)["edge"])
    before = case("micro_graphs", 2 * effort.rounds, effort.clock, **effort.settings)
    found = {
        name: case("accuracy", name, effort.rounds, micros, effort.clock, **effort.settings)
        for name in effort.models
    }
    after = case("micro_graphs", 2 * effort.rounds, effort.clock, **effort.settings)
    yield from _splits(found)
    # Other processes slow the measurements: the least of both counts.
    roofs = Roofs(*(max(before[what], after[what]) for what in ("flops", "bandwidth")))
    samples = [
        TimedSample(a["name"], a["amounts"], min(a["seconds"], b["seconds"]))
        for a, b in zip(before["samples"], after["samples"], strict=True)
    ]
    yield from _unseen(found, roofs, samples)


def _splits(found: dict[str, dict]) -> Iterator[Row]:
    mean = sum(f["split"] for f in found.values()) / len(found)
    errors, constant = [], []
    for name, f in found.items():
        errors.append(abs(f["predicted"] / f["split"] - 1))
        constant.append(abs(mean / f["split"] - 1))
        figure = f"{_ms(f['predicted'])} predicted, {_ms(f['split'])} ms measured: {errors[-1]:.1%}"
        yield Row(f"split {name}, predicted", figure, "< 25 %", errors[-1] < 0.25)
    average = sum(errors) / len(errors)
    figure = f"{average:.1%}, of a constant predictor {sum(constant) / len(constant):.0%}"
    yield Row("mean error of splits", figure, "< 25 %", average < 0.25)


def _unseen(found: dict[str, dict], roofs: Roofs, micro: list[TimedSample]) -> Iterator[Row]:
    """Leave one model out, in every precision: fit the rates to everything else, then predict it.
    The constant predictor knows the other models too: it gives the geometric mean of their times.
    """
    models = {name: TimedSample(name, f["amounts"], f["whole"]) for name, f in found.items()}
    rates = fit_rates(micro, roofs)
    errors, constant = [], []
    for name, model in models.items():
        others = [m for m in models.values() if _network(m.name) != _network(name)]
        guesses = [
            seconds_of(model.amounts, replace(roofs, rates=r))
            for r in (rates, fit_rates([*micro, *others], roofs))
        ]
        alone, guess = (g / model.seconds - 1 for g in guesses)
        errors.append(abs(guess))
        if others:
            constant.append(abs(geometric_mean(m.seconds for m in others) / model.seconds - 1))
        figure = (
            f"{_ms(guesses[1])} predicted, {_ms(model.seconds)} ms measured: {guess:+.1%}; "
            f"from micro-graphs alone {alone:+.1%}"
        )
        yield Row(f"{name}, not seen before", figure, "< 25 %", max(abs(guess), abs(alone)) < 0.25)
    figure = f"{sum(errors) / len(errors):.1%}, at most {max(errors):.1%}"
    if constant:
        figure += f"; of a constant predictor {median(constant):.0%} in the median"
    yield Row("mean error of models not seen before", figure, "< 25 %", max(errors) < 0.25)
    for line in show_rates(rates).splitlines():
        what, _, rate = line.partition("  ")
        yield Row(f"rate of {what.strip()}", rate.strip())


def _network(name: str) -> str:
    return name.removesuffix("-bf16")


def rendezvous(effort: Effort) -> Iterator[Row]:
    """Tensors that pass a rendezvous."""
    found = case("rendezvous", 20 * effort.rounds)
    for name, rates in found.items():
        rate = median(rates)
        what = f"rendezvous, {name.replace('_', ' ')}"
        yield Row(what, f"{rate:,.0f} tensors/s", "≥ 300,000", rate >= 300_000)


def edge(effort: Effort) -> Iterator[Row]:
    """Edges between running partitions, with compiled and with interpreted ops between them."""
    for jit in ("auto", "off"):
        micros = median(case("edge", 20 * effort.rounds, HEADRACE_JIT=jit)["edge"])
        yield Row(f"edge, jit {jit}", f"{micros:.1f} µs", "≤ 30 µs", micros <= 30)


def placing(effort: Effort) -> Iterator[Row]:
    """Placing 10,000 nodes, by each rule there is."""
    for rule in ("first", "cost") if hasattr(settings(), "place") else ("first",):
        seconds = min(case("placing", effort.rounds, HEADRACE_PLACE=rule)["seconds"])
        what = f"placing 10,000 nodes, rule {rule}"
        yield Row(what, f"{seconds:.2f} s", "≤ 2 s", seconds <= 2)


def compiling(effort: Effort) -> Iterator[Row]:
    """Partitioning and compiling a split VGG against the whole, with empty caches."""
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(max(2, effort.rounds // 3)):
        for devices, seconds in times.items():
            with tempfile.TemporaryDirectory(prefix="bench-") as cache:
                settings = {"HEADRACE_CACHE": cache, **effort.settings}
                found = case("compiling", "vgg", devices, effort.clock, **settings)
                seconds.append(found["seconds"])
    whole, halves = min(times[1]), min(times[2])
    figure = f"{halves / whole:.2f}: {whole:.2f} s and {halves:.2f} s"
    yield Row("compiling a split VGG", figure, "≤ 1.2", halves <= 1.2 * whole)


def cached(effort: Effort) -> Iterator[Row]:
    """A cached run of a small step on one device."""
    found = case("cached", 5 * effort.rounds)
    for name, micros in found.items():
        what = f"session.run(x*2+1), session with {name} device{'s' if name != 'one' else ''}"
        yield Row(what, f"{min(micros):.2f} µs at best, {median(micros):.2f} in the median")


def pipeline(effort: Effort) -> Iterator[Row]:
    """Concurrent steps of a split network."""
    found = case("pipeline", effort.rounds)
    single, several = median(found["single"]), median(found["several"])
    figure = f"{several / single:.2f}: {single:.1f} and {several:.1f} steps/s"
    yield Row("pipeline, three steps at once against one", figure)


PARTS: dict[str, Callable[[Effort], Iterator[Row]]] = {
    f.__name__: f
    for f in (rendezvous, edge, placing, cached, pipeline, compiling, split, accuracy, xla)
}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}" if seconds < 0.01 else f"{seconds * 1e3:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=", ".join(PARTS))
    parser.add_argument("--models", default=",".join(MODELS), help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--busy", action="store_true", help="compare processor time, on one thread")
    options = parser.parse_args()
    parts, models = options.only.split(","), options.models.split(",")
    if unknown := sorted({*parts} - {*PARTS} | {*models} - {*MODELS, *LANGUAGE}):
        parser.error(f"not known: {', '.join(unknown)}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(title="Several devices in one process")
    for heading in ("what", "figure", "bar", ""):
        table.add_column(heading)
    effort = Effort(models, options.rounds, options.busy)
    failed = 0
    for name in parts:
        try:
            for row in PARTS[name](effort):
                verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[row.met]
                console.print(f"{row.what}: {row.figure}", highlight=False)
                table.add_row(row.what, row.figure, row.bar, verdict)
        except RuntimeError as error:
            console.print(f"[red]{name} failed[/]", error, highlight=False, markup=True)
            failed += 1
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
