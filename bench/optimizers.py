"""Optimizers' updates against the memory's bandwidth: what a step moves, over how long it takes.

    python bench/optimizers.py [--parameters 100] [--rounds 5]

bench/README.md says what is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

from process import Process
from race import HEADRACE, PYTHONS, python_of
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
# What a step reads and writes of each parameter, in bytes: gradients are read, weights and slots
# are read and written.
BYTES = {"SGD": 12, "Momentum": 20, "Adagrad": 20, "RMSProp": 28, "Adam": 28}
CONTENDERS = (HEADRACE, "torch fused", "torch foreach", "tf graph")
PATIENCE = 600


class Worker:
    """A framework in one mode. State: the process; the times of the optimizer in use."""

    def __init__(self, label: str, parameters: int) -> None:
        self.label = label
        framework, _, mode = label.partition(" ")
        script = str(HERE / "optimizer_worker.py")
        command = [python_of(framework), script, framework, mode, str(parameters)]
        self._process = Process(command, {}, PATIENCE)
        self.version = json.loads(self._process.read())["version"]
        self.seconds: list[float] = []
        self.error = ""

    def use(self, name: str) -> None:
        self.seconds = []
        self.error = self._ask(f"use {name}").get("error", "")

    def run(self) -> None:
        if not self.error:
            self.seconds += self._ask("run 3").get("seconds", [])

    def _ask(self, line: str) -> dict:
        return json.loads(self._process.ask(line))

    @property
    def best(self) -> float:
        return min(self.seconds, default=math.nan)

    def cell(self, moved: int) -> str:
        """What is shown of it: milliseconds, and the bytes per second of moving so many."""
        if self.error:
            return "–"
        return f"{self.best * 1e3:.0f} ({moved / self.best / 1e9:.1f})"

    def close(self) -> None:
        self._process.close()


def bandwidth() -> float:
    """Bytes per second that the memory gives and takes at best."""
    sys.path.insert(0, str(HERE.parent / "src"))
    from headrace._src.compile.native import roofs
    from headrace._src.devices.openmp import thread_count

    return roofs.bandwidth(thread_count())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parameters", type=int, default=100, help="millions of them")
    parser.add_argument("--rounds", type=int, default=5, help="each of three steps")
    options = parser.parse_args()
    parameters = options.parameters * 1_000_000
    console = Console(width=None if sys.stdout.isatty() else 140)
    labels = [
        label
        for label in CONTENDERS
        if label == HEADRACE or os.environ.get(PYTHONS[label.split()[0]])
    ]
    workers = [Worker(label, parameters) for label in labels]
    console.print(", ".join(dict.fromkeys(w.version for w in workers)) + "; 2 threads each")
    peak, rows = 0.0, []
    for name, moved in BYTES.items():
        for worker in workers:
            worker.use(name)
        for _ in range(options.rounds):
            peak = max(peak, bandwidth())
            for worker in workers:
                worker.run()
        cells = [worker.cell(moved * parameters) for worker in workers]
        rows.append((name, cells, moved * parameters / workers[0].best))
    for worker in workers:
        worker.close()
    title = f"{options.parameters} M float32 parameters: ms (GB/s); memory {peak / 1e9:.1f} GB/s"
    shown = Table(title=title)
    for heading in ("optimizer", *labels, "of the memory's"):
        shown.add_column(heading, justify="left" if heading == "optimizer" else "right")
    for name, cells, speed in rows:
        shown.add_row(name, *cells, f"{speed / peak:.0%}")
    console.print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
