"""A training step of each workload, side by side with PyTorch, TensorFlow and JAX.

    python bench/training.py                         all of them
    python bench/training.py --only vgg,mlp          some
    python bench/training.py --only mlp --peers torch,jax --modes eager,jit --steps 20
    python bench/training.py --isa avx2 --strict     everybody with AVX2; without Winograd too
    python bench/training.py --peers "" --mixed      Headrace's mixed precision against its float32

bench/README.md says what is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path

import contenders
from isa import NARROWED, narrow
from models import MODELS, Model
from picture import Bar, draw
from race import HEADRACE, PYTHONS, Track, peers, python_of, race
from rich.console import Console
from rich.markup import escape
from rich.table import Table

HERE = Path(__file__).resolve().parent
STRICT, MIXED = f"{HEADRACE} strict", f"{HEADRACE} mixed"
# How far the first losses may lie apart for the models to count as the same.
SAME_LOSS = {False: 1e-4, True: 2e-2}


def ratio(model: Model, tracks: list[Track]) -> tuple[float, str]:
    """The best peer's best time over Headrace's, and who that peer is."""
    ours, *others = tracks
    counted = [t for t in others if t.seconds and _is_peer(model, t)]
    if not counted or not ours.seconds:
        return math.nan, ""
    best = min(counted, key=lambda t: t.best)
    return best.best / ours.best, best.label


def paired(model: Model, tracks: list[Track]) -> list[float]:
    """The quartiles of a peer's time over Headrace's in the same round, for the peer with the least
    median; none without peers.
    """
    ours, *others = tracks
    found = [t.ratios(ours) for t in others if _is_peer(model, t)]
    quartiles = [[r[len(r) * i // 4] for i in (1, 2, 3)] for r in found if r]
    return min(quartiles, key=lambda q: q[1], default=[])


def own(tracks: list[Track]) -> str:
    """Headrace's other ways, each with its time over Headrace's in the same round."""
    ours, *others = tracks
    texts = []
    for t in others:
        if t.label.startswith(HEADRACE) and (r := t.ratios(ours)):
            low, middle, high = (r[len(r) * i // 4] for i in (1, 2, 3))
            texts.append(f"; {t.label} / {HEADRACE} {middle:.3f} ({low:.3f} to {high:.3f})")
    return "".join(texts)


def _is_peer(model: Model, track: Track) -> bool:
    if track.label.startswith(HEADRACE):
        return False
    return not model.against or track.label.startswith(model.against)


def disagreement(model: Model, tracks: list[Track]) -> str:
    """Who starts from another loss than Headrace does: then it is not the same model."""
    ours = tracks[0].losses[:1]
    wrong = []
    for t in tracks[1:]:
        bound = SAME_LOSS[model.bfloat16 or t.label == MIXED]
        if ours and t.losses and not math.isclose(t.losses[0], ours[0], rel_tol=bound):
            wrong.append(
                f"{t.label} starts from loss {t.losses[0]:.6g}, Headrace from {ours[0]:.6g}"
            )
    return "; ".join(wrong)


def gemm_peak() -> float:
    """GF/s of a large matrix product, in the best of Headrace, NumPy and PyTorch."""
    runs = [("headrace", HEADRACE), ("numpy", HEADRACE)]
    if os.environ.get(PYTHONS["torch"]):
        runs.append(("torch", "torch"))
    return max(
        float(subprocess.check_output([python_of(f), HERE / "gemm_peak.py", library], text=True))
        for library, f in runs
    )


# -- What is shown --------------------------------------------------------------------------------


def time_text(track: Track | None) -> str:
    """Best and median in milliseconds."""
    if track is None:
        return "–"
    if not track.seconds:
        return "failed"
    digits = 0 if track.best >= 0.1 else 2 if track.best >= 1e-3 else 3
    return f"{track.best * 1e3:.{digits}f} ({track.median * 1e3:.{digits}f})"


def speed_text(model: Model, ours: Track, peak: float) -> str:
    """Achieved GF/s and its share of the peak; the rate of ops where there is no arithmetic."""
    if not ours.seconds:
        return "–"
    if not ours.flops:
        return f"{model.count / ours.best / 1e6:.1f} M ops/s"
    speed = ours.flops / ours.best / 1e9
    return f"{speed:.0f} ({speed / peak:.0%})"


def columns(results: dict[str, list[Track]]) -> list[str]:
    """The labels of all peers that took part, in a fixed order."""
    present = {t.label for tracks in results.values() for t in tracks}
    known = [f"{f} {m}".strip() for f, modes in contenders.MODES.items() for m in modes]
    return [label for label in known if label in present and label != HEADRACE]


def by_label(tracks: list[Track], labels: list[str]) -> list[Track | None]:
    found = {t.label: t for t in tracks}
    return [found.get(label) for label in labels]


def times_table(results: dict[str, list[Track]], peak: float) -> Table:
    labels = columns(results)
    table = Table(title=f"ms per training step, best (median); GEMM peak {peak:.0f} GF/s")
    table.add_column("work")
    for heading in ("Headrace", *labels, "ratio", "target", "GF/s (of peak)"):
        table.add_column(heading, justify="right")
    for name, tracks in results.items():
        model, ours = MODELS[name], tracks[0]
        value, rival = ratio(model, tracks)
        shown = "–"
        if rival:
            colour = "green" if value >= model.target else "red"
            shown = f"[{colour}]{value:.2f}[/] {rival}"
        times = [time_text(t) for t in by_label(tracks, labels)]
        target, speed = f"≥ {model.target:g}", speed_text(model, ours, peak)
        table.add_row(model.title, time_text(ours), *times, shown, target, speed)
    return table


def costs_table(results: dict[str, list[Track]]) -> Table:
    labels = columns(results)
    table = Table(title="peak resident memory in MB; seconds of the first step")
    table.add_column("work")
    for heading in ("Headrace", *labels):
        table.add_column(heading, justify="right")
    for name, tracks in results.items():
        ours = tracks[0]
        cells = [f"{ours.peak / 1e6:.0f}; cold {ours.cold:.1f}, warm {ours.first:.1f}"]
        for t in by_label(tracks, labels):
            cells.append(f"{t.peak / 1e6:.0f}; {t.first:.1f}" if t and t.seconds else "–")
        table.add_row(MODELS[name].title, *cells)
    return table


def report(console: Console, results: dict[str, list[Track]], peak: float, out: Path) -> None:
    """Print the tables; write the picture and the figures."""
    versions = {t.version for tracks in results.values() for t in tracks if t.version}
    console.print("\n" + ", ".join(sorted(versions)) + "; 2 threads each", highlight=False)
    console.print(times_table(results, peak))
    console.print(costs_table(results))
    bars = [
        Bar(MODELS[n].title, *ratio(MODELS[n], t), MODELS[n].target) for n, t in results.items()
    ]
    record = {n: [asdict(t) for t in tracks] for n, tracks in results.items()}
    out.mkdir(parents=True, exist_ok=True)
    (out / "training.svg").write_text(draw(bars, "Training step"))
    (out / "training.json").write_text(json.dumps({"peak": peak, "works": record}))
    console.print(f"wrote {out / 'training.svg'} and training.json", highlight=False)


def arguments() -> argparse.Namespace:
    """What is asked for, lists as lists and names checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ways = [mode for known in contenders.MODES.values() for mode in known if mode]

    def names(known: Collection[str]) -> Callable[[str], list[str]]:
        def split(text: str) -> list[str]:
            found = [name for name in text.split(",") if name]
            if unknown := sorted(set(found) - set(known)):
                raise argparse.ArgumentTypeError(f"not known: {', '.join(unknown)}")
            return found

        return split

    parser.add_argument(
        "--only", type=names(MODELS), default=list(MODELS), help=f"works: {', '.join(MODELS)}"
    )
    parser.add_argument(
        "--peers", type=names(PYTHONS), default=list(PYTHONS), help=", ".join(PYTHONS)
    )
    parser.add_argument("--modes", type=names(ways), default=[], help=", ".join(ways))
    parser.add_argument("--steps", type=int, default=5, help="rounds; a short step is many times")
    parser.add_argument("--memory", type=float, default=20, help="GB that may be in use at once")
    parser.add_argument("--isa", choices=NARROWED, default="host", help="everybody's instructions")
    parser.add_argument("--strict", action="store_true", help="Headrace in strict accuracy too")
    parser.add_argument("--mixed", action="store_true", help="Headrace in mixed precision too")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where files go")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 200)
    for framework in options.peers:
        if not os.environ.get(PYTHONS[framework]):
            console.print(f"{framework}: set {PYTHONS[framework]} to its Python to compare")
    narrow(options.isa)
    peak = gemm_peak()
    results: dict[str, list[Track]] = {}
    faults = []
    for name in options.only:
        model = MODELS[name]
        labels = [STRICT] * options.strict + [MIXED] * options.mixed
        labels += peers(model, options.peers, options.modes)
        tracks = results[name] = race(model, labels, options.steps, options.memory * 1e9)
        value, rival = ratio(model, tracks)
        times = ", ".join(f"{t.label} {time_text(t)}" for t in tracks)
        also = f", strict {ratio(model, tracks[1:])[0]:.2f}" if options.strict else ""
        also += own(tracks)
        if quartiles := paired(model, tracks):
            also += "; by rounds {1:.2f} ({0:.2f} to {2:.2f})".format(*quartiles)
        console.print(f"{model.title}: {times}; ratio {value:.2f} {rival}{also}", highlight=False)
        faults += [f"{name}: {t.label}: {t.error}" for t in tracks if t.error]
        if text := disagreement(model, tracks):
            faults.append(f"{name}: {text}")
    peak = max(peak, gemm_peak())  # again, in case that the machine was busy
    report(console, results, peak, options.out)
    for fault in faults:
        console.print(f"[red]{escape(fault)}[/]", highlight=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
