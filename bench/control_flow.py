"""Loops, recurrent networks and queues, side by side with TensorFlow 1.15 and 2.

    python bench/control_flow.py                            all of them
    python bench/control_flow.py --only loop,queue-8        some
    python bench/control_flow.py --peers "TF 2 v1" --rounds 20

bench/README.md says what is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from control_flow_cases import ITEMS, ITERATIONS, MANY_ITEMS
from picture import Bar, draw
from process import Process, Stopped
from race import SHARE, Track
from rich.console import Console
from rich.markup import escape
from rich.table import Table

HERE = Path(__file__).resolve().parent
HEADRACE = "headrace"
# Who competes: framework, how TensorFlow 2 builds its loops, the variable that names its Python.
PEERS = {
    "TF 1.15": ("tensorflow", "v1", "BENCH_TF115_PYTHON"),
    "TF 2 v1": ("tensorflow", "v1", "BENCH_TF2_PYTHON"),
    "TF 2 v2": ("tensorflow", "v2", "BENCH_TF2_PYTHON"),
}
# The targets are against the faster of these.
RIVALS = ("TF 2 v1", "TF 2 v2")
# What all must return alike: the first calls of a case, which also warm it up.
FIRST, SAME = 3, 1e-4


@dataclass(frozen=True)
class Work:
    """A case: `units` is how many of a `unit` a call does; `target` is the ratio to reach."""

    title: str
    unit: str
    units: int
    target: float
    loops: bool = True


WORKS = {
    "loop": Work("while_loop: i < n, i + 1", "iteration", ITERATIONS, 5),
    "lstm": Work("LSTM in a while_loop, forward", "run", 1, 1.5),
    "lstm-train": Work("LSTM in a while_loop, training", "run", 1, 1.5),
    "rnn": Work("LSTM by dynamic_rnn, forward", "run", 1, 1.5),
    "rnn-train": Work("LSTM by dynamic_rnn, training", "run", 1, 1.5),
    "queue-1": Work("queue, 1 producer", "item", ITEMS, 1, loops=False),
    "queue-8": Work("queue, 8 producers", "item", ITEMS, 1, loops=False),
    "queue-many-1": Work("queue by 100, 1 producer", "item", MANY_ITEMS, 1, loops=False),
    "queue-many-8": Work("queue by 100, 8 producers", "item", MANY_ITEMS, 1, loops=False),
}


class Contender:
    """A worker process; a `Track` per case."""

    def __init__(self, label: str, python: str, framework: str, loops: str) -> None:
        self.label = label
        self.tracks: dict[str, Track] = {}
        script = str(HERE / "control_flow_worker.py")
        self._process = Process([python, script, framework, loops], {}, patience=120)
        try:
            self.version = json.loads(self._process.read())["version"]
        except Stopped as stop:
            raise SystemExit(f"{label}: {stop}; is {python} right?") from None

    def run(self, case: str, count: int) -> list[float]:
        """Call a case; seconds per unit, none after an error."""
        track = self.tracks.setdefault(case, Track(self.label, self.version))
        if track.error:
            return []
        answer: dict[str, Any]
        try:
            answer = json.loads(self._process.ask(f"{case} {count}"))
        except Stopped as stop:
            answer = {"error": str(stop)}
        track.error = answer.get("error", "")
        track.losses += answer.get("values", [])[: FIRST - len(track.losses)]
        return [s / WORKS[case].units for s in answer.get("seconds", [])]

    def warm(self, case: str) -> None:
        self.run(case, FIRST)

    def round(self, case: str) -> None:
        """Take a share of calls."""
        track = self.tracks[case]
        best = track.best * WORKS[case].units if track.seconds else SHARE
        track.seconds += self.run(case, max(1, min(1000, int(SHARE / best))))

    def close(self) -> None:
        self._process.close()


def ratio(work: Work, tracks: dict[str, Track]) -> tuple[float, str]:
    """The best rival's best time over Headrace's, and who that is."""
    rivals = [tracks[label] for label in RIVALS if label in tracks and tracks[label].seconds]
    if not rivals or not tracks[HEADRACE].seconds:
        return math.nan, ""
    best = min(rivals, key=lambda t: t.best)
    return best.best / tracks[HEADRACE].best, best.label


def disagreement(tracks: dict[str, Track]) -> str:
    """Who returns other numbers than Headrace does: then it is not the same program."""
    ours = tracks[HEADRACE].losses
    wrong = [
        f"{label} returns {theirs:.8g}, Headrace {mine:.8g}"
        for label, track in tracks.items()
        for mine, theirs in zip(ours, track.losses)
        if not math.isclose(mine, theirs, rel_tol=SAME)
    ]
    return "; ".join(wrong)


# -- What is shown --------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def time_text(track: Track | None) -> str:
    """Best and median."""
    if track is None:
        return "–"
    return f"{duration(track.best)} ({duration(track.median)})" if track.seconds else "failed"


def times_table(results: dict[str, dict[str, Track]]) -> Table:
    labels = [p for p in PEERS if any(p in tracks for tracks in results.values())]
    table = Table(title="time per unit, best (median); peer's best / Headrace's best")
    table.add_column("work")
    for heading in ("a second", HEADRACE, *(x for p in labels for x in (p, "ratio")), "target"):
        table.add_column(heading, justify="right")
    for name, tracks in results.items():
        work, ours = WORKS[name], tracks[HEADRACE]
        cells = []
        for label in labels:
            track = tracks.get(label)
            cells.append(time_text(track))
            value = track.best / ours.best if track else math.nan
            colour = "green" if value >= work.target else "red"
            cells.append(f"[{colour}]{value:.2f}[/]" if value > 0 else "–")
        rate = f"{1 / ours.best:,.0f} {work.unit}s"
        table.add_row(work.title, rate, time_text(ours), *cells, f"≥ {work.target:g}")
    return table


def report(console: Console, results: dict[str, dict[str, Track]], out: Path) -> None:
    """Print the table; write the picture and the figures."""
    versions = {t.version for tracks in results.values() for t in tracks.values()}
    console.print("\n" + ", ".join(sorted(versions)) + "; 2 threads each", highlight=False)
    console.print(times_table(results))
    bars = [Bar(WORKS[n].title, *ratio(WORKS[n], t), WORKS[n].target) for n, t in results.items()]
    record = {n: [asdict(t) for t in tracks.values()] for n, tracks in results.items()}
    out.mkdir(parents=True, exist_ok=True)
    (out / "control_flow.svg").write_text(draw(bars, "Control flow"))
    (out / "control_flow.json").write_text(json.dumps(record))
    console.print(f"wrote {out / 'control_flow.svg'} and control_flow.json", highlight=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Loops, recurrent networks and queues.")

    def names(known: dict) -> dict:
        def split(text: str) -> list[str]:
            if unknown := sorted(set(text.split(",")) - set(known)):
                raise argparse.ArgumentTypeError(f"not known: {', '.join(unknown)}")
            return text.split(",")

        return {"type": split, "default": list(known), "help": ", ".join(known)}

    parser.add_argument("--only", **names(WORKS))
    parser.add_argument("--peers", **names(PEERS))
    parser.add_argument("--rounds", type=int, default=5, help="0.3 s each for each contender")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where files go")
    return parser.parse_args()


def contenders(console: Console, peers: list[str]) -> list[Contender]:
    """Headrace, and the peers whose Python is named."""
    found = [Contender(HEADRACE, sys.executable, HEADRACE, "v1")]
    for label in peers:
        framework, loops, variable = PEERS[label]
        if python := os.environ.get(variable):
            found.append(Contender(label, python, framework, loops))
        else:
            console.print(f"{label}: set {variable} to its Python to compare")
    return found


def race(case: str, group: list[Contender], rounds: int) -> dict[str, Track]:
    """Run a case in turns; Headrace's track comes first."""
    for contender in group:
        contender.warm(case)
    for _ in range(rounds):
        for contender in group:
            contender.round(case)
    return {c.label: c.tracks[case] for c in group}


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 200)
    everyone = contenders(console, options.peers)
    results, faults = {}, []
    for case in options.only:
        # Loops are what the two ways of TensorFlow 2 differ in.
        group = [c for c in everyone if WORKS[case].loops or c.label != "TF 2 v2"]
        tracks = results[case] = race(case, group, options.rounds)
        times = ", ".join(f"{label} {time_text(t)}" for label, t in tracks.items())
        console.print(f"{WORKS[case].title}: {times}", highlight=False)
        faults += [f"{case}: {t.label}: {t.error}" for t in tracks.values() if t.error]
        if text := disagreement(tracks):
            faults.append(f"{case}: {text}")
    for contender in everyone:
        contender.close()
    report(console, results, options.out)
    for fault in faults:
        console.print(f"[red]{escape(fault)}[/]", highlight=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
