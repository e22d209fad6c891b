"""Predict data-parallel training, and check it: asynchronous workers with one parameter server.

    python bench/scaling.py                     measure one worker, predict 2 and 4, measure them
    python bench/scaling.py --extrapolate       measure nothing: the papers' figures beside ours
    python bench/scaling.py --draw              the same as docs/scaling_*.svg

A model that is predicted as *unseen* takes part in no calibration but for its own step in one
process, without a cluster: what a step costs on top of that is fitted to the other models.
bench/README.md says more.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import numpy as np
from chart import Axis, Bar, Series, bars, plot
from process import Process
from rich.console import Console
from rich.table import Table

from headrace._src.devices.device import LinkCost
from headrace._src.devices.target import usable_cores
from headrace._src.place.replicas import (
    TEN_GIGABIT,
    ReplicaCluster,
    ReplicaStep,
    Way,
    simulate_replicas,
)
from headrace._src.transport.reserve import reserve

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
WORKER = str(HERE / "scaling_worker.py")
MODELS = ("mlp", "deep", "wide", "conv")
COUNTS = (1, 2, 4)


@dataclass(frozen=True)
class Measured:
    """Steps per second of all workers; processor seconds of a step at the worker and the server."""

    rate: float
    worker: float
    server: float
    size: int


def alone(model: str, seconds: float) -> tuple[float, int]:
    """Return the least seconds of a step in one process, and the bytes of the variables."""
    process = Process([sys.executable, WORKER, model], {"HEADRACE_NUM_THREADS": "1"}, 120)
    try:
        process.read()
        found = [json.loads(process.ask(str(seconds / 4))) for _ in range(4)]
    finally:
        process.close()
    return min(f["took"] / f["steps"] for f in found), found[0]["size"]


def together(model: str, count: int, seconds: float, rounds: int = 3) -> Measured:
    """Train in a cluster of processes; return the best round."""
    held = reserve(count + 1)
    addresses = [each.address for each in held]
    cluster = json.dumps({"ps": addresses[:1], "worker": addresses[1:]})
    tasks = [("ps", 0), *(("worker", index) for index in range(count))]
    settings = {"HEADRACE_NUM_THREADS": "1"}
    made = [
        Process([sys.executable, WORKER, model, cluster, job, str(index)], settings, 120)
        for job, index in tasks
    ]
    found = []
    try:
        for process in made:
            process.read()
        ps, *workers = made
        with ThreadPoolExecutor(count) as pool:
            for _ in range(rounds):
                ps.ask("")
                answers = list(pool.map(lambda w: json.loads(w.ask(str(seconds))), workers))
                used = json.loads(ps.ask(""))["used"]
                steps = sum(a["steps"] for a in answers)
                found.append(
                    Measured(
                        sum(a["steps"] / a["took"] for a in answers),
                        sum(a["used"] for a in answers) / steps,
                        used / steps,
                        answers[0]["size"],
                    )
                )
    finally:
        for process in reversed(made):
            process.close()
        for each in held:
            each.close()
    return max(found, key=lambda each: each.rate)


def predicted(step: ReplicaStep, wait: float, count: int) -> float:
    """Return the steps per second of all workers on this host."""
    network = LinkCost(wait / 4, float("inf"))
    cluster = ReplicaCluster(count, 1, network, usable_cores())
    return simulate_replicas(step, cluster, steps=100).rate


def step_of(worker: float, server: float) -> ReplicaStep:
    """A step with these processor times; each of its two requests takes half of the server's."""
    return ReplicaStep([worker], 0.0, 0.0, request=server / 2)


def fitted(sizes: list[int], values: list[float]) -> np.ndarray:
    """A constant and a cost per byte, both at least 0, by least squares of relative errors."""
    rows = np.stack([np.ones(len(sizes)), np.asarray(sizes, float)], 1)
    weights = 1 / np.maximum(np.asarray(values), 1e-6)[:, None]
    found = np.linalg.lstsq(rows * weights, np.ones(len(sizes)), rcond=None)[0]
    if found.min() < 0:
        found = np.array([0.0, geometric_mean(v / s for v, s in zip(values, sizes, strict=True))])
    return found


def check(seconds: float, console: Console) -> None:
    """Measure, predict and compare."""
    own = {model: alone(model, seconds) for model in MODELS}
    real = {m: {n: together(m, n, seconds) for n in COUNTS} for m in MODELS}
    table = Table(box=None, pad_edge=False)
    titles = (
        "workers",
        "steps/s",
        "from 1 worker",
        "error",
        "unseen",
        "error",
        "constant",
        "error",
    )
    for title in ("model", *titles):
        table.add_column(title, justify="left" if title == "model" else "right")
    errors: dict[str, list[float]] = {"seen": [], "unseen": [], "constant": []}
    for model in MODELS:
        one = real[model][1]
        wait = max(0.0, 1 / one.rate - one.worker - one.server)
        others = [m for m in MODELS if m != model]
        sizes = [own[m][1] for m in others]
        extra = fitted(sizes, [max(real[m][1].worker - own[m][0], 1e-6) for m in others])
        served = fitted(sizes, [real[m][1].server for m in others])
        waits = [
            max(0.0, 1 / real[m][1].rate - real[m][1].worker - real[m][1].server) for m in others
        ]
        about = np.array([1.0, own[model][1]])
        unseen = step_of(own[model][0] + float(about @ extra), float(about @ served))
        for n in COUNTS:
            found = real[model][n].rate
            constant = geometric_mean(real[m][n].rate for m in others)
            guesses = {
                "seen": predicted(step_of(one.worker, one.server), wait, n),
                "unseen": predicted(unseen, sum(waits) / len(waits), n),
                "constant": constant,
            }
            cells = []
            for kind, guess in guesses.items():
                error = guess / found - 1
                if n > 1 or kind == "unseen":
                    errors[kind].append(abs(error))
                cells += [f"{guess:.0f}", f"{error:+.0%}"]
            table.add_row(model, str(n), f"{found:.0f}", *cells)
    console.print(table)
    for kind, values in errors.items():
        console.print(f"{kind}: mean error {np.mean(values):.0%}, at most {np.max(values):.0%}")


PAPER = {  # OSDI'16, Figure 6: median milliseconds of a null step with 16 parameter servers
    "scalar": (0.0, {1: 1.8, 100: 8.8}),
    "dense 100 MB": (100e6, {1: 147.0, 100: 613.0}),
    "dense 1 GB": (1e9, {1: 1010.0, 100: 7160.0}),
}


NULL = (1, 25, 50, 100, 200)  # workers
INCEPTION = (25, 50, 100, 200)
BACKUPS = range(6)
# OSDI'16, Figure 8: for the resources used, 3 backup workers beside 50 are best, by 9.5 %; a step
# with 4 is shortest.
PAPER_BACKUPS = {3: 1 / (1.095 * 53 / 50)}


def inception() -> ReplicaStep:
    """A step of about a second with 95 MB of parameters."""
    draws = np.random.RandomState(1).lognormal(0.0, 0.12, 400).tolist()
    return ReplicaStep(draws, 95e6, 95e6, request=20e-6, per_byte=1e-10)


def null_steps(size: float) -> dict[int, float]:
    """The milliseconds of a step that only reads parameters, by the number of workers."""
    step = ReplicaStep([0.0], size, 0.0, request=20e-6)
    return {
        n: 1e3
        * simulate_replicas(
            step, ReplicaCluster(n, 16, TEN_GIGABIT), Way.SYNCHRONOUS, steps=8
        ).median
        for n in NULL
    }


def inception_rates() -> dict[int, tuple[float, float]]:
    """Steps of single workers per second, asynchronous and synchronous."""
    found = {}
    for n in INCEPTION:
        cluster = ReplicaCluster(n, 17, TEN_GIGABIT)
        rates = [
            simulate_replicas(inception(), cluster, way, steps=8).rate
            for way in (Way.ASYNCHRONOUS, Way.SYNCHRONOUS)
        ]
        found[n] = rates[0], rates[1] * n
    return found


def backup_steps() -> dict[int, float]:
    """The seconds of a synchronous step of 50 workers, by the number of backups beside them."""
    return {
        b: simulate_replicas(
            inception(), ReplicaCluster(50 + b, 17, TEN_GIGABIT), Way.SYNCHRONOUS, b, steps=60
        ).median
        for b in BACKUPS
    }


def extrapolate(console: Console) -> None:
    """Print predictions for clusters that we do not have."""
    console.print("Null steps, 16 parameter servers, 10-gigabit Ethernet (extrapolated), ms:")
    table = Table(box=None, pad_edge=False)
    for title in ("", "workers", "model", "OSDI'16"):
        table.add_column(title, justify="left" if not title else "right")
    for name, (size, paper) in PAPER.items():
        for n, took in null_steps(size).items():
            table.add_row(name, str(n), f"{took:.3g}", f"{paper[n]:g}" if n in paper else "")
    console.print(table)
    console.print(
        "\nInception-v3 as in Figure 7 (a step of 1 s, 95 MB, 17 parameter servers), steps/s:"
    )
    table = Table(box=None, pad_edge=False)
    for title in ("workers", "asynchronous", "synchronous"):
        table.add_column(title, justify="right")
    for n, rates in inception_rates().items():
        table.add_row(str(n), *(f"{rate:.1f}" for rate in rates))
    console.print(table)
    console.print("\n50 workers and backups, as in Figure 8: seconds of a synchronous step:")
    table = Table(box=None, pad_edge=False)
    for title in ("backups", "step", "of that without", "speed-up for the resources"):
        table.add_column(title, justify="right")
    found = backup_steps()
    for b, took in found.items():
        speed = found[0] / took * 50 / (50 + b)
        table.add_row(str(b), f"{took:.3f}", f"{took / found[0]:.2f}", f"{speed:.3f}")
    console.print(table)
    console.print("\n10,000 workers, 500 parameter servers:")
    many = simulate_replicas(inception(), ReplicaCluster(10_000, 500, TEN_GIGABIT), steps=3)
    busy = many.busy[many.bottleneck]
    console.print(f"{many.rate:.0f} steps/s; {many.bottleneck} are busy for {busy:.0%}")


def draw(console: Console) -> None:
    """Draw the extrapolations beside what the paper says."""
    series = []
    for number, (name, (size, paper)) in enumerate(PAPER.items()):
        series.append(Series(f"{name}, model", list(null_steps(size).items()), colour=number))
        series.append(Series(f"{name}, paper", list(paper.items()), False, True, number))
    pictures = {
        "null_steps": plot(
            "A null step with 16 parameter servers (extrapolated)",
            "every worker reads all parameters; 10-gigabit Ethernet; points: OSDI'16, figure 6",
            Axis("workers", 1, 200, NULL, log=True),
            Axis("ms", 0.1, 20_000, (0.1, 1, 10, 100, 1000, 10_000), log=True, form="{:,g}"),
            series,
        )
    }
    rates = inception_rates()
    pictures["inception"] = plot(
        "Training like Inception-v3 with 17 parameter servers (extrapolated)",
        "a step of 1 s, log-normal with sigma 0.12; 95 MB; the setting of OSDI'16, figure 7",
        Axis("workers", 0, 200, (0, *INCEPTION)),
        Axis("steps of single workers per second", 0, 200, range(0, 201, 50)),
        [
            Series("linear", [(0, 0), (200, 200)], colour=5),
            Series("asynchronous", [(n, r[0]) for n, r in rates.items()], True, True, 0),
            Series("synchronous", [(n, r[1]) for n, r in rates.items()], True, True, 1),
        ],
    )
    found = backup_steps()
    given = [
        Bar(
            f"{b} backups" if b != 1 else "1 backup", found[b] / found[0], mark=PAPER_BACKUPS.get(b)
        )
        for b in BACKUPS
    ]
    pictures["backups"] = bars(
        "A synchronous step of 50 workers, by the number of backup workers (extrapolated)",
        "time, relative to that without backups; the setting of OSDI'16, figure 8",
        Axis("step time", 0, 1.1, (0, 0.25, 0.5, 0.75, 1), form="{:.2f}"),
        given,
        ("model", "paper (3 backups)"),
    )
    for name, picture in pictures.items():
        (DOCS / f"scaling_{name}.svg").write_text(picture)
        console.print(f"drawn: docs/scaling_{name}.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="of one round")
    parser.add_argument("--extrapolate", action="store_true")
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    console = Console(width=140)
    if options.draw:
        draw(console)
        return
    if not options.extrapolate:
        check(options.seconds, console)
    extrapolate(console)


if __name__ == "__main__":
    main()
