"""Accuracy and time of ways to train on several machines, with stragglers and failures.

    python bench/convergence.py                  everything, with tables and figures
    python bench/convergence.py --only backup    one part: ways, servers, failures, backup
    python bench/convergence.py --only ''        the tables and figures of what has been measured
    python bench/convergence.py --real           by the host's clock, which needs a quiet host

Real processes of this host train a small network on scikit-learn's digits (convergence_worker.py):
parameter servers, and 1 to 16 workers. All ways get the same number of batches that count. Times
are those of a clock on which a batch takes as long as we say, and nothing else takes time
(virtual_clock.py); so a busy host does not matter. With --real, workers really sleep. More workers
are simulated. What was measured is kept in bench/results/convergence.json, so parts can be run one
by one. bench/README.md says more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.console import Console

# Before the first import. A busy host may answer heartbeats late: processes that have died are
# noticed by the end of their connections.
os.environ.update(HEADRACE_NUM_THREADS="1", HEADRACE_JIT="off", HEADRACE_HEARTBEAT_MS="600000")

from chart import Axis, Bar, Series, bars, plot
from convergence_worker import Model, data, run_task
from virtual_clock import ClockServer, RealClock

import headrace as tf
import headrace.cluster
from headrace._src.place.replicas import ReplicaCluster, ReplicaStep, Way, simulate_replicas
from headrace._src.transport.reserve import reserve

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "results" / "convergence.json"
GOOD = 0.90  # the accuracy whose time is reported
OVERSLEPT = 0.03  # a run is repeated if sleeps took longer than asked by this share
BASE = {
    "batch_secs": 0.1,
    "straggles": True,
    "slow": 5.0,
    "batches": 240,
    "rate": 0.2,
    "interval": 10,
    "ps": 1,
    "real": False,
}
WAYS = {
    "synchronous": {"way": "sync"},
    "synchronous, rate of 4": {"way": "sync", "most": 0.8},
    "1 backup worker": {"way": "sync", "backups": 1},
    "repeating": {"way": "reactive", "patience": 2.5},
    "repeating early": {"way": "reactive", "patience": 1.5},
    "all-reduce": {"way": "allreduce"},
    "asynchronous": {"way": "async"},
    "model averaging": {"way": "average"},
}
SHOWN = {  # in the figure of accuracies, with titles
    "synchronous": "synchronous",
    "synchronous, rate of 4": "…, rate of 4 workers",
    "1 backup worker": "1 backup worker",
    "asynchronous": "asynchronous",
    "model averaging": "model averaging",
}
COUNTS = (1, 2, 4, 8, 16)
MORE = (1, 2, 4, 8, 16, 32, 64)
_IDLE = 200  # looks at the processes in a row, in which nothing happens
console = Console(width=120, highlight=False)


class StuckError(Exception):
    """All processes wait for each other. With backup workers, a worker may take two tokens of the
    last update, since one of its batches was late; then another waits for one that nobody makes.
    """


def train(workers: int, limit: float = 900.0, restart: bool = False, **settings) -> dict:
    """Train in processes of their own; return the chief's report with those of all workers.
    restart: start a worker that has died again.
    """
    request = {**BASE, "workers": workers, **settings}
    others = {"elastic": "coordinator"}.get(request["way"], "ps")
    if request["way"] in ("allreduce", "elastic"):
        request["ps"] = int(request["way"] == "elastic")
    held = reserve(workers + request["ps"])
    addresses = [each.address for each in held]
    request["cluster"] = {"worker": addresses[:workers]}
    if request["ps"]:
        request["cluster"][others] = addresses[workers:]
    for each in held:
        each.close()
    fork = multiprocessing.get_context("fork")  # with all imports done
    together = fork.Barrier(workers)
    server = None if request["real"] else ClockServer(fork)
    processes: list[Any] = []

    def start(job: str, index: int, **changes: Any) -> Any:
        answer, question = fork.Pipe(duplex=False)
        task = {**request, "job": job, "index": index, **changes}
        barrier = None if changes else together
        clock = RealClock() if server is None else server.clock(2 if job == "worker" else 0)
        made = fork.Process(target=run_task, args=(task, question, barrier, clock), daemon=True)
        processes.append(made)
        made.start()
        question.close()
        return answer

    for index in range(request["ps"]):
        start(others, index)
    answers = {start("worker", index): index for index in range(workers)}
    ports = {int(address.rpartition(":")[2]) for address in addresses}
    reports, until, idle = [], time.monotonic() + limit, 0
    try:
        while answers and not (idle > _IDLE and 0 not in answers.values()):
            if idle > _IDLE:
                raise StuckError("the chief waits for a token")
            if time.monotonic() > until:
                raise TimeoutError(f"{request} did not end")
            if server is not None:
                idle = 0 if server.advance(processes, ports) else idle + 1
            for answer in multiprocessing.connection.wait(answers, 0.0 if server else 0.1):
                index = answers.pop(answer)
                try:
                    reports.append(answer.recv())
                except EOFError:  # a worker that died
                    if restart:
                        answers[start("worker", index, dies=None, late=1.0)] = index
    finally:
        for process in processes:
            process.kill()
            process.join()
    chief = next(report for report in reports if report["index"] == 0)
    seconds, updates, accuracy = chief["curve"][-1]
    good = [t for t, _, found in chief["curve"] if found >= GOOD]
    (t0, s0, _), (t1, s1, _) = chief["curve"][0], chief["curve"][-1]
    stale = [r["staleness"] for r in reports if "staleness" in r]
    return {
        "workers": workers,
        "seconds": seconds,
        "updates": updates,
        "accuracy": accuracy,
        "good": good[0] if good else None,
        "step": (t1 - t0) / max(1, s1 - s0),
        "curve": chief["curve"],
        "times": chief["times"],
        "staleness": mean(stale) if stale else None,
        "dropped": chief.get("dropped"),
        "repeated": chief.get("repeated"),
        "epochs": chief.get("epochs"),
        "overslept": max(report["overslept"] for report in reports),
    }


def quiet(title: str, seeds: int, workers: int, **settings) -> list[dict]:
    """Train once with each seed. A run by the host's clock is repeated, three times at most, if
    something else on this host delayed the workers' sleeps; the quietest counts.
    """
    found = []
    for seed in range(1, seeds + 1):
        tries: list[dict] = []
        while len(tries) < 4 and not (tries and tries[-1]["overslept"] < OVERSLEPT):
            try:
                tries.append(train(workers, seed=seed, **settings))
            except StuckError as error:
                console.print(f"{title}, {workers} workers, seed {seed}: {error}; again")
                continue
            last = tries[-1]
            late = f", sleeps {last['overslept']:+.1%}" if BASE["real"] else ""
            console.print(
                f"{time.strftime('%H:%M:%S')} {title}, {workers} workers, seed {seed}: "
                f"{last['seconds']:.1f} s, {last['accuracy']:.1%}{late}"
            )
        found.append(min(tries, key=lambda run: run["overslept"]))
    return found


# -- Parts: each returns its runs, by names: the number of workers, and settings -------------------

Runs = dict[str, tuple[int, dict[str, Any]]]


def ways() -> Runs:
    """Every way, with 1 to 16 workers; with one, all are the same but for names."""
    found: Runs = {}
    for name, way in WAYS.items():
        for workers in COUNTS:
            least = 8 if "most" in way else 2
            if workers >= least or name == "synchronous":
                found[f"{name}/{workers}"] = workers, way
    return found


def servers() -> Runs:
    """2 and 4 parameter servers, with 4 workers; `ways` has one."""
    return {
        f"{name}/{count}": (4, {**WAYS[name], "ps": count})
        for name in ("synchronous", "asynchronous")
        for count in (2, 4)
    }


def failures() -> Runs:
    """Worker 3 of 4 is killed in the middle. With plain synchronous training it is started again a
    second later: the others wait for it.
    """
    killed = {"dies": 3, "dies_at": 30}
    found: Runs = {
        name: (4, {**WAYS[name], **killed})
        for name in ("asynchronous", "1 backup worker", "repeating")
    }
    found["synchronous, started again"] = 4, {**WAYS["synchronous"], **killed, "restart": True}
    for commit in (1, 20):
        elastic = {"way": "elastic", "commit": commit, **killed}
        found[f"elastic all-reduce, commit every {commit}"] = 4, elastic
        again = {**elastic, "restart": True}
        found[f"elastic all-reduce, commit every {commit}, started again"] = 4, again
    found["elastic all-reduce, nobody dies"] = 4, {"way": "elastic", "commit": 1}
    return found


def backup() -> Runs:
    """The time of a step with 0 to 2 backup workers of 4 (OSDI'16 Fig. 8), and one worker alone."""
    found: Runs = {"alone": (1, {"way": "sync"})}
    for backups in range(3):
        found[str(backups)] = 4, {"way": "sync", "backups": backups, "batches": 480}
    return found


PARTS = {"backup": backup, "ways": ways, "failures": failures, "servers": servers}


# -- Tables and figures ----------------------------------------------------------------------------


def middle(runs: list[dict], key: str, form: str) -> str:
    """The median of the runs, and the least and the most where they differ."""
    values = [run[key] for run in runs if run[key] is not None]
    if len(values) < len(runs):
        return "–"
    low, here, high = (form.format(f(values)) for f in (min, median, max))
    return here if low == high else f"{here} ({low}–{high})"


def row(runs: list[dict]) -> list[str]:
    notes = []
    stale = mean(run["staleness"] or 0.0 for run in runs)
    if stale and not runs[0]["dropped"]:
        notes.append(f"staleness {stale:.2f}")
    if runs[0]["dropped"]:
        notes.append(f"{median(run['dropped'] for run in runs):.0f} batches late")
    if runs[0]["repeated"]:
        notes.append(f"{median(run['repeated'] for run in runs):.0f} repeated")
    return [
        middle(runs, "seconds", "{:.1f}"),
        str(round(median(run["updates"] for run in runs))),
        middle(runs, "good", "{:.1f}"),
        middle(runs, "accuracy", "{:.1%}"),
        ", ".join(notes),
    ]


def table(title: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    """Print a table as Markdown has it."""
    console.print(f"\n{title}\n", style="bold")
    for cells in (columns, ["---"] * len(columns), *rows):
        console.print("| " + " | ".join(cells) + " |", soft_wrap=True)


FOUND = ("seconds", "updates", f"seconds to {GOOD:.0%}", "accuracy", "notes")


def report(found: dict) -> None:
    """Print the tables of all parts that were measured."""
    for part, first in (("ways", "workers"), ("servers", "parameter servers")):
        if part in found:
            rows = [[*key.split("/"), *row(runs)] for key, runs in found[part].items()]
            if part == "servers" and "ways" in found:
                for at, name in ((0, "synchronous"), (3, "asynchronous")):
                    rows.insert(at, [name, "1", *row(found["ways"][f"{name}/4"])])
            table(f"{part}: {BASE['batches']} batches that count", ("way", first, *FOUND), rows)
    if "failures" in found:
        rows = [[name, *row(runs)] for name, runs in found["failures"].items()]
        table("failures: worker 3 of 4 dies after 30 of its batches", ("way", *FOUND), rows)
    if "backup" in found:
        predicted = predictions(found["backup"])
        rows = []
        for backups in range(3):
            steps = [run["step"] * 1e3 for run in found["backup"][str(backups)]]
            guess = predicted[backups].step_secs * 1e3
            here = mean(steps)
            rows.append(
                [str(backups), f"{here:.0f} ({min(steps):.0f}–{max(steps):.0f})", f"{guess:.0f}"]
                + [f"{guess / here - 1:+.0%}", f"{(4 - backups) / here * 1e3:.1f}"]
            )
        columns = ("backup workers", "ms per step", "predicted", "error", "batches/s that count")
        table("backup workers of 4", columns, rows)
        chosen = headrace.cluster.choose_backups([samples(found["backup"])] * 4).backups
        console.print(f"choose_backups: {chosen}")
        rows = []
        for workers in MORE[3:]:
            plain, best = simulated("synchronous", workers, found), None
            best = headrace.cluster.choose_backups([samples(found["backup"])] * workers)
            rows.append(
                [str(workers), f"{BASE['batches'] / plain:.0f}", str(best.backups)]
                + [f"{best.batches_per_sec:.0f}"]
                + [f"{BASE['batches'] / simulated('asynchronous', workers, found):.0f}"]
            )
        columns = ("workers", "synchronous", "best number of backups", "with them", "asynchronous")
        table("simulated: batches/s that count", columns, rows)


def samples(found: dict) -> list[float]:
    """The times of one worker's batches, after its first ones."""
    return found["alone"][0]["times"][10:]


def predictions(found: dict) -> list[Any]:
    return [headrace.cluster.predict_sync([samples(found)] * 4, backups) for backups in range(3)]


def simulated(name: str, workers: int, found: dict) -> float:
    """The seconds for all batches, from one worker's times."""
    step = ReplicaStep(samples(found["backup"]))
    cluster = ReplicaCluster(workers, network=None)
    if name == "asynchronous":
        return BASE["batches"] / simulate_replicas(step, cluster, steps=300).rate
    backups = WAYS[name].get("backups", 0)
    made = simulate_replicas(step, cluster, Way.SYNCHRONOUS, backups, steps=2000)
    return BASE["batches"] / (workers - backups) / made.rate


def draw(found: dict) -> None:
    """Draw what was measured, and what is predicted."""
    note = f"digits, {BASE['batches']} batches of 100 ms; one of ten takes 500 ms"
    if "ways" in found:
        curves = {
            name: found["ways"][f"{name}/4"][0]["curve"]
            for name in WAYS
            if f"{name}/4" in found["ways"] and name != "repeating early"
        }
        if curves["synchronous"] == curves["all-reduce"]:  # the same updates at the same times
            both = {"synchronous, all-reduce": curves.pop("synchronous")}
            del curves["all-reduce"]
            curves = {**both, **curves}
        longest = max(curve[-1][0] for curve in curves.values())
        picture = plot(
            "Test accuracy while 4 workers train",
            f"{note}; measured, seed 1",
            Axis("seconds", 0, longest, range(0, int(longest) + 1, 2)),
            Axis("test accuracy", 0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1), form="{:.0%}"),
            [Series(name, [(t, a) for t, _, a in curve]) for name, curve in curves.items()],
        )
        write("convergence_curves", picture)
        alone = (1, median(run["accuracy"] for run in found["ways"]["synchronous/1"]))
        series = []
        for name, title in SHOWN.items():
            points = [] if "most" in WAYS[name] else [alone]
            for n in COUNTS:
                runs = found["ways"].get(f"{name}/{n}") if n > 1 else None
                if runs:
                    points.append((n, median(run["accuracy"] for run in runs)))
            series.append(Series(title, points, marks=True))
        picture = plot(
            "Test accuracy after 240 batches, by the number of workers",
            "digits; medians of 3 seeds. The mean of n gradients has n times the rate of one",
            Axis("workers", 1, 16, COUNTS, log=True),
            Axis("test accuracy", 0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1), form="{:.0%}"),
            series,
        )
        write("convergence_accuracy", picture)
    if "ways" in found and "backup" in found:
        series = []
        for number, name in enumerate(("synchronous", "1 backup worker", "asynchronous")):
            line = [(n, simulated(name, n, found)) for n in MORE if n > (number == 1)]
            short = name.removesuffix(" worker")
            series.append(Series(f"{short}, simulated", line, colour=number))
        for number, name in enumerate(("synchronous", "1 backup worker", "asynchronous")):
            points = [
                (n, median(run["seconds"] for run in found["ways"][f"{name}/{n}"]))
                for n in COUNTS
                if f"{name}/{n}" in found["ways"]
            ]
            short = name.removesuffix(" worker")
            series.append(Series(f"{short}, measured", points, False, True, number))
        picture = plot(
            "Time of 240 batches, by the number of workers",
            f"{note}. Points are measured; lines are simulated from one worker's batches",
            Axis("workers", 1, 64, MORE, log=True),
            Axis("seconds", 0.3, 50, (0.5, 1, 2, 5, 10, 20, 50), log=True),
            series,
        )
        write("convergence_workers", picture)
    if "backup" in found:
        made = []
        for backups, guess in enumerate(predictions(found["backup"])):
            steps = [run["step"] * 1e3 for run in found["backup"][str(backups)]]
            made.append(
                Bar(
                    f"{backups} backups" if backups != 1 else "1 backup",
                    *(mean(steps), min(steps), max(steps), guess.step_secs * 1e3),
                )
            )
        picture = bars(
            "Time of a synchronous step with backup workers among 4",
            "digits, batches of 100 ms; one of ten takes 500 ms (compare OSDI'16, figure 8)",
            Axis("ms per step", 0, 260, range(0, 251, 50), form="{:.0f}"),
            made,
            ("measured", "predicted, one worker"),
        )
        write("convergence_backups", picture)


def write(name: str, picture: str) -> None:
    path = DOCS / f"{name}.svg"
    path.write_text(picture)
    console.print(f"drawn: docs/{path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each setting")
    parser.add_argument("--again", action="store_true", help="measure what was measured before")
    parser.add_argument("--real", action="store_true", help="sleep, by the host's clock")
    options = parser.parse_args()
    BASE["real"] = options.real
    path = RESULTS.with_stem("convergence_real") if options.real else RESULTS
    data()
    with tf.Graph().as_default():  # imports what all tasks need
        tf.train.GradientDescentOptimizer(0.1).minimize(Model(None, abs).loss)
    found = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    for part in filter(None, options.only.split(",")):
        for key, (workers, settings) in PARTS[part]().items():
            if options.again or key not in found.get(part, {}):
                runs = quiet(f"{part}: {key}", options.seeds, workers, **settings)
                found.setdefault(part, {})[key] = runs
                path.write_text(json.dumps(found))
    report(found)
    if not options.real:
        draw(found)


if __name__ == "__main__":
    main()
