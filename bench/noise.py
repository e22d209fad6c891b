"""Kernel choice beside a busy process: what a bad first step costs later.

    python bench/noise.py [--only googlenet,resnet] [--hogs 2] [--seconds 60] [--rounds 8]

Two processes train the same model, each with an empty cache. Busy processes run during the first
step of one of them, in which kernels are chosen by timing, and end with it. Both then train for a
minute, in turns, so that choices can be thought over. In the end their steps are compared,
interleaved: the ratio must be at most 1.05 (exit status).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from isa import NARROWED, narrow
from models import MODELS, Model
from race import HEADRACE, Contender, Track

BOUND = 1.05
SHARE = 2.0  # seconds of steps in a turn


def first_steps(model: Model, hogs: int, caches: Path) -> tuple[Contender, Contender]:
    """The process that started in quiet, and the one that didn't."""
    quiet = Contender(Track(HEADRACE), model, caches / "quiet")
    quiet.track.first = quiet.first_step()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(hogs)]
    try:
        disturbed = Contender(Track(HEADRACE), model, caches / "disturbed")
        disturbed.track.first = disturbed.first_step()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return quiet, disturbed


def turn(contender: Contender, seconds: float) -> list[float]:
    """The times of some steps."""
    one = min(contender.run(2))
    return contender.run(max(2, min(1000, int(seconds / one))))


def compare(model: Model, hogs: int, seconds: float, rounds: int) -> float:
    """Print the steps before and after a minute; the ratio of the disturbed process's steps."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        contenders = first_steps(model, hogs, Path(folder))
        began = time.perf_counter()
        early = [min(turn(c, SHARE)) for c in contenders]
        while time.perf_counter() - began < 2 * seconds:  # a minute each
            for contender in contenders:
                turn(contender, SHARE)
        late: list[list[float]] = [[], []]
        for number in range(rounds):
            for i in (0, 1) if number % 2 else (1, 0):
                late[i] += turn(contenders[i], SHARE / 4)
        for contender in contenders:
            contender.close()
    (quiet, disturbed), (q, d) = contenders, map(min, late)
    medians = [statistics.median(times) * 1e3 for times in late]
    print(
        f"{model.title}: first step {quiet.track.first:.1f} s in quiet, "
        f"{disturbed.track.first:.1f} s beside {hogs} busy processes; then "
        f"{early[0] * 1e3:.2f} and {early[1] * 1e3:.2f} ms; after {seconds:.0f} s "
        f"{q * 1e3:.2f} and {d * 1e3:.2f} ms "
        f"(medians {medians[0]:.2f} and {medians[1]:.2f}); ratio {d / q:.3f}",
        flush=True,
    )
    return d / q


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="googlenet,mlp", help="works")
    parser.add_argument("--hogs", type=int, default=2, help="busy processes in the first step")
    parser.add_argument("--seconds", type=float, default=60, help="of training before it counts")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--isa", choices=NARROWED, default="host")
    options = parser.parse_args()
    narrow(options.isa)
    ratios = [
        compare(MODELS[name], options.hogs, options.seconds, options.rounds)
        for name in options.only.split(",")
    ]
    return 1 if max(ratios) > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
