"""A null training step across processes, against TensorFlow's distributed runtime.

    python bench/cluster.py                             everything
    python bench/cluster.py --quick                     one worker, little memory, few rounds
    python bench/cluster.py --only scalar,faults --workers 1,2

One parameter server, and workers that fetch its parameters and send updates. Each framework's
cluster stays alive while the two take turns. bench/README.md says more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from process import Process, Stopped
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
WORKER = str(HERE / "cluster_worker.py")
PATIENCE = 600.0
# A network of its own that has only the loopback interface: TensorFlow's servers listen everywhere.
ALONE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
FAULTS = {"SIGKILL": 0.1, "SIGSTOP": 1.5}  # seconds until it must be noticed
BACK = 5.0  # seconds until steps must run again


@dataclass(frozen=True)
class Case:
    """A null step. steps: in a round. bar: how many times as fast as TensorFlow it is to be; None:
    TensorFlow does not take part.
    """

    name: str
    kind: str
    megabytes: int
    steps: int
    bar: float | None
    filled: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    def request(self, workers: int) -> str:
        about = {"kind": self.kind, "megabytes": self.megabytes, "filled": self.filled}
        return json.dumps({**about, "workers": workers})


TCP = {"HEADRACE_TRANSPORT": "tcp"}
CASES = (
    Case("scalar", "scalar", 0, 100, 8.0),
    Case("scalar over TCP", "scalar", 0, 100, None, settings=TCP),
    Case("dense 100 MB", "dense", 100, 3, 4.0),
    Case("dense 100 MB over TCP", "dense", 100, 3, 1.2, settings=TCP),
    Case("sparse, 1 GB", "sparse", 1 << 10, 100, 6.0),
    Case("sparse, 4 GB, filled", "sparse", 4 << 10, 100, None, filled=True),
    Case("sparse, 16 GB, zeros", "sparse", 16 << 10, 100, None),
)


@dataclass
class Track:
    """What one framework did in a case."""

    seconds: list[float] = field(default_factory=list)
    bytes: float = 0.0  # over the loopback interface, for each step
    rss: int = 0  # of the parameter server
    error: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [*{case.kind: None for case in CASES}, "faults"]
    parser.add_argument("--only", help=f"some of {', '.join(names)}")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each framework")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else names
    if unknown := sorted(set(only) - set(names)):
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(names)}")
    workers = [1] if options.quick else [int(each) for each in options.workers.split(",")]
    rounds = min(options.rounds, 3) if options.quick else options.rounds
    cases = [case for case in CASES if case.kind in only]
    if options.quick:
        cases = [case for case in cases if case.megabytes <= 1 << 10]
    console = Console(width=110)
    peer = peer_command(console)
    load = os.getloadavg()[0]
    console.print(f"load average {load:.1f} on {os.cpu_count()} cores; best and median of {rounds} "
                  "rounds, milliseconds a step")  # fmt: skip
    for case in cases:  # a table each: all of them together take minutes
        console.print(table_of(case, workers, rounds, peer))
    if "faults" in only:
        console.print(faults(1 if options.quick else rounds))


def peer_command(console: Console) -> list[str] | None:
    """Return the command that starts TensorFlow's Python; None, and say why, if it is left out."""
    python = os.environ.get("BENCH_TF2_PYTHON")
    if not python:
        console.print("TensorFlow is left out: BENCH_TF2_PYTHON does not name its Python")
        return None
    if not _can_be_alone():
        console.print("TensorFlow is left out: it needs a network namespace (unshare -rn, ip)")
        return None
    return [*ALONE, python]


def _can_be_alone() -> bool:
    if not shutil.which("unshare"):
        return False
    return not subprocess.run([*ALONE, "true"], capture_output=True).returncode


def table_of(case: Case, workers: list[int], rounds: int, peer: list[str] | None) -> Table:
    table = Table("workers", "Headrace", "TensorFlow", "ratio", "bar", "", "KB a step", "RSS, GB")
    table.title = case.name
    for count in workers:
        table.add_row(str(count), *row(case, count, rounds, peer))
    return table


def row(case: Case, workers: int, rounds: int, peer: list[str] | None) -> Iterator[str]:
    """Yield the columns of a case: times, ratio of the medians, bar, bytes, memory."""
    if not _fits(case):
        yield f"left out: needs {case.megabytes >> 10} GB"
        return
    ours, theirs = race(case, workers, rounds, peer if case.bar is not None else None)
    yield _times(ours)
    yield _times(theirs) if theirs is not None else "–"
    if theirs is None or theirs.error or ours.error:
        yield from ("", "" if case.bar is None else f"{case.bar:g}", "")
    else:
        ratio = median(theirs.seconds) / median(ours.seconds)
        yield from (
            f"{ratio:.1f}",
            f"{case.bar:g}",
            "met" if ratio >= (case.bar or 0) else "missed",
        )
    yield f"{ours.bytes / 1e3:,.1f}"
    yield f"{ours.rss / 2**30:.2f}"


def _fits(case: Case) -> bool:
    """Return whether there is memory for the parameters: twice if they are filled, and 1 GB of the
    zeros, whose pages come into being when they are written.
    """
    needed = (
        case.megabytes * 2 if case.filled or case.kind == "dense" else min(case.megabytes, 1024)
    )
    with open("/proc/meminfo") as lines:
        found = next(int(each.split()[1]) for each in lines if each.startswith("MemAvailable"))
    return found >> 10 > needed + 1024


def _times(track: Track) -> str:
    if track.error:
        return track.error
    return f"{min(track.seconds) * 1e3:.3g} / {median(track.seconds) * 1e3:.3g}"


def race(
    case: Case, workers: int, rounds: int, peer: list[str] | None
) -> tuple[Track, Track | None]:
    """Let the clusters take turns."""
    alone = ALONE if _can_be_alone() else []  # so that no one else's bytes are counted
    commands = [[*alone, sys.executable, WORKER, "headrace"]]
    if peer is not None:
        commands.append([*peer, WORKER, "tensorflow"])
    tracks = [Track() for _ in commands]
    running: list[tuple[Process, Track]] = []
    for command, track in zip(commands, tracks, strict=True):
        process = Process(command, case.settings, PATIENCE)
        running.append((process, track))
        _ask(process, track, case.request(workers))
    for _ in range(rounds):
        for process, track in running:
            found = _ask(process, track, json.dumps({"steps": case.steps}))
            track.seconds += found.get("seconds", ())
            track.bytes = found.get("bytes", 0.0)
            track.rss = found.get("rss", 0)
    for process, _ in running:
        process.close()
    return tracks[0], tracks[1] if peer is not None else None


def _ask(process: Process, track: Track, line: str) -> dict:
    if track.error:
        return {}
    try:
        return json.loads(process.ask(line))
    except Stopped as stopped:
        track.error = str(stopped)
        return {}


def faults(rounds: int) -> Table:
    """Stop one of two workers while steps run."""
    table = Table("fault", "noticed after, s", "bar", "", "back at work after, s", "bar", "")
    for name, bar in FAULTS.items():
        noticed, back = [], []
        for _ in range(rounds):
            process = Process([sys.executable, WORKER, "headrace"], {}, PATIENCE)
            try:
                process.ask(CASES[0].request(2))
                found = json.loads(process.ask(json.dumps({"faults": name})))
                noticed.append(found["detected"])
                back.append(found["back"])
            except Stopped as stopped:
                table.add_row(name, str(stopped))
                break
            finally:
                process.close()
        else:
            table.add_row(name, *_judged(noticed, bar), *_judged(back, BACK))
    return table


def _judged(seconds: list[float], bar: float) -> tuple[str, str, str]:
    figure = f"{median(seconds):.3g} (at most {max(seconds):.3g})"
    return figure, f"{bar:g}", "met" if median(seconds) <= bar else "missed"


if __name__ == "__main__":
    main()
