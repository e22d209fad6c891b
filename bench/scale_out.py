"""Training on several processes against other frameworks: one function per bar.

    python bench/scale_out.py                                   everything
    python bench/scale_out.py --only reduce --ranks 2           an all-reduce, against gloo
    python bench/scale_out.py --only train --models mlp         data-parallel training, against DDP
    python bench/scale_out.py --only words                     two servers, against TensorFlow 2

The processes of all frameworks stay alive while they take turns, so that whatever else the machine
does falls on all alike; medians are compared. bench/README.md says more; how backup workers pay is
in bench/convergence.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from cluster import ALONE, PATIENCE, WORKER
from process import Process, Stopped
from rich.console import Console
from rich.table import Table

console = Console(width=120)
RANK = str(Path(__file__).resolve().parent / "scale_out_worker.py")
TORCH, TF2 = "BENCH_TORCH_PYTHON", "BENCH_TF2_PYTHON"
MEGABYTES = 100
MODELS = {"mlp": (0.9, 100), "lstm": (0.9, 2), "alexnet": (0.8, 2)}  # share of two alone, steps
# The model of words: a vocabulary, the width of its vectors, the rows of a batch, and the classes
# that are drawn for the softmax.
WORDS = {"words": 40_000, "width": 128, "rows": 64, "sampled": 512}

Row = tuple[str, str, str, float, float]  # what, ours, the peer's, the target, the ratio


class Ranks:
    """The ranks of one framework, with one thread each."""

    def __init__(self, framework: str, count: int, settings: dict[str, str]) -> None:
        port = free_port()
        python = os.environ[TORCH] if framework == "torch" else sys.executable
        limits = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "HEADRACE", "OPENBLAS", "MKL")}
        self._processes = []
        for rank in range(count):
            if framework == "torch":
                place = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(count),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": "lo",
                }
            else:
                place = {
                    "HEADRACE_RANK": str(rank),
                    "HEADRACE_RANKS": str(count),
                    "HEADRACE_RENDEZVOUS": f"127.0.0.1:{port}",
                }
            environment = {**limits, **place, **settings}
            self._processes.append(Process([python, RANK, framework], environment, PATIENCE))
        for process in self._processes:
            process.read()

    def ask(self, line: str) -> list[float]:
        """Let all ranks do something; return the seconds of each step, those of the slowest."""
        for process in self._processes:
            process.send(line)
        found = [json.loads(process.read()) for process in self._processes]
        for each in found:
            if "error" in each:
                raise Stopped(each["error"])
        return [max(step) for step in zip(*(each["seconds"] for each in found), strict=True)]

    def close(self) -> None:
        for process in self._processes:
            process.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def ranks_of(count: int, **kinds: tuple[str, dict[str, str]]) -> Iterator[dict[str, Ranks]]:
    """Start ranks of several kinds: a framework, and settings."""
    with contextlib.ExitStack() as stack:
        made = {}
        for name, (framework, settings) in kinds.items():
            made[name] = Ranks(framework, count, settings)
            stack.callback(made[name].close)
        yield made


def race(contenders: dict[str, tuple[Ranks, str]], rounds: int) -> dict[str, float]:
    """Let contenders take turns, label -> (ranks, what to ask them); return median milliseconds."""
    found: dict[str, list[float]] = {label: [] for label in contenders}
    for number in range(rounds + 1):
        for label, (ranks, line) in contenders.items():
            seconds = ranks.ask(line)
            if number:  # the first round warms up
                found[label] += seconds
    return {label: median(seconds) * 1e3 for label, seconds in found.items()}


def reduce(options: argparse.Namespace) -> Iterator[Row]:
    """All-reduce of 100 MB, in shared memory and over TCP: milliseconds of the slowest rank."""
    for count in map(int, options.ranks.split(",")):
        kinds = {
            "shared": ("headrace", {}),
            "tcp": ("headrace", {"HEADRACE_TRANSPORT": "tcp"}),
            "gloo": ("torch", {}),
        }
        with ranks_of(count, **kinds) as ranks:
            line = f"reduce {MEGABYTES} 3"
            found = race({name: (each, line) for name, each in ranks.items()}, options.rounds)
        gloo = found["gloo"]
        for name, title, bar in [("shared", "shared memory", 3.0), ("tcp", "TCP", 1.0)]:
            what = f"all-reduce {MEGABYTES} MB, {count} processes, {title}, ms"
            yield what, f"{found[name]:.1f}", f"gloo: {gloo:.1f}", bar, gloo / found[name]


def train(options: argparse.Namespace) -> Iterator[Row]:
    """Training on 2 processes, against DDP and against two processes that average nothing:
    milliseconds of a step of the slower rank.
    """
    for name in options.models.split(","):
        share, steps = MODELS[name]
        with ranks_of(2, ours=("headrace", {}), torch=("torch", {})) as ranks:
            found = race(
                {
                    "together": (ranks["ours"], f"train {name} together {steps}"),
                    "ddp": (ranks["torch"], f"train {name} together {steps}"),
                    "alone": (ranks["ours"], f"train {name} alone {steps}"),
                },
                options.rounds,
            )
        ours, ddp, alone = (found[each] for each in ("together", "ddp", "alone"))
        yield f"{name}, 2 processes, ms", f"{ours:.2f}", f"DDP: {ddp:.2f}", 1.4, ddp / ours
        yield (
            f"{name}, against two alone",
            f"{ours:.2f}",
            f"alone: {alone:.2f}",
            share,
            alone / ours,
        )


def words(options: argparse.Namespace) -> Iterator[Row]:
    """Sampled softmax and embeddings, sharded over 2 parameter servers: steps per second."""
    case = json.dumps({"kind": "words", "workers": 1, "ps": 2, **WORDS})
    commands = {
        "headrace": [sys.executable, WORKER, "headrace"],
        "tensorflow": [*ALONE, os.environ[TF2], WORKER, "tensorflow"],
    }
    processes, seconds = {}, {name: [] for name in commands}
    try:
        for name, command in commands.items():
            processes[name] = Process(command, {}, PATIENCE)
            processes[name].ask(case)
        for _ in range(options.rounds):
            for name, process in processes.items():
                seconds[name] += json.loads(process.ask(json.dumps({"steps": 50})))["seconds"]
    finally:
        for process in processes.values():
            process.close()
    ours, theirs = (1 / median(seconds[name]) for name in ("headrace", "tensorflow"))
    title = "sampled softmax and embeddings on 2 ps, steps/s"
    yield title, f"{ours:.0f}", f"TF 2: {theirs:.0f}", 4.0, ours / theirs


# The cases, and the variable that names their peer's Python.
CASES: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Row]], str]] = {
    "reduce": (reduce, TORCH),
    "train": (train, TORCH),
    "words": (words, TF2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--ranks", default="2,4", help="numbers of processes of an all-reduce")
    parser.add_argument("--models", default=",".join(MODELS), help="models to train")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    table = Table(title="scale out: medians")
    for column in ("", "Headrace", "peer", "target", "ratio"):
        table.add_column(column)
    for name in options.only.split(","):
        case, variable = CASES[name]
        if not os.environ.get(variable):
            table.add_row(name, "–", f"{variable} is not set", "–", "–")
            continue
        try:
            for what, ours, theirs, bar, ratio in case(options):
                colour = "green" if ratio >= bar else "red"
                table.add_row(what, ours, theirs, f"≥ {bar:g}", f"[{colour}]{ratio:.2f}[/]")
        except Stopped as error:
            table.add_row(name, "–", str(error), "–", "–")
    console.print(table)


if __name__ == "__main__":
    main()
