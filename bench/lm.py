"""The OSDI paper's language model in small: words per second with a full and a sampled softmax.

    python bench/lm.py                                      against PyTorch and TensorFlow 2
    python bench/lm.py --peers torch --modes eager --rounds 20

bench/README.md says what is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path

import contenders
from compare import start, table
from lm_cases import CASES
from models import LANGUAGE
from models.language import ROWS, SAMPLED, SIZE, STEPS, WORDS
from race import HEADRACE, PYTHONS, Track, peers, race
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from training import disagreement

HERE = Path(__file__).resolve().parent
FULL, SAMPLED_WORK = LANGUAGE
FRAMEWORKS = ("torch", "tf")
TARGET = 10.0  # how many times as fast the sampled softmax is to be


def speed(work: str, track: Track | None) -> float:
    """Words per second, at best."""
    return LANGUAGE[work].words / track.best if track and track.seconds else math.nan


def words_table(results: dict[str, list[Track]]) -> Table:
    found = {work: {t.label: t for t in tracks} for work, tracks in results.items()}
    labels = dict.fromkeys(label for tracks in found.values() for label in tracks)
    title = f"words per second, best; LSTM-{SIZE}, {WORDS:,} words, batch {ROWS}, {STEPS} steps"
    shown = Table(title=title)
    for heading in ("", "full softmax", f"{SAMPLED} samples", "sampled / full"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for label in labels:
        full, sampled = (speed(work, found[work].get(label)) for work in (FULL, SAMPLED_WORK))
        ratio = f"{sampled / full:.1f}"
        if label == HEADRACE:
            colour = "green" if sampled / full >= TARGET else "red"
            ratio = f"[{colour}]{ratio}[/] (target {TARGET:g})"
        shown.add_row(label, f"{full:,.0f}", f"{sampled:,.0f}", ratio)
    for work in results:
        ours, *others = (speed(work, t) for t in results[work])
        best = max((s for s in others if not math.isnan(s)), default=math.nan)
        shown.caption = f"{shown.caption or ''}{work}: {ours / best:.2f} times the best peer  "
    return shown


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ways = [mode for f in FRAMEWORKS for mode in contenders.MODES[f]]
    parser.add_argument("--peers", default=",".join(FRAMEWORKS), help=",".join(FRAMEWORKS))
    parser.add_argument("--modes", default="", help=",".join(ways))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--memory", type=float, default=20, help="GB that may be in use at once")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where files go")
    found = parser.parse_args()
    found.peers = [f for f in found.peers.split(",") if f]
    found.modes = [m for m in found.modes.split(",") if m]
    if unknown := {*found.peers, *found.modes} - {*FRAMEWORKS, *ways}:
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    return found


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    for framework in options.peers:
        if not os.environ.get(PYTHONS[framework]):
            console.print(f"{framework}: set {PYTHONS[framework]} to its Python to compare")
    results, faults = {}, []
    for name, model in LANGUAGE.items():
        labels = peers(model, options.peers, options.modes)
        tracks = results[name] = race(model, labels, options.rounds, options.memory * 1e9)
        times = ", ".join(f"{t.label} {t.best * 1e3:.1f} ({t.median * 1e3:.1f})" for t in tracks)
        console.print(f"{model.title}: ms per step, best (median): {times}", highlight=False)
        faults += [f"{name}: {t.label}: {t.error}" for t in tracks if t.error]
        if text := disagreement(model, tracks):
            faults.append(f"{name}: {text}")
    console.print(words_table(results))
    table(start("lm_cases", numpy=False), list(CASES))
    record = {n: [asdict(t) for t in tracks] for n, tracks in results.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "lm.json").write_text(json.dumps(record))
    for fault in faults:
        console.print(f"[red]{escape(fault)}[/]", highlight=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
