"""Side by side: the same cases in several frameworks, interleaved in one run, as ratios.

Each framework is a worker process of its own Python; a round asks every worker for one timing of a
case before the next round starts, and the best over the rounds counts. A ratio is the peer's time
divided by Headrace's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from process import Process, Stopped

HERE = Path(__file__).resolve().parent

# Where a peer's Python is: the peers live in environments of their own (see bench/README.md).
PEERS = {
    "TF 1.15": ("tensorflow", "BENCH_TF115_PYTHON"),
    "TF 2": ("tensorflow", "BENCH_TF2_PYTHON"),
}


class Worker:
    """A framework that answers with timings."""

    def __init__(
        self, label: str, framework: str, python: str, module: str, environment: dict[str, str]
    ) -> None:
        self.label = label
        threads = os.environ.get("OMP_NUM_THREADS", "2")
        command = [python, str(HERE / "worker.py"), framework, module]
        self._process = Process(command, {"OMP_NUM_THREADS": threads, **environment})
        self.version = self._answer(self._process.read)

    def _answer(self, read: Callable[..., str], *line: str) -> str:
        try:
            return read(*line)
        except Stopped:
            raise SystemExit(f"{self.label}: the worker stopped; is its Python right?") from None

    def time(self, case: str, budget: float) -> float | str | None:
        """Seconds per call, None where the case does not apply, or an error's text."""
        answer = self._answer(self._process.ask, f"{case} {budget}")
        if answer == "none":
            return None
        return answer if answer.startswith("error") else float(answer)

    def close(self) -> None:
        self._process.close()


def start(
    module: str, numpy: bool = True, environment: dict[str, str] | None = None
) -> list[Worker]:
    """The workers that there are: Headrace first, then NumPy, then the peers that are named;
    `environment`: variables that Headrace's gets.
    """
    workers = [Worker("Headrace", "headrace", sys.executable, module, environment or {})]
    if numpy:
        workers.append(Worker("NumPy", "numpy", sys.executable, module, {}))
    for label, (framework, variable) in PEERS.items():
        if python := os.environ.get(variable):
            workers.append(Worker(label, framework, python, module, {}))
        else:
            print(f"{label}: set {variable} to its Python to compare")
    return workers


def table(workers: list[Worker], cases: list[str], rounds: int = 3, budget: float = 0.1) -> dict:
    """Time every case in every worker and print a row each; returns {case: {label: seconds}}."""
    for w in workers:
        print(f"{w.label}: {w.version.removeprefix('ready ')}")
    others = workers[1:]
    print(f"\n{'case':34}{'Headrace':>12}" + "".join(f"{w.label + ' /':>12}" for w in others))
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        best: dict[str, float] = {}
        for _ in range(rounds):
            for w in workers:
                seconds = w.time(case, budget)
                if isinstance(seconds, str):
                    best.setdefault(w.label, float("nan"))
                    if w is workers[0]:
                        print(f"{case}: {seconds}")
                elif seconds is not None:
                    best[w.label] = min(best.get(w.label, seconds), seconds)
        found[case] = best
        ours = best.get("Headrace", float("nan"))
        ratios = "".join(
            f"{best[w.label] / ours:>11.2f}x" if w.label in best else f"{'-':>12}" for w in others
        )
        print(f"{case:34}{ours * 1e6:>9.1f} us{ratios}", flush=True)
    for w in workers:
        w.close()
    return found
