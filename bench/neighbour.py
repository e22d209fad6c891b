"""What one busy process beside it costs a training run.

    python bench/neighbour.py [--only mlp,lstm] [--rounds 6]

Rounds with and without the neighbour alternate; it's a process of this script's own that counts,
and is stopped and continued. The system decides how much of the cores the neighbour gets, anything
from a fair share to a core for itself; what it got is measured. A step may then take n / (n - got)
of what it takes alone, with n threads on as many cores: that is the neighbour's share, and what a
step takes beyond it is lost by waiting. The times are means: what a neighbour does to a few steps
counts too.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import models
from race import HEADRACE, Contender, Track

from headrace._src.devices.target import usable_cores

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
        for name in arguments.only.split(","):
            alone, beside, got = measured(name, neighbour, arguments.rounds)
            share = cores / (cores - got)
            print(
                f"{name:10} alone {alone * 1e3:8.2f} ms   beside a neighbour {beside * 1e3:8.2f} ms"
                f"   {beside / alone:5.2f} times; it got {got:.2f} of {cores} cores, which makes "
                f"{share:.2f}",
                flush=True,
            )
    finally:
        neighbour.kill()
        neighbour.wait()


def measured(name: str, neighbour: subprocess.Popen, rounds: int) -> tuple[float, float, float]:
    """Seconds of a step alone and beside the neighbour, and how many cores that got: medians over
    rounds of their means.
    """
    found: dict[int, list[float]] = {signal.SIGSTOP: [], signal.SIGCONT: []}
    cores = []
    with tempfile.TemporaryDirectory(prefix="bench-") as caches:
        contender = Contender(Track(HEADRACE), models.MODELS[name], Path(caches))
        try:
            contender.run(3)
            count = max(2, int(SECONDS / min(contender.run(3))))
            for _ in range(rounds):
                for state, means in found.items():
                    neighbour.send_signal(state)
                    began, used = time.perf_counter(), busy_seconds(neighbour)
                    means.append(statistics.fmean(contender.run(min(count, 1000))))
                    if state == signal.SIGCONT:
                        passed = time.perf_counter() - began
                        cores.append((busy_seconds(neighbour) - used) / passed)
        finally:
            neighbour.send_signal(signal.SIGSTOP)
            contender.close()
    alone, beside = (statistics.median(found[s]) for s in (signal.SIGSTOP, signal.SIGCONT))
    return alone, beside, statistics.median(cores)


def busy_seconds(process: subprocess.Popen) -> float:
    """The processor time that a process has had."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
