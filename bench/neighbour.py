"""What one busy process beside it costs a training run.

    python bench/neighbour.py [--only mlp,lstm] [--rounds 6]

Rounds with and without the neighbour alternate; it's a process of this script's own that counts,
and is stopped and continued. With n threads on as many cores, a busy process's fair share of the
time makes a step take (n + 1) / n of what it takes alone; if it holds a core for itself, it's
n / (n - 1). The times are means: what a neighbour does to a few steps counts too.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import models
from race import HEADRACE, Contender, Track

from headrace.devices.target import usable_cores

WORKS = "mlp,lstm,alexnet"
SECONDS = 1.5  # of a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=WORKS, help=f"works, by default {WORKS}")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        neighbour.send_signal(signal.SIGSTOP)
        cores = usable_cores()
        print(f"{cores} cores; a neighbour's share: {(cores + 1) / cores:.2f}")
        for name in arguments.only.split(","):
            alone, beside = measured(name, neighbour, arguments.rounds)
            print(
                f"{name:10} alone {alone * 1e3:8.2f} ms   beside a neighbour {beside * 1e3:8.2f} ms"
                f"   {beside / alone:5.2f} times",
                flush=True,
            )
    finally:
        neighbour.kill()
        neighbour.wait()


def measured(name: str, neighbour: subprocess.Popen, rounds: int) -> tuple[float, float]:
    """Seconds of a step alone and beside the neighbour: medians over rounds of their means."""
    found: dict[int, list[float]] = {signal.SIGSTOP: [], signal.SIGCONT: []}
    with tempfile.TemporaryDirectory(prefix="bench-") as caches:
        contender = Contender(Track(HEADRACE), models.MODELS[name], Path(caches))
        try:
            contender.run(3)
            count = max(2, int(SECONDS / min(contender.run(3))))
            for _ in range(rounds):
                for state, means in found.items():
                    neighbour.send_signal(state)
                    means.append(statistics.fmean(contender.run(min(count, 1000))))
        finally:
            neighbour.send_signal(signal.SIGSTOP)
            contender.close()
    return statistics.median(found[signal.SIGSTOP]), statistics.median(found[signal.SIGCONT])


if __name__ == "__main__":
    main()
